"""Tarn on the Kubernetes cluster that kubectl reaches (`make k8s-test`): no acknowledged write is lost.

The images are on its nodes (`make images`). The test overlay is applied, and used from inside the cluster by pods of
its own. The tests run in this order, on one installation.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter

import pytest
from cluster import (
    ELSEWHERE,
    JOBS,
    JOBS_NAMESPACE,
    NAMESPACE,
    ROOT,
    SERVICES,
    STORES,
    VERSION,
    Cluster,
    Load,
)

pytestmark = [
    pytest.mark.skipif("TARN_K8S_TEST" not in os.environ, reason="make k8s-test runs it"),
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("cluster"),
]
NEXT = os.environ.get("TARN_K8S_NEXT", f"{VERSION}-next")
"""Tag of the images to which the rollout goes."""

REFUSED = re.compile(r"503 \w+")
BROKEN = re.compile(
    r"\w*(Connection|Timeout|Endpoint|Closed|Incomplete|Disconnected|Pipe|SSLEOF)\w*"
)
"""`SSLEOFError`: the connection of a killed gateway ends without the farewell of TLS."""
PAUSE_SECONDS = 5
PROMETHEUS = os.environ.get("TARN_K8S_PROMETHEUS", "")
SCRAPED_SECONDS = 75
"""Longer than rates need: five scrapes."""
BUSY_PANELS = {
    "Requests",
    "Duration, 99th percentile",
    "Phases of GetObject",
    "Phases of PutObject",
    "In flight",
    "Bodies",
    "Operations",
    "Which phase of a commit is slow",
    "Uncommitted rows",
    "Metadata store, calls",
    "Metadata store, 99th percentile",
    "Block store, 99th percentile",
    "Cache of ranges",
    "Rpcs, 99th percentile",
    "Event-loop lag, 99th percentile",
    "Processor",
    "Memory",
    "Open files",
    "Versions",
    "Requests by repository",
}
"""Panels that have numbers under load."""
SPREAD_SECONDS = 20
"""Callers look a name up again every 8 to 15 s."""


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    found = Cluster()
    began = time.monotonic()
    found.deploy()
    sys.stderr.write(f"\nready after {time.monotonic() - began:.0f} s\n")
    return found


@pytest.fixture
def repository(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A new repository for each test."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:30].strip("-")
    name += f"-{os.urandom(3).hex()}"
    cluster.run("create", f"tarn repo create {name}")
    return name


def judge(load: Load, *, is_broken_allowed: bool = True, is_unknown_allowed: bool = False) -> None:
    """Prints what happened; fails if a promise was broken.

    Clients may see an answer 503, and a broken connection if a gateway was killed. A commit may have an unknown outcome
    only if a process was killed, and else be refused because something is away.
    """
    failed, total = sum(load.failures.values()), sum(load.counts.values())
    share = f"{failed} of {total} operations failed ({failed / total:.2%}): {dict(load.failures)}"
    sys.stderr.write(f"\n{share}\n{dict(load.counts)}, {len(load.log)} commits\n")
    sys.stderr.write(f"failed commits: {dict(load.commit_failures)}\n")
    assert load.problems() == []
    assert load.counts["put ok"] > 20
    assert load.counts["commit ok"] > 0
    assert load.unexpected_commits(is_unknown_allowed=is_unknown_allowed) == []
    strange = [
        note
        for note in load.failures
        if not REFUSED.fullmatch(note) and not (is_broken_allowed and BROKEN.fullmatch(note))
    ]
    assert strange == []


def test_everything_works_inside_the_cluster(cluster: Cluster, repository: str) -> None:
    cluster.start_load(repository)
    time.sleep(3 * PAUSE_SECONDS)
    load = cluster.end_load(repository)
    judge(load)
    assert load.failures == {}
    assert load.commit_failures == {}


def test_s3_is_served_by_tls_only(cluster: Cluster) -> None:
    """By a certificate that is valid for each name of the Service, and that no client takes without its authority."""
    code = (
        "import os, ssl, urllib.error, urllib.request as u\n"
        "trusted = ssl.create_default_context(cafile=os.environ['AWS_CA_BUNDLE'])\n"
        "def status(host, context, scheme='https'):\n"
        "    try:\n"
        "        return u.urlopen(f'{scheme}://{host}:8000/', timeout=20, context=context).status\n"
        "    except urllib.error.HTTPError as error:\n"
        "        return error.code\n"
        "    except (OSError, u.http.client.HTTPException) as error:\n"
        "        return type(error).__name__\n"
        "names = ['gateway', 'gateway.tarn', 'gateway.tarn.svc', 'gateway.tarn.svc.cluster.local']\n"
        "print(*[status(name, trusted) for name in names])\n"
        "print(status('gateway', ssl.create_default_context()), status('gateway', None, 'http'))\n"
    )
    lines = cluster.run("tls", f'python3 -c "{code}"').splitlines()
    assert lines[0].split() == ["403"] * 4, "an answer to a request without a signature"
    untrusted, plain = lines[1].split()
    assert untrusted == "URLError"
    assert plain in ("URLError", "RemoteDisconnected", "BadStatusLine", "ConnectionResetError")


def test_rest_is_served_by_tls_only_through_its_service(cluster: Cluster, repository: str) -> None:
    """A client with a key pair makes a branch and stores and reads an object there, and one without gets 401."""
    code = (
        "import base64, json, os, ssl, urllib.error, urllib.request as u\n"
        "trusted = ssl.create_default_context(cafile=os.environ['AWS_CA_BUNDLE'])\n"
        "pair = os.environ['TARN_ACCESS_KEY_ID'] + ':' + os.environ['TARN_SECRET_ACCESS_KEY']\n"
        "basic = 'Basic ' + base64.b64encode(pair.encode()).decode()\n"
        "def ask(path, body=None, host='api', context=trusted, scheme='https', caller=basic):\n"
        "    head = {'Content-Type': 'application/json'}\n"
        "    head |= {'Authorization': caller} if caller else {}\n"
        "    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body else None\n"
        "    request = u.Request(f'{scheme}://{host}:8001/api/v1{path}', data, head)\n"
        "    try:\n"
        "        with u.urlopen(request, timeout=20, context=context) as answer:\n"
        "            return answer.status, answer.read().decode()\n"
        "    except urllib.error.HTTPError as error:\n"
        "        return error.code, ''\n"
        "    except (OSError, u.http.client.HTTPException) as error:\n"
        "        return type(error).__name__, ''\n"
        "names = ['api', 'api.tarn', 'api.tarn.svc', 'api.tarn.svc.cluster.local']\n"
        "print(*[ask('/healthcheck', host=name)[0] for name in names])\n"
        "unknown = ssl.create_default_context()\n"
        "plain = ask('/healthcheck', context=None, scheme='http')[0]\n"
        "print(ask('/healthcheck', context=unknown)[0], plain)\n"
        f"branches = '/repositories/{repository}/branches'\n"
        "print(ask(branches, caller=None)[0], ask(branches, {'name': 'rest', 'source': 'main'})[0])\n"
        "print(*[each['id'] for each in json.loads(ask(branches)[1])['results']])\n"
        "print(ask(f'{branches}/rest/objects?path=a', b'by REST')[0])\n"
        "print(ask(f'{branches[:-9]}/refs/rest/objects?path=a')[1])\n"
    )
    lines = cluster.run("rest", f'python3 -c "{code}"').splitlines()
    assert lines[0].split() == ["204"] * 4
    untrusted, plain = lines[1].split()
    assert untrusted == "URLError"
    assert plain in ("URLError", "RemoteDisconnected", "BadStatusLine", "ConnectionResetError")
    assert lines[2].split() == ["401", "201"]
    assert lines[3].split() == ["main", "rest"]
    assert lines[4:] == ["201", "by REST"], "its certificate proves that it made the address"
    found = cluster.run("branches", f"tarn branch list {repository}")
    assert "rest" in found, "graveler has it"


def test_the_shell_is_the_administrators_command_line(cluster: Cluster) -> None:
    """By the commands of the README, and one call to each service."""
    with cluster.shell():
        try:
            for command in (
                "repo create from-the-shell",
                "fs upload /etc/hostname from-the-shell/main/a",
                "commit from-the-shell/main -m first",
                "auth user list",
                "compact status",
            ):
                cluster.execute("job/shell", "tarn", *command.split())
            log = cluster.execute("job/shell", "tarn", "log", "from-the-shell/main", "--json")
            assert json.loads(log)[0]["message"] == "first"
        finally:
            cluster.execute("job/shell", "tarn", "repo", "delete", "from-the-shell", "--yes")


@pytest.mark.parametrize("name", ["quickstart", "executors"])
def test_a_spark_job_runs_in_the_cluster(cluster: Cluster, name: str) -> None:
    """The main job, in one pod, and with executors as pods of their own, in the namespace of jobs with their user."""
    cluster.prepare_jobs()
    jobs = Cluster(JOBS_NAMESPACE)
    job = "spark-quickstart" if name == "quickstart" else "spark-quickstart-executors"
    jobs.kubectl("delete", "job", job, "--ignore-not-found")
    began = time.monotonic()
    jobs.kubectl("apply", "-k", str(JOBS / name))
    executors: set[str] = set()
    while not (end := jobs.end_of_job(job)):
        executors |= set(jobs.pods_with("spark-role=executor"))
        assert time.monotonic() < began + 900, "the job does not end"
        time.sleep(1)
    log = jobs.kubectl("logs", f"job/{job}")
    assert end == "Complete", log[-4000:]
    assert "days on main: 2026-05-01, 2026-05-02" in log
    assert len(executors) == (2 if name == "executors" else 0)
    sys.stderr.write(f"\n{job}: {time.monotonic() - began:.0f} s, executors {sorted(executors)}\n")


@pytest.mark.parametrize(
    ("verb", "resource", "namespace", "is_allowed"),
    [
        ("create", "pods", JOBS_NAMESPACE, True),
        ("create", "pods", NAMESPACE, False),
        ("get", "secrets", JOBS_NAMESPACE, False),
        ("get", "secrets", NAMESPACE, False),
        ("create", "rolebindings.rbac.authorization.k8s.io", JOBS_NAMESPACE, False),
    ],
)
def test_the_account_of_drivers_makes_pods_in_the_namespace_of_jobs_only(
    cluster: Cluster, verb: str, resource: str, namespace: str, is_allowed: bool
) -> None:
    """After the job with executors, whose account it is."""
    account = f"system:serviceaccount:{JOBS_NAMESPACE}:spark-executors"
    question = f"kubectl auth can-i {verb} {resource} -n {namespace}"
    assert cluster.may(account, verb, resource, namespace) is is_allowed, question


def kill(cluster: Cluster, name: str) -> None:
    """Kills a pod without a warning, and waits until another one has replaced it."""
    (victim, *_) = cluster.pods_of(name)
    before = cluster.uid_of(victim)
    cluster.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    deadline = time.monotonic() + 120
    while before in {cluster.uid_of(pod) for pod in cluster.pods_of(name)}:
        assert time.monotonic() < deadline, f"{victim} does not go"
        time.sleep(0.5)
    cluster.until_ready(name)


@pytest.mark.parametrize("name", [each for each in (*SERVICES, *STORES) if each != "api"])
def test_a_killed_pod_loses_nothing(cluster: Cluster, repository: str, name: str) -> None:
    cluster.start_load(repository)
    time.sleep(PAUSE_SECONDS)
    for _ in range(2):
        kill(cluster, name)
        time.sleep(2 * PAUSE_SECONDS)
    load = cluster.end_load(repository)
    judge(load, is_broken_allowed=name == "gateway", is_unknown_allowed=True)


def test_a_rollout_to_other_images_loses_nothing(cluster: Cluster, repository: str) -> None:
    """All services at once get images of the next version; slow uploads that run meanwhile are answered."""
    cluster.start_load(repository)
    time.sleep(PAUSE_SECONDS)
    for service in SERVICES:
        image = f"tarn=localhost/tarn/{service}:{NEXT}"
        cluster.kubectl("set", "image", f"deployment/{service}", image)
    cluster.until_ready(*SERVICES)
    time.sleep(2 * PAUSE_SECONDS)
    load = cluster.end_load(repository)
    judge(load, is_broken_allowed=False)
    slow = [op for op in load.ops if op["kind"] == "put" and op["key"].startswith("slow/")]
    assert len(slow) > 4
    assert [op for op in slow if op["outcome"] != "ok"] == []
    for service in SERVICES:
        assert set(cluster.images_of(service)) == {f"localhost/tarn/{service}:{NEXT}"}


def test_graveler_scales_up_and_down(cluster: Cluster, repository: str) -> None:
    cluster.start_load(repository)
    cluster.kubectl("scale", "deployment/graveler", "--replicas=4")
    cluster.until_ready("graveler")
    time.sleep(SPREAD_SECONDS)
    pods = cluster.pods_of("graveler")
    assert len(pods) == 4
    before = {pod: cluster.served_calls(pod) for pod in pods}
    time.sleep(SPREAD_SECONDS)
    served = {pod: cluster.served_calls(pod) - before[pod] for pod in pods}
    sys.stderr.write(f"\ncalls of each replica in {SPREAD_SECONDS} s: {sorted(served.values())}\n")
    cluster.kubectl("scale", "deployment/graveler", "--replicas=2")
    cluster.until_ready("graveler")
    deadline = time.monotonic() + 120
    while len(cluster.pods_of("graveler")) != 2:
        assert time.monotonic() < deadline
        time.sleep(1)
    time.sleep(SPREAD_SECONDS)
    judge(cluster.end_load(repository), is_broken_allowed=False)
    assert min(served.values()) > sum(served.values()) / 20, "a replica gets no load"


@pytest.mark.parametrize(
    ("is_client", "host", "port", "is_open"),
    [
        (True, "auth", 8101, True),
        (True, "graveler", 8102, True),
        (True, "gateway", 8000, True),
        (True, "api", 8001, True),
        (True, "compactor", 8103, True),
        (True, "cassandra", 9042, False),
        (True, "bucket", 8000, False),
        (False, "auth", 8101, False),
        (False, "graveler", 8102, False),
        (False, "gateway", 8000, False),
        (False, "api", 8001, False),
        (False, "cassandra", 9042, False),
    ],
)
def test_the_network_allows_only_the_arrows(
    cluster: Cluster, is_client: bool, host: str, port: int, is_open: bool
) -> None:
    found = cluster.run("network", connecting(host, port), is_client=is_client)
    assert found.split() == ["open" if is_open else "closed"]


def connecting(host: str, port: int) -> str:
    """Returns a shell command that prints `open` or `closed`.

    The name is resolved first, so that `closed` does not mean a name that is unknown.
    """
    code = (
        "import socket as s\n"
        f"(*_, address), *_ = s.getaddrinfo('{host}', {port}, type=s.SOCK_STREAM)\n"
        "try:\n"
        "    s.create_connection(address, 5)\n"
        "    print('open')\n"
        "except OSError:\n"
        "    print('closed')\n"
    )
    return f'python3 -c "{code}"'


@pytest.mark.parametrize(
    ("namespace", "host", "port", "is_open"),
    [
        (ELSEWHERE, "gateway", 8000, True),
        (ELSEWHERE, "api", 8001, True),
        (ELSEWHERE, "auth", 8101, False),
        (ELSEWHERE, "graveler", 8102, False),
        (JOBS_NAMESPACE, "gateway", 8000, True),
        (JOBS_NAMESPACE, "api", 8001, True),
        (JOBS_NAMESPACE, "auth", 8101, True),
        (JOBS_NAMESPACE, "graveler", 8102, True),
        (JOBS_NAMESPACE, "compactor", 8103, False),
        (JOBS_NAMESPACE, "cassandra", 9042, False),
        (JOBS_NAMESPACE, "bucket", 8000, False),
    ],
)
def test_pods_of_other_namespaces_reach_only_what_they_need(
    cluster: Cluster, namespace: str, host: str, port: int, is_open: bool
) -> None:
    """All with the label of clients, which counts in Tarn's own namespace and in that of jobs."""
    command = connecting(f"{host}.{NAMESPACE}.svc", port)
    found = cluster.run_elsewhere("network", command, namespace=namespace)
    assert found.split() == ["open" if is_open else "closed"]


@pytest.mark.parametrize(
    ("name", "code"), [*((each, 0) for each in SERVICES), ("cassandra", 143), ("bucket", 0)]
)
def test_process_1_drains_on_sigterm(
    cluster: Cluster, repository: str, name: str, code: int
) -> None:
    """The container ends by itself, long before the limit of its pod, and starts again; nothing is lost."""
    cluster.start_load(repository)
    time.sleep(PAUSE_SECONDS)
    pod = cluster.pods_of(name)[0]
    restarts = cluster.container_of(pod)["restartCount"]
    cluster.execute(pod, "/bin/sh", "-c", "kill -TERM 1")
    deadline = time.monotonic() + 120
    while (now := cluster.container_of(pod))["restartCount"] == restarts or not now["ready"]:
        assert time.monotonic() < deadline, json.dumps(now)
        time.sleep(1)
    assert now["lastState"]["terminated"]["exitCode"] == code
    if name in SERVICES:
        text = cluster.kubectl("logs", pod, "--previous").splitlines()
        lines = [json.loads(line) for line in text if line.startswith("{")]
        events = [line["event"] for line in lines if "audit" not in line]
        assert "stopping" in events
        assert events[-1] == "stopped"
    # A store that ends leaves requests without an answer; a service answers them first.
    load = cluster.end_load(repository)
    judge(load, is_broken_allowed=name == "gateway", is_unknown_allowed=name in STORES)


def run_cron_job(cluster: Cluster, name: str) -> str:
    """Runs a CronJob now; returns the log of all its containers. The Job must succeed."""
    job = f"{name}-now"
    cluster.kubectl("delete", "job", job, "--ignore-not-found")
    cluster.kubectl("create", "job", job, f"--from=cronjob/{name}")
    began = time.monotonic()
    while not (end := cluster.end_of_job(job)):
        assert time.monotonic() < began + 600, f"{job} does not end"
        time.sleep(1)
    log = cluster.kubectl("logs", f"job/{job}", "--all-containers")
    assert end == "Complete", log[-4000:]
    return log


def test_garbage_is_collected_in_the_cluster(cluster: Cluster) -> None:
    """A run of the CronJob marks every repository. Nothing is a day old, so nothing is a candidate."""
    log = run_cron_job(cluster, "collection")
    assert len(re.findall(r"^did +mark$", log, flags=re.MULTILINE)) > 0, log[-4000:]


def test_backups_are_made_and_verified_in_the_cluster(cluster: Cluster, repository: str) -> None:
    """The second CronJob restores the backup of the first into a temporary store, beside writes that go on."""
    cluster.start_load(repository)
    time.sleep(PAUSE_SECONDS)
    made = run_cron_job(cluster, "backup")
    verified = run_cron_job(cluster, "backup-check")
    sys.stderr.write(f"\n{made}\n{verified}\n")
    load = cluster.end_load(repository)
    judge(load)
    assert load.failures == {}


@pytest.mark.skipif(not PROMETHEUS, reason="TARN_K8S_PROMETHEUS names an image of Prometheus")
def test_prometheus_answers_every_query_of_the_dashboard(cluster: Cluster, repository: str) -> None:
    """It finds every pod by the headless Service. A pod with Grafana's label asks, as Grafana would."""
    cluster.deploy_prometheus(PROMETHEUS)
    cluster.start_load(repository)
    time.sleep(SCRAPED_SECONDS)
    panels = expressions_of_the_dashboard()
    answers = cluster.ask_prometheus([each for some in panels.values() for each in some])
    judge(cluster.end_load(repository))
    pods = sum(len(cluster.pods_of(service)) for service in SERVICES)
    assert Counter(answers.targets) == {"up": pods}
    assert len(answers.rules) > 10
    assert answers.refused == {}
    empty = {title for title, some in panels.items() if not all(map(answers.found.get, some))}
    assert empty & BUSY_PANELS == set()
    (phases,) = panels["Which phase of a commit is slow"]
    found = {each["phase"] for each in answers.found[phases]}
    assert {"seal", "build", "publish"} <= found


def expressions_of_the_dashboard() -> dict[str, list[str]]:
    """Returns the queries of each panel, as Grafana sends them."""
    dashboard = json.loads((ROOT / "deploy/telemetry/dashboard.json").read_text())
    rows = dashboard["panels"]
    found = [each for row in rows for each in (row, *row.get("panels", ()))]
    return {
        panel["title"]: [
            target["expr"].replace("$job", ".*").replace("$__rate_interval", "1m")
            for target in panel["targets"]
        ]
        for panel in found
        if panel.get("targets")
    }
