"""The drill on a real node: tables are emptied under load, `tarn rebuild` into a new keyspace, checker."""

from __future__ import annotations

import json
import random
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cassandra_proxies import kv_url
from running_tarn import RunningTarn, running_tarn, set_up
from slowness import scaled
from store_loss import Writer, days_work, findings, kill, shown, start_again, under_load
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.kv.cassandra import CassandraLimits, CassandraSettings
from tarn.kv.cassandra.cluster.connection import connect
from tarn.rpc.process.system import SystemClock

pytestmark = pytest.mark.cassandra

CONFIGURATION = "journal:\n  enabled: true\n  interval: 1s\n"
KEYSPACE = "rebuilt"
KEYS = 12
PASSES = 3
DRAIN_S = scaled(60)
LOAD_S_MAX = 2.0
LOST_S = 2.0
"""How long writers and the drain go on over empty tables."""


def empty(nodes: CassandraNodes) -> None:
    """Empties all tables of the keyspace, while Tarn uses them."""
    settings = CassandraSettings(nodes.contact_points, nodes.LOCAL_DATACENTER, KEYSPACE, 1)
    cluster, session = connect(settings, CassandraLimits())
    try:
        cql = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"
        for row in session.execute(cql, (KEYSPACE,)):
            session.execute(f"TRUNCATE {KEYSPACE}.{row[0]}", timeout=60.0)
    finally:
        cluster.shutdown()


def passes(tarn: RunningTarn, lake: str) -> int:
    """How many files of passes the journal of a repository has."""
    return len([*tarn.data.glob(f"**/{lake}*/_tarn/journal/*/*-*-*/*.parquet")])


def drained_under_load(tarn: RunningTarn, lake: str) -> None:
    """Returns when the drain has seen some of the load."""
    before, end = passes(tarn, lake), time.monotonic() + DRAIN_S
    while passes(tarn, lake) < before + PASSES:
        assert time.monotonic() < end, f"the journal of {lake} is not drained:\n{tarn.tail()}"
        time.sleep(0.1)


@pytest.mark.timeout(600)
def test_tables_that_are_emptied_under_load_are_rebuilt(
    tmp_path: Path, cassandra_nodes: CassandraNodes
) -> None:
    """All that was acknowledged before the time that the report tells; nothing that was never written."""
    config = tmp_path / "tarn.yaml"
    config.write_text(CONFIGURATION)
    kv = ("--kv", kv_url(cassandra_nodes, KEYSPACE))
    new_kv = ("--kv", kv[1] + "_new")
    with running_tarn(tmp_path, "single", "--config", str(config), *kv) as tarn:
        day, lake = tarn.new_repository(), tarn.new_repository()
        days_work(tarn, day)
        before = shown(tarn, day)
        tarn.ok("branch", "create", f"{lake}/dev", "--from", "main")
        once = {"retries": {"mode": "standard", "max_attempts": 1}}
        writers = [
            Writer(lake, branch, tarn.s3(**once), [f"{name}/{n}" for n in range(KEYS)])
            for branch, name in (("main", "a"), ("main", "b"), ("dev", "c"))
        ]
        is_lost = threading.Event()
        with under_load(tarn, lake, writers, is_lost):
            drained_under_load(tarn, lake)
            time.sleep(random.uniform(0, LOAD_S_MAX))
            is_lost.set()
            lost_at, monotonic = SystemClock().now_us() / 1_000_000, time.monotonic()
            empty(cassandra_nodes)
            time.sleep(LOST_S)
        kill(tarn)

        told = datetime.fromtimestamp(lost_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        where = ("--config", str(config), "--data-dir", str(tarn.data), *new_kv)
        done = tarn.cli("--json", "rebuild", *where, "--lost-at", told, timeout=180)
        assert done.code in (0, 7), done.err
        report = json.loads(done.out)
        assert report["is_whole"], report
        (of_lake,) = (each for each in report["repositories"] if each["repository"] == lake)
        until = datetime.fromisoformat(of_lake["drained_until"]).timestamp()
        assert of_lake["lag_seconds"] == pytest.approx(int(lost_at) - until, abs=1.0)
        drained_at = monotonic - (lost_at - until)
        assert all(
            any(at <= drained_at for some in writer.acknowledged.values() for at, _ in some)
            for writer in writers
        ), "the drain has seen the load"

        start_again(tarn, config, *new_kv)
        set_up(tarn)
        assert shown(tarn, day) == before
        for writer in writers:
            writer.s3 = tarn.s3()
        problems = [each for writer in writers for each in writer.problems(drained_at, monotonic)]
        assert problems == []
        assert findings(tarn, *new_kv) == []
        tarn.s3().put_object(Bucket=lake, Key="main/new", Body=b"new")
        tarn.ok("commit", f"{lake}/main", "-m", "after the rebuild")
