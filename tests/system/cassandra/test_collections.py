"""Garbage collections of histories whose metadata is in Cassandra."""

from __future__ import annotations

from pathlib import Path

import pytest
from collector_lab import check_history, collector_lab
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.kv.cassandra import CassandraSettings
from tarn.testing.contract.cassandra_store import open_store

pytestmark = pytest.mark.cassandra


@pytest.mark.parametrize("seed", [0, 3])
async def test_readers_read_everything_and_all_garbage_is_gone(
    cassandra_nodes: CassandraNodes, tmp_path: Path, seed: int
) -> None:
    nodes = cassandra_nodes
    keyspace = f"collection_{seed}"
    settings = CassandraSettings(nodes.contact_points, nodes.LOCAL_DATACENTER, keyspace, 1)
    store = await open_store(settings)
    try:
        async with collector_lab(tmp_path, store) as lab:
            await check_history(lab, seed)
    finally:
        await store.close()
