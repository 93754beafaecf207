"""The contract on three replicas, with quorums, digests and Paxos between nodes.

Without `--long`, the part that depends on replicas: compare-and-set, and several processes.
"""

from __future__ import annotations

import functools

import pytest
from cassandra_proxies import Cluster

from tarn.kv.cassandra import CassandraSettings
from tarn.testing.contract.cassandra_store import open_store
from tarn.testing.contract.kv_contract import KvContract, Opener, SharedKvContract
from tarn.testing.contract.kv_contract_registers import RegistersContract

pytestmark = [pytest.mark.cassandra, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def settings(cassandra_cluster: Cluster) -> CassandraSettings:
    cassandra_cluster.until_whole()  # an earlier test may have disturbed it
    nodes = cassandra_cluster.nodes
    return CassandraSettings(nodes.contact_points, nodes.LOCAL_DATACENTER, "contract_three", 3)


class OnThreeNodes:
    """Opens the store on the three nodes."""

    @pytest.fixture
    def opener(self, settings: CassandraSettings) -> Opener:
        return functools.partial(open_store, settings)


class TestReplicas(OnThreeNodes, RegistersContract, SharedKvContract):
    installation = "replicas"


@pytest.mark.long
class TestWholeContract(OnThreeNodes, KvContract, SharedKvContract):
    installation = "three"
