"""Tarn on the Kubernetes cluster that kubectl reaches (`make k8s-test`): no acknowledged write is lost.

The images are on its nodes (`make images`). The dev overlay is applied, and used from inside the cluster by pods of its
own. The tests run in this order, on one installation.
"""

from __future__ import annotations

import os
import re
import sys
import time

import pytest
from cluster import SERVICES, Cluster, Load

pytestmark = [
    pytest.mark.skipif("TARN_K8S_TEST" not in os.environ, reason="make k8s-test runs it"),
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("cluster"),
]
LOST = re.compile(r"50[0-9] .*|.*(Connection|Timeout|Endpoint|Closed|Incomplete).*")
"""What a client may see while pods end: an answer 503, or a connection that broke."""


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    found = Cluster()
    found.deploy()
    return found


@pytest.fixture
def repository(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A new repository for each test."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:40].strip("-")
    name += f"-{os.urandom(3).hex()}"
    cluster.run("create", f"tarn repo create {name}")
    return name


def judge(load: Load) -> None:
    """Prints what happened; fails if a promise was broken."""
    failed = sum(load.failures.values())
    counts = f"{sum(load.counts.values())} operations, {failed} failed: {dict(load.failures)}"
    sys.stderr.write(f"\n{counts}\n{dict(load.counts)}, {len(load.log)} commits\n")
    assert load.problems() == []
    assert load.counts["put ok"] > 20
    assert load.counts["commit ok"] > 0
    assert [note for note in load.failures if not LOST.fullmatch(note)] == []


def test_everything_works_inside_the_cluster(cluster: Cluster, repository: str) -> None:
    cluster.start_load(repository, 15)
    load = cluster.end_load(repository)
    judge(load)
    assert load.failures == {}


def test_a_killed_pod_of_each_service_loses_nothing(cluster: Cluster, repository: str) -> None:
    cluster.start_load(repository, 75)
    for service in SERVICES:
        time.sleep(5)
        victim = cluster.pods_of(service)[0]
        cluster.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
        cluster.until_ready(service)
    judge(cluster.end_load(repository))


def test_a_rollout_of_everything_loses_nothing(cluster: Cluster, repository: str) -> None:
    cluster.start_load(repository, 90)
    before = {service: set(cluster.pods_of(service)) for service in SERVICES}
    for service in SERVICES:
        cluster.kubectl("rollout", "restart", f"deployment/{service}")
    cluster.until_ready(*SERVICES)
    judge(cluster.end_load(repository))
    for service in SERVICES:
        assert not before[service] & set(cluster.pods_of(service))


def test_graveler_scales_up_and_down(cluster: Cluster, repository: str) -> None:
    cluster.start_load(repository, 75)
    for count in (4, 2):
        cluster.kubectl("scale", "deployment/graveler", f"--replicas={count}")
        cluster.until_ready("graveler")
        time.sleep(20)  # callers look the name up again every 8 to 15 s
        if count == 4:
            logs = [cluster.kubectl("logs", pod) for pod in cluster.pods_of("graveler")]
            assert all('"event": "rpc"' in log for log in logs), "a replica gets no calls"
    judge(cluster.end_load(repository))


@pytest.mark.parametrize(
    ("is_client", "host", "port", "is_open"),
    [
        (True, "auth", 8101, True),
        (True, "graveler", 8102, True),
        (True, "cassandra", 9042, False),
        (True, "bucket", 8000, False),
        (False, "auth", 8101, False),
        (False, "graveler", 8102, False),
        (False, "gateway", 8000, False),
    ],
)
def test_the_network_allows_only_the_arrows(
    cluster: Cluster, is_client: bool, host: str, port: int, is_open: bool
) -> None:
    code = f"import socket; socket.create_connection(('{host}', {port}), 5)"
    command = f'python3 -c "{code}" && echo open || echo closed'
    found = cluster.run("network", command, is_client=is_client)
    assert found.splitlines()[-1] == ("open" if is_open else "closed")


def test_a_pod_ends_in_order(cluster: Cluster) -> None:
    """Process 1 gets SIGTERM, and stops in order."""
    pod = cluster.pods_of("compactor")[0]
    cluster.kubectl("delete", "pod", pod, "--wait=false")
    log = ""
    for _ in range(120):
        try:
            log = cluster.kubectl("logs", pod) or log
        except AssertionError:
            break
        time.sleep(0.5)
    assert '"event": "stopping"' in log
    cluster.until_ready("compactor")
