"""`tarn up --kv`: the keyspace that it creates, the metadata that it finds again, and its error texts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cassandra_proxies import Cluster, kv_url
from chaos.node import Node
from running_tarn import BIN, clean_environment
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.kv.cassandra import CassandraSettings
from tarn.testing.contract.cassandra_store import open_store
from tarn_cli.node.kv_url import AS_MANY_AS_NODES

pytestmark = pytest.mark.cassandra


async def replicas_made(nodes: CassandraNodes) -> str:
    """Returns the number of replicas of a new keyspace."""
    points, centre = nodes.contact_points, nodes.LOCAL_DATACENTER
    keyspace = "replicas"
    store = await open_store(CassandraSettings(points, centre, keyspace, AS_MANY_AS_NODES))
    try:
        cql = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = %s"
        session = store._cluster.connect()
        return str(session.execute(cql, (keyspace,)).one()[0][centre])
    finally:
        await store.close()


async def test_a_keyspace_gets_a_replica_on_each_node(
    cassandra_nodes: CassandraNodes, cassandra_cluster: Cluster
) -> None:
    cassandra_cluster.until_whole()
    assert await replicas_made(cassandra_nodes) == "1"
    assert await replicas_made(cassandra_cluster.nodes) == "3"


async def test_metadata_outlives_every_process_of_tarn(
    cassandra_nodes: CassandraNodes, tmp_path: Path
) -> None:
    url = kv_url(cassandra_nodes, "outlives")
    node = Node(tmp_path, ("--workers", "1", "--kv", url))
    node.start()
    try:
        tarn = node.tarn
        tarn.ok("repo", "create", "lake")
        tarn.ok("fs", "upload", "-", "lake/main/a", stdin=b"hello")
        await node.crash()
        await node.restart()
        assert tarn.ok("fs", "cat", "lake/main/a").out == "hello"
        assert not (tarn.data / "kv").exists()
    finally:
        node.stop()


def test_a_wrong_url_or_keyspace_is_reported_before_any_process_starts(
    cassandra_nodes: CassandraNodes, tmp_path: Path
) -> None:
    def told(url: str) -> tuple[int, str]:
        ports = ("--port", "0", "--rpc-port", "0")
        done = subprocess.run(
            [str(BIN / "tarn"), "up", "--data-dir", str(tmp_path / "d"), *ports, "--kv", url],
            capture_output=True,
            text=True,
            timeout=60,
            env=clean_environment(),
            check=False,
        )
        return done.returncode, done.stderr

    code, said = told("redis://127.0.0.1")
    assert (code, "cassandra://host" in said) == (2, True)
    code, said = told(kv_url(cassandra_nodes, "Capitals"))
    assert (code, "keyspace 'Capitals'" in said) == (1, True)
