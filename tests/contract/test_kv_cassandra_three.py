"""The whole contract on three replicas: quorums, digests and Paxos between nodes, not within one."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from cassandra_proxies import Cluster

from tarn.core.errors import TarnError
from tarn.kv.cassandra import CassandraKv, CassandraSettings
from tarn.kv.port import Kv
from tarn.testing.cassandra_store import open_store
from tarn.testing.kv_contract import KvContract, Opener, SharedKvContract

pytestmark = [pytest.mark.cassandra, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def settings(cassandra_cluster: Cluster) -> CassandraSettings:
    cassandra_cluster.until_whole()  # tests before may have hurt it
    nodes = cassandra_cluster.nodes
    return CassandraSettings(nodes.contact_points, nodes.LOCAL_DATACENTER, "contract_three", 3)


@pytest.mark.asyncio(loop_scope="class")
class TestCassandraKvOnThreeNodes(KvContract, SharedKvContract):
    """On one store: connecting to three nodes for each test would take longer than most tests do."""

    installation = "three"

    @pytest.fixture
    def opener(self, settings: CassandraSettings) -> Opener:
        return functools.partial(open_store, settings)

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    async def stores(self) -> AsyncIterator[list[CassandraKv]]:
        """Those that were opened; the last one is open unless a test has closed it."""
        opened: list[CassandraKv] = []
        yield opened
        for store in opened:
            await store.close()

    @pytest_asyncio.fixture(loop_scope="class")
    async def kv(self, stores: list[CassandraKv], settings: CassandraSettings) -> Kv:
        if stores:
            try:
                await stores[-1].health()
            except TarnError:
                stores.clear()
        if not stores:
            stores.append(await open_store(settings))
        return stores[-1]
