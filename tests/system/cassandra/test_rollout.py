"""The last release and this one serve one installation on a real node, as for the length of a rollout."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from cassandra_proxies import kv_url
from chaos.clients import Habits
from chaos.fault_schedule import FaultProfile
from chaos.node import Node
from chaos.run import Plan, play
from chaos.s3 import Target
from last_release import last_release
from slowness import scaled
from tests.support.servers.cassandra_nodes import CassandraNodes

pytestmark = [pytest.mark.cassandra, pytest.mark.long, pytest.mark.timeout(600)]

KEYSPACE = "rollout"
PATIENCE_SECONDS = scaled(10.0)
"""Longer than a lease."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """A node of each release on one store and one folder of blocks."""

    url: str
    old: Node
    new: Node


@pytest.fixture
def rollout(cassandra_nodes: CassandraNodes, tmp_path: Path) -> Iterator[Rollout]:
    last = last_release(tmp_path / "release")
    url = kv_url(cassandra_nodes, KEYSPACE)
    shared = {
        "TARN_BLOCKSTORE_LOCAL_PATH": str(tmp_path / "blocks"),
        "TARN_GRAVELER_DROP_DELAY": "4s",
        "TARN_GRAVELER_CLEANUP_POLL": "500ms",
    }
    nodes = []
    for name, code in (("old", last.environment), ("new", {})):
        data = tmp_path / name / "data"
        data.mkdir(parents=True, mode=0o700)
        (data / "secret").write_text("5a" * 32)
        (data / "secret").chmod(0o600)
        options = ("--workers", "1", "--kv", url)
        nodes.append(Node(tmp_path / name, options, {**shared, **code}))
    old, new = nodes
    old.start()
    try:
        new.start(is_first=False)
        try:
            yield Rollout(url, old, new)
        finally:
            new.stop()
    finally:
        if old.tarn.supervisor.poll() is None:
            old.stop()


async def test_both_releases_serve_until_the_level_is_raised(rollout: Rollout) -> None:
    old, new, url = rollout.old, rollout.new, rollout.url
    old.tarn.ok("repo", "create", "chaos")
    old.tarn.ok("branch", "create", "chaos/dev")
    target = Target(
        (old.tarn.endpoint, new.tarn.endpoint),
        (old.tarn.server, new.tarn.server),
        old.tarn.auth_server,
        old.tarn.access_key_id,
        old.tarn.secret_access_key,
    )
    # Writers, readers and committers at both; at the end a worker of the new release is killed.
    faults = FaultProfile(pause_seconds=(9, 9), kinds=(("kill", 1),))
    plan = Plan(
        seed=1,
        seconds=8,
        clients=4,
        drop_seconds=4,
        habits=Habits(think_seconds=0.03),
        profile=faults,
    )
    run = await play(plan, target, [new])
    assert [str(violation) for violation in run.violations] == []
    assert any(each.is_ok and each.kind == "commit" for each in run.ledger.history.ops)

    status = old.tarn.ok("--json", "upgrade", "status", "--kv", url).json
    assert status["level"] == 1
    # Those of the new release only; rows of the killed worker and of the node before its restart expire later.
    assert {each["service"] for each in status["replicas"]} == {"node"}
    raised = old.tarn.ok("--json", "upgrade", "finish", "--kv", url).json
    assert (raised["level_before"], raised["level"]) == (1, 2)

    key = (old.tarn.access_key_id, old.tarn.secret_access_key)
    assert serves_writes(new, key)
    assert not serves_writes(old, key), "the last release writes at a level that it does not know"
    await old.crash()  # its log is full of the refusals, which it takes for damage


def serves_writes(node: Node, key: tuple[str, str]) -> bool:
    """Whether a node takes a write within a time that a killed worker needs to start again."""
    tarn = replace(node.tarn, access_key_id=key[0], secret_access_key=key[1])
    client = tarn.s3(retries={"mode": "standard", "max_attempts": 1})
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            client.put_object(Bucket="chaos", Key="main/after", Body=b"after")
        except (BotoCoreError, ClientError):
            time.sleep(1)
        else:
            return True
    return False
