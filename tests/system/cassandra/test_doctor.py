"""`tarn doctor` on real nodes: a healthy cluster, settings that it warns about or refuses, clocks, releases."""

from __future__ import annotations

from pathlib import Path

import pytest
from cassandra_lake import ShiftedClock
from cassandra_proxies import Cluster, kv_url
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.config import Config, load
from tarn.kv.cassandra import CassandraSettings
from tarn.kv.opening import open_store
from tarn.kv.replicas import Replica
from tarn.kv.upgrading import raise_level
from tarn.rpc.process.system import SystemIds
from tarn.testing.contract.cassandra_store import open_store as open_session
from tarn_cli.doctor import Finding, Level, examine
from tarn_cli.node.kv_url import kv_variables

pytestmark = pytest.mark.cassandra
CLOCK = ShiftedClock()
REQUEST_TIMEOUT = "TARN_METADATA_DB_CASSANDRA_REQUEST_TIMEOUT"


def config_of(folder: Path, nodes: CassandraNodes, keyspace: str, **more: str) -> Config:
    variables = {"TARN_DATA_DIR": str(folder), "HOME": str(folder), **more}
    return load(None, {**variables, **kv_variables(kv_url(nodes, keyspace), None)})


async def found(
    folder: Path, nodes: CassandraNodes, keyspace: str, clock: ShiftedClock = CLOCK, **more: str
) -> dict[str, Finding]:
    config = config_of(folder, nodes, keyspace, **more)
    return {each.check: each async for each in examine(config, clock, SystemIds(clock))}


async def test_a_healthy_cluster_is_well_and_one_node_is_warned_of(
    cassandra_nodes: CassandraNodes, cassandra_cluster: Cluster, tmp_path: Path
) -> None:
    cassandra_cluster.until_whole()
    three = (await found(tmp_path, cassandra_cluster.nodes, "doctor_three"))["metadata store"]
    assert three.level is Level.OK, three
    assert "cassandra, opened and read" in three.text
    one = (await found(tmp_path, cassandra_nodes, "doctor_one"))["metadata store"]
    assert one.level is Level.WARNING
    assert "1 replica(s): one node down stops Tarn" in one.text


async def test_settings_and_clocks_are_told_with_what_to_do(
    cassandra_nodes: CassandraNodes, tmp_path: Path
) -> None:
    keyspace = "doctor_settings"

    async def of(clock: ShiftedClock = CLOCK, **more: str) -> Finding:
        return (await found(tmp_path, cassandra_nodes, keyspace, clock, **more))["metadata store"]

    finding = await of(CLOCK, **{REQUEST_TIMEOUT: "1500ms"})
    assert finding.level is Level.WARNING
    assert "write_request_timeout" in finding.text
    assert "should be less than Tarn's request_timeout" in finding.text
    for seconds in (-3.0, 3.0):
        finding = await of(ShiftedClock(seconds))
        assert finding.level is Level.WARNING
        assert "ms apart: check NTP on both" in finding.text
    finding = await of(ShiftedClock(7200))
    assert finding.level is Level.ERROR
    assert "correct the one that is wrong" in finding.text
    points, centre = cassandra_nodes.contact_points, cassandra_nodes.LOCAL_DATACENTER
    store = await open_session(CassandraSettings(points, centre, keyspace, 1))
    try:
        session = store._cluster.connect()
        session.execute(f"ALTER KEYSPACE {keyspace} WITH durable_writes = false")
        finding = await of()
        assert finding.level is Level.ERROR
        assert "acknowledged writes would be lost; ALTER it" in finding.text
        session.execute(f"ALTER KEYSPACE {keyspace} WITH durable_writes = true")
        assert (await of()).level is Level.WARNING  # one replica
    finally:
        await store.close()


async def test_all_processes_are_told_with_their_releases_and_levels(
    cassandra_nodes: CassandraNodes, tmp_path: Path
) -> None:
    keyspace = "doctor_levels"
    store = await open_store(
        config_of(tmp_path, cassandra_nodes, keyspace), CLOCK, SystemIds(CLOCK)
    )

    def replica(service: str, version: str) -> Replica:
        return Replica(
            store,
            "tarn",
            service=service,
            version=version,
            clock=CLOCK,
            ids=SystemIds(CLOCK),
            stop=print,
        )

    async def of() -> Finding:
        return (await found(tmp_path, cassandra_nodes, keyspace))["feature level"]

    try:
        finding = await of()
        assert finding.level is Level.WARNING
        assert "1 of 2" in finding.text
        assert "tarn upgrade finish" in finding.text
        await raise_level(store, "tarn", CLOCK, is_shared=False, said=print)
        async with replica("graveler", "1.1"), replica("auth", "1.1"):
            finding = await of()
            assert finding.level is Level.OK
            assert "graveler 1.1" in finding.text
            assert "auth 1.1" in finding.text
            async with replica("graveler", "1.0"):
                finding = await of()
        assert finding.level is Level.WARNING
        assert "graveler 1.0" in finding.text
        assert "Several releases run" in finding.text
    finally:
        await store.close()
