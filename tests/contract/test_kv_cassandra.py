"""`CassandraKv` keeps the contract of the port on a real node, alone and shared by processes."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.core.errors import Kind, TarnError
from tarn.kv.cassandra import CassandraLimits, CassandraSettings
from tarn.kv.cassandra.cluster.connection import connect
from tarn.kv.port import Group, Kv, Partition, PartitionKind
from tarn.telemetry.meters import Meters
from tarn.testing.contract.cassandra_store import open_store
from tarn.testing.contract.kv_contract import KvContract, Opener, SharedKvContract
from tarn.testing.contract.kv_contract_companions import CompanionsContract
from tarn.testing.contract.kv_contract_registers import RegistersContract
from tarn.testing.contract.kv_contract_rows import RowsContract

pytestmark = pytest.mark.cassandra


@pytest.fixture
def settings(cassandra_nodes: CassandraNodes) -> CassandraSettings:
    return CassandraSettings(
        contact_points=cassandra_nodes.contact_points,
        local_datacenter=cassandra_nodes.LOCAL_DATACENTER,
        keyspace="contract",
        replication_factor=1,
    )


class TestCassandraKv(KvContract, SharedKvContract):
    installation = "one"
    put_repeats = 5

    @pytest.fixture
    def opener(self, settings: CassandraSettings) -> Opener:
        return functools.partial(open_store, settings)


class TestCassandraKvCreated(SharedKvContract):
    """Several processes create a new keyspace concurrently."""

    installation = "created"

    @pytest.fixture
    def opener(self, settings: CassandraSettings, request: pytest.FixtureRequest) -> Opener:
        name = "created_" + hashlib.sha256(request.node.name.encode()).hexdigest()[:8]
        return functools.partial(
            open_store,
            CassandraSettings(settings.contact_points, settings.local_datacenter, name, 1),
        )

    # The other tests do not depend on how the keyspace was created.
    test_increments_by_processes_add_up = None  # type: ignore[assignment]  # not tested here
    test_acknowledged_writes_are_read_in_another_process = None  # type: ignore[assignment]  # same
    test_kinds_are_known_to_all_processes = None  # type: ignore[assignment]  # same


class TestCassandraKvInBuckets(RowsContract, RegistersContract, CompanionsContract):
    """The same rows in several pieces: merged scans, and groups by their anchor."""

    installation = "buckets"
    put_repeats = 5

    @pytest.fixture
    async def kv(self, settings: CassandraSettings) -> AsyncIterator[Kv]:
        store = await open_store(settings)
        yield store
        await store.close()

    @pytest.fixture
    def plain(self, request: pytest.FixtureRequest) -> Partition:
        return Partition(f"buckets/{request.node.name}/plain", PartitionKind.PLAIN, 5)

    @pytest.fixture
    def register(self, request: pytest.FixtureRequest) -> Partition:
        return Partition(f"buckets/{request.node.name}/register", PartitionKind.REGISTER, 8)


async def test_a_table_whose_reads_may_go_back_is_refused(settings: CassandraSettings) -> None:
    """Listings remember which rows they have read, so these must be there for later reads."""
    settings = replace(settings, keyspace="options")
    await (await open_store(settings)).close()

    def alter(option: str) -> None:
        cluster, session = connect(settings, CassandraLimits())
        try:
            session.execute(f"ALTER TABLE options.plain WITH {option}", timeout=60.0)
        finally:
            cluster.shutdown()

    for off, told, on in (
        ("read_repair = 'NONE'", "options.plain has read_repair", "read_repair = 'BLOCKING'"),
        ("default_time_to_live = 60", "default_time_to_live = 60", "default_time_to_live = 0"),
    ):
        await asyncio.to_thread(alter, off)
        with pytest.raises(TarnError, match=told) as raised:
            await open_store(settings)
        assert raised.value.kind is Kind.FAILED_PRECONDITION
        await asyncio.to_thread(alter, on)
        await (await open_store(settings)).close()


async def test_the_rows_of_requests_are_measured(settings: CassandraSettings) -> None:
    """Of plain rows and of registers; a compare-and-set is not counted."""
    meters, rows = Meters(), ((b"a", b"1"), (b"b", b"2"))
    store = await open_store(settings)
    store.measure_batches(meters.histogram("kv.batch"))
    for kind in PartitionKind:
        partition = Partition(f"measured/{kind.name}", kind)
        assert await store.set_many(partition, [Group(b"a", rows)]) == [None]
    await store.set_if(Partition("measured/REGISTER", PartitionKind.REGISTER), b"new", b"3", None)
    await store.close()
    assert [*meters.samples("kv.batch.count")] == [({}, 2)]
    assert [*meters.samples("kv.batch.sum")] == [({}, 4)]
