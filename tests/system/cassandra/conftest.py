"""graveler and auth in this process, over the shared real node."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from graveler_service import Service, running_service
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.kv.cassandra import CassandraSettings
from tarn.testing.contract.cassandra_store import open_store


@pytest.fixture
async def service(
    cassandra_nodes: CassandraNodes, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Service]:
    """A replica with a repository `lake`, in a keyspace of its own."""
    nodes = cassandra_nodes
    keyspace = "lake_" + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    settings = CassandraSettings(nodes.contact_points, nodes.LOCAL_DATACENTER, keyspace, 1)
    store = await open_store(settings)
    try:
        async with running_service(tmp_path, store) as made:
            yield made
    finally:
        await store.close()
