"""The complete contract on three replicas, with quorums, digests and Paxos between nodes."""

from __future__ import annotations

import functools

import pytest
from cassandra_proxies import Cluster

from tarn.kv.cassandra import CassandraSettings
from tarn.testing.contract.cassandra_store import open_store
from tarn.testing.contract.kv_contract import KvContract, Opener, SharedKvContract

pytestmark = [pytest.mark.cassandra, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def settings(cassandra_cluster: Cluster) -> CassandraSettings:
    cassandra_cluster.until_whole()  # an earlier test may have disturbed it
    nodes = cassandra_cluster.nodes
    return CassandraSettings(nodes.contact_points, nodes.LOCAL_DATACENTER, "contract_three", 3)


class TestCassandraKvOnThreeNodes(KvContract, SharedKvContract):
    installation = "three"

    @pytest.fixture
    def opener(self, settings: CassandraSettings) -> Opener:
        return functools.partial(open_store, settings)
