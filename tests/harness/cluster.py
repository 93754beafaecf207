"""Tarn on a real Kubernetes cluster, for `tests/cluster`: kubectl, pods that use Tarn, and their histories."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from tests.support.check.checker import check
from tests.support.check.history import NEVER, History, Op, OpKind, Outcome

__all__ = [
    "ELSEWHERE",
    "ENDPOINT",
    "JOBS",
    "JOBS_NAMESPACE",
    "NAMESPACE",
    "ROOT",
    "SERVICES",
    "STORES",
    "VERSION",
    "Cluster",
    "Load",
    "Queried",
]

ROOT = Path(__file__).parents[2]
NAMESPACE = "tarn"
JOBS_NAMESPACE = "tarn-jobs"
ELSEWHERE = "tarn-elsewhere"
"""A namespace without network policies, of pods that are not Tarn's."""
SERVICES = ("auth", "graveler", "gateway", "api", "compactor")
STORES = ("cassandra", "bucket")
VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
TOOLS = f"localhost/tarn/tools:{VERSION}"
ENDPOINT = f"https://gateway.{NAMESPACE}.svc:8000"
S3_CA = "/etc/tarn/s3/ca.crt"
JOBS = ROOT / "deploy" / "k8s" / "jobs"
CLIENT = MappingProxyType({"tarn/client": "true"})
"""Labels of pods that may call the services."""
READY_SECONDS = 600
LOAD_SECONDS_MAX = 1200
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


@dataclass
class Load:
    """The answers that a load saw.

    Attributes:
        ops: the operations, as the pod wrote them.
        quiet_at: when the quiet end began.
        log: ids of the commits of the branch at the end.
    """

    ops: list[dict[str, Any]] = field(default_factory=list)
    quiet_at: int = 0
    log: list[str] = field(default_factory=list)

    @staticmethod
    def of(lines: Iterable[str]) -> Load:
        """Reads the output of a pod."""
        load = Load()
        for line in lines:
            record = json.loads(line)
            if "quiet" in record:
                load.quiet_at = record["quiet"]
            elif "log" in record:
                load.log = [each["commit"] for each in json.loads(record["log"])]
            else:
                load.ops.append(record)
        assert load.log, "the load did not end"
        return load

    @property
    def counts(self) -> Counter[str]:
        """Number of operations by kind and outcome, such as `put ok`."""
        return Counter(f"{op['kind']} {op['outcome']}" for op in self.ops)

    @property
    def failures(self) -> Counter[str]:
        """Number of the requests of S3 clients without an acknowledgement, by the reason."""
        return self._failures(is_commit=False)

    @property
    def commit_failures(self) -> Counter[str]:
        """Number of the commits without an acknowledgement, by the text of the error."""
        return self._failures(is_commit=True)

    def _failures(self, *, is_commit: bool) -> Counter[str]:
        return Counter(
            op["note"]
            for op in self.ops
            if op["outcome"] != "ok" and (op["kind"] == "commit") is is_commit
        )

    def unexpected_commits(self, *, is_unknown_allowed: bool) -> list[str]:
        """Returns the failures of commits that no fault explains.

        A commit may be refused because a service or a store is away, and may find nothing to commit if no write came
        through.

        Args:
            is_unknown_allowed: whether a process was killed, which leaves the outcome of its calls unknown.
        """
        allowed = _REFUSALS | (_UNKNOWN if is_unknown_allowed else set())
        return [note for note in self.commit_failures if _reason_of(note) not in allowed]

    def history(self) -> History:
        """Returns the history of the load. A commit is a seal at an unknown time, which allows more than happened."""
        created = Op(0, "admin", OpKind.CREATE, "main", None, None, 0, 1, 1, Outcome.OK)
        history = History([created])
        for number, op in enumerate(sorted(self.ops, key=lambda each: int(each["inv"])), 1):
            kind = OpKind(op["kind"])
            is_ok = op["outcome"] == "ok" and kind is not OpKind.COMMIT
            history.ops.append(
                Op(
                    number,
                    op["proc"],
                    kind,
                    "main",
                    op["key"],
                    op["value"],
                    op["inv"],
                    ret=op["end"] if is_ok else NEVER,
                    end=op["end"],
                    outcome=Outcome.OK if is_ok else Outcome.INFO,
                    note=op["note"],
                )
            )
            history.clock = max(history.clock, op["end"])
        history.quiet_at = self.quiet_at
        return history

    def problems(self) -> list[str]:
        """Returns what no server may answer: lost or stale values, lost commits, unexpected errors."""
        found = [str(each) for each in check(self.history()).violations]
        found += [f"unexpected answer: {op}" for op in self.ops if op["outcome"] == "problem"]
        for op in self.ops:
            if op["kind"] == "commit" and op["outcome"] == "ok":
                made = json.loads(op["note"])["commit"]
                if made not in self.log:
                    found.append(f"commit {made} was acknowledged and is not in the log")
        return found


@dataclass(frozen=True)
class Queried:
    """What Prometheus answered.

    Attributes:
        targets: `up` or `down` for each scraped pod.
        rules: names of the alerts.
        found: the labels of the series of each query that it understood.
        refused: the error of each query that it did not.
    """

    targets: list[str]
    rules: list[str]
    found: dict[str, list[dict[str, str]]]
    refused: dict[str, str]


_REFUSALS = {"UNAVAILABLE", "OVERLOADED", "NOTHING_TO_COMMIT"}
_UNKNOWN = {"OUTCOME_UNKNOWN", "DEADLINE_EXCEEDED"}


def _reason_of(note: str) -> str:
    """Returns the reason in what a failed `tarn --json` wrote to standard error; remarks may stand before it."""
    last = (note.strip().splitlines() or [""])[-1]
    if not last.startswith("{"):
        return ""
    return str(json.loads(last).get("error", ""))


class Cluster:
    """A namespace of the cluster that kubectl reaches; `KUBECTL` names another kubectl."""

    def __init__(self, namespace: str = NAMESPACE) -> None:
        self._kubectl = shlex.split(os.environ.get("KUBECTL", "kubectl"))
        self._namespace = namespace

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 120) -> str:
        """Runs kubectl in the namespace, which must succeed; returns its output."""
        command = [*self._kubectl, "-n", self._namespace, *arguments]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def deploy(self) -> None:
        """Applies the test overlay and the namespace of jobs, and waits until everything is ready."""
        self.script("secrets")
        self._provide_volumes()
        self.kubectl("delete", "job", "first-admin", "--ignore-not-found")
        self.kubectl("apply", "-k", str(ROOT / "deploy/k8s/overlays/test"))
        limit = f"--timeout={READY_SECONDS}s"
        self.kubectl(
            *("wait", "--for=condition=Complete", "job/first-admin", limit),
            timeout=READY_SECONDS + 10,
        )
        self.until_ready(*SERVICES)
        # Its objects lie in two namespaces, so none is named.
        subprocess.run([*self._kubectl, "apply", "-k", str(JOBS / "namespace")], check=True)

    def script(self, name: str) -> None:
        """Runs a script of `deploy/k8s`, which must succeed."""
        command = [str(ROOT / "deploy/k8s" / name), NAMESPACE, JOBS_NAMESPACE]
        subprocess.run(
            command, check=True, env={**os.environ, "KUBECTL": shlex.join(self._kubectl)}
        )

    @contextmanager
    def shell(self) -> Iterator[None]:
        """Keeps the administrator's command line, as the README starts it: `tarn` in `job/shell`."""
        self.kubectl("delete", "job", "shell", "--ignore-not-found")
        self.kubectl("apply", "-k", str(JOBS / "shell"))
        ready = ("--for=jsonpath={.status.ready}=1", "job/shell", "--timeout=120s")
        self.kubectl("wait", *ready, timeout=130)
        try:
            yield
        finally:
            self.kubectl("delete", "job", "shell")

    def prepare_jobs(self) -> None:
        """Makes the user of jobs with its Secret, and the repository of the examples, as the README does."""
        with self.shell():
            self.script("jobs-user")
            command = ("repo", "create", "lake", "--if-absent")
            self.execute("job/shell", "tarn", *command)

    def _provide_volumes(self) -> None:
        """Makes volumes on a cluster that makes none by itself: in TARN_K8S_VOLUMES, a folder of its only node."""
        classes = json.loads(self.kubectl("get", "storageclass", "-o", "json"))["items"]
        notes = [each["metadata"].get("annotations", {}) for each in classes]
        if any(each.get(_DEFAULT_CLASS) == "true" for each in notes):
            return
        place = os.environ.get("TARN_K8S_VOLUMES")
        assert place, "the cluster has no default StorageClass; see deploy/k8s/README.md"
        (node,) = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        hostname = node["metadata"]["labels"]["kubernetes.io/hostname"]
        for store in STORES:
            folder = Path(place) / f"{NAMESPACE}-{store}"
            folder.mkdir(parents=True, exist_ok=True)
            if not self.kubectl("get", "pv", f"{NAMESPACE}-{store}", "--ignore-not-found"):
                assert not any(folder.iterdir()), f"{folder} has the data of another cluster"
            self.kubectl("apply", "-f", "-", stdin=json.dumps(_volume(store, folder, hostname)))

    def until_ready(self, *names: str) -> None:
        """Waits until workloads have all their replicas, of the newest version."""
        for name in names:
            kind = "statefulset" if name in STORES else "deployment"
            limit = f"--timeout={READY_SECONDS}s"
            self.kubectl(
                *("rollout", "status", f"{kind}/{name}", limit), timeout=READY_SECONDS + 10
            )

    def pods_of(self, service: str) -> list[str]:
        """Returns the names of a service's pods that run and do not stop."""
        return self.pods_with(f"app.kubernetes.io/name={service}")

    def pods_with(self, label: str) -> list[str]:
        """Returns the names of the pods with a label that run and do not stop."""
        found = json.loads(self.kubectl("get", "pods", "-l", label, "-o", "json"))["items"]
        return [
            each["metadata"]["name"]
            for each in found
            if "deletionTimestamp" not in each["metadata"] and each["status"]["phase"] == "Running"
        ]

    def end_of_job(self, name: str) -> str:
        """Returns `Complete` or `Failed`; empty while a Job runs."""
        status = json.loads(self.kubectl("get", "job", name, "-o", "json"))["status"]
        ends = [each["type"] for each in status.get("conditions", ()) if each["status"] == "True"]
        return next((end for end in ("Complete", "Failed") if end in ends), "")

    def uid_of(self, pod: str) -> str:
        """Returns the uid of a pod; empty if it is gone. A pod of a StatefulSet keeps its name."""
        path = "jsonpath={.metadata.uid}"
        return self.kubectl("get", "pod", pod, "--ignore-not-found", "-o", path)

    def container_of(self, pod: str) -> dict[str, Any]:
        """Returns the status of a pod's only container."""
        found = json.loads(self.kubectl("get", "pod", pod, "-o", "json"))
        (status,) = found["status"]["containerStatuses"]
        return dict(status)

    def images_of(self, service: str) -> list[str]:
        """Returns the images of a service's running pods."""
        return [str(self.container_of(pod)["image"]) for pod in self.pods_of(service)]

    def start(
        self, name: str, command: Sequence[str], *, labels: Mapping[str, str] = CLIENT
    ) -> None:
        """Starts a pod with the image `tools`, the first administrator's key and the scripts of a load."""
        self.kubectl("delete", "pod", name, "--ignore-not-found", "--grace-period=1")
        script = (Path(__file__).parent / "cluster_load.py").read_text()
        scripts = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "cluster-test"},
            "data": {"cluster_load.py": script},
        }
        self.kubectl("apply", "-f", "-", stdin=json.dumps(scripts))
        self.kubectl("apply", "-f", "-", stdin=json.dumps(self._pod(name, command, labels)))

    def end(self, name: str, timeout: float = 400) -> str:
        """Waits for the end of a pod, which must succeed; returns its output."""
        deadline = time.monotonic() + timeout
        while True:
            phase = self.kubectl("get", "pod", name, "-o", "jsonpath={.status.phase}")
            if phase in ("Succeeded", "Failed"):
                output = self.kubectl("logs", name)
                assert phase == "Succeeded", output[-4000:]
                return output
            assert time.monotonic() < deadline, f"{name} is still {phase}"
            time.sleep(1)

    def run(self, name: str, command: str, *, is_client: bool = True) -> str:
        """Runs a shell command in a pod; returns its output."""
        labels = CLIENT if is_client else {}
        self.start(name, ["/bin/sh", "-ec", command], labels=labels)
        return self.end(name)

    def run_elsewhere(self, name: str, command: str, *, namespace: str = ELSEWHERE) -> str:
        """Runs a shell command in a pod of another namespace; returns its output. It has the label of clients, and no
        Secret of Tarn."""
        pod = self._pod(name, ["/bin/sh", "-ec", command], CLIENT)
        pod["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}}]
        (container,) = pod["spec"]["containers"]
        container["env"] = []
        container["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}]
        if namespace == ELSEWHERE:
            found = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}}
            self.kubectl("apply", "-f", "-", stdin=json.dumps(found))
        elsewhere = Cluster(namespace)
        elsewhere.kubectl("delete", "pod", name, "--ignore-not-found", "--grace-period=1")
        elsewhere.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
        return elsewhere.end(name)

    def execute(self, pod: str, *command: str) -> str:
        """Runs a command in a running container; returns its output."""
        return self.kubectl("exec", pod, "--", *command)

    def may(self, account: str, verb: str, resource: str, namespace: str) -> bool:
        """Returns whether the cluster lets an account do something in a namespace."""
        command = [
            *self._kubectl,
            "auth",
            "can-i",
            verb,
            resource,
            "-n",
            namespace,
            "--as",
            account,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout.strip() in ("yes", "no"), done.stderr
        return done.stdout.strip() == "yes"

    def served_calls(self, pod: str) -> int:
        """Returns how many calls a replica has served, from its metrics."""
        port = 8110
        code = (
            "import urllib.request as u; "
            f"print(u.urlopen('http://127.0.0.1:{port}/metrics', timeout=10).read().decode())"
        )
        page = self.execute(pod, "python3", "-c", code)
        return sum(
            int(float(line.rpartition(" ")[2]))
            for line in page.splitlines()
            if line.startswith("tarn_rpc_duration_seconds_count")
        )

    def deploy_prometheus(self, image: str) -> None:
        """Applies the Prometheus of `components/monitoring`, with another image, and waits until it is ready."""
        overlay = ROOT / "deploy/k8s/overlays/dev-monitoring"
        rendered = yaml.safe_load_all(self.kubectl("kustomize", str(overlay)))
        names = re.compile(r"(prometheus|telemetry)(-.+)?")
        wanted = [
            each
            for each in rendered
            if names.fullmatch(each["metadata"]["name"])
            or (each["kind"], each["metadata"]["name"]) == ("NetworkPolicy", "grafana")
        ]
        (pod,) = (each["spec"]["template"] for each in wanted if each["kind"] == "Deployment")
        (container,) = pod["spec"]["containers"]
        container["image"] = image
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(wanted))
        self.until_ready("prometheus")

    def ask_prometheus(self, queries: Sequence[str]) -> Queried:
        """Asks from a pod that the policies take for Grafana."""
        code = (
            "import json, sys, urllib.error, urllib.parse, urllib.request\n"
            "def get(path):\n"
            "    try:\n"
            "        with urllib.request.urlopen('http://prometheus:9090/api/v1/' + path, timeout=30) as answer:\n"
            "            return json.load(answer)['data']\n"
            "    except urllib.error.HTTPError as error:\n"
            "        return error.read().decode()\n"
            "def query(text):\n"
            "    return get('query?' + urllib.parse.urlencode({'query': text}))\n"
            "print(json.dumps([get('targets'), get('rules'), {each: query(each) for each in sys.argv[1:]}]))\n"
        )
        labels = {"app.kubernetes.io/name": "grafana"}
        self.start("as-grafana", ["python3", "-c", code, *queries], labels=labels)
        targets, rules, answers = json.loads(self.end("as-grafana"))
        return Queried(
            [each["health"] for each in targets["activeTargets"]],
            [each["name"] for group in rules["groups"] for each in group["rules"]],
            {
                text: [each["metric"] for each in answer["result"]]
                for text, answer in answers.items()
                if not isinstance(answer, str)
            },
            {text: answer for text, answer in answers.items() if isinstance(answer, str)},
        )

    def start_load(self, repository: str) -> None:
        """Starts a load on the branch main of a repository."""
        script = "/opt/load/cluster_load.py"
        command = ["python3", script, ENDPOINT, repository, str(LOAD_SECONDS_MAX)]
        self.start(f"load-{repository}", command)
        place = f"pod/load-{repository}"
        self.kubectl("wait", "--for=condition=Ready", place, "--timeout=120s", timeout=130)

    def end_load(self, repository: str) -> Load:
        """Asks a load to end, and waits for it; returns what it saw."""
        self.execute(f"load-{repository}", "touch", "/tmp/stop")
        return Load.of(self.end(f"load-{repository}").splitlines())

    def _pod(self, name: str, command: Sequence[str], labels: Mapping[str, str]) -> dict[str, Any]:
        admin = {
            "AWS_ACCESS_KEY_ID": "access_key_id",
            "AWS_SECRET_ACCESS_KEY": "secret_access_key",
            "TARN_ACCESS_KEY_ID": "access_key_id",
            "TARN_SECRET_ACCESS_KEY": "secret_access_key",
        }
        variables: list[dict[str, Any]] = [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": "tarn-admin", "key": key}}}
            for name, key in admin.items()
        ]
        plain = {"TARN_SERVER": "graveler:8102", "TARN_AUTH_SERVER": "auth:8101"}
        plain |= {"TARN_ENDPOINT": ENDPOINT, "TARN_ENDPOINT_CA": S3_CA, "AWS_CA_BUNDLE": S3_CA}
        plain |= {f"TARN_RPC_TLS_{part}": f"/etc/tarn/tls/{file}" for part, file in _TLS.items()}
        variables += [{"name": name, "value": value} for name, value in plain.items()]
        mounts = {
            "tmp": "/tmp",
            "tls": "/etc/tarn/tls",
            "s3": str(Path(S3_CA).parent),
            "scripts": "/opt/load",
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": dict(labels)},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 65532,
                    "runAsGroup": 65532,
                    "fsGroup": 65532,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "tarn",
                        "image": TOOLS,
                        "command": list(command),
                        "env": variables,
                        "resources": {
                            "requests": {"cpu": "10m", "memory": "64Mi"},
                            "limits": {"cpu": "2", "memory": "512Mi"},
                        },
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "readOnlyRootFilesystem": True,
                            "capabilities": {"drop": ["ALL"]},
                        },
                        "volumeMounts": [
                            {"name": name, "mountPath": path} for name, path in mounts.items()
                        ],
                    }
                ],
                "volumes": [
                    {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
                    {"name": "tls", "secret": {"secretName": "tarn-tls-client"}},
                    {"name": "s3", "configMap": {"name": "tarn-s3-ca"}},
                    {"name": "scripts", "configMap": {"name": "cluster-test"}},
                ],
            },
        }


_TLS = {"CA": "ca.crt", "CERT": "tls.crt", "KEY": "tls.key"}


def _volume(store: str, folder: Path, hostname: str) -> dict[str, Any]:
    """Returns a PersistentVolume in a folder of a node, for the one claim of a store."""
    rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": [hostname]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{NAMESPACE}-{store}"},
        "spec": {
            "capacity": {"storage": "8Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": NAMESPACE, "name": f"data-{store}-0"},
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}},
        },
    }
