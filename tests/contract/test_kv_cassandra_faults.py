"""Lost exchanges with a real node: an unknown outcome is settled, or reported as unknown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
from tests.support.faults.tcp_proxy import Loss, TcpProxy
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.kv.cassandra import CassandraKv, CassandraLimits, CassandraSettings
from tarn.kv.port import (
    Group,
    OutcomeUnknownError,
    Partition,
    PartitionKind,
    PredicateFailedError,
)
from tarn.testing.contract.cassandra_store import open_store
from tarn.testing.contract.kv_fixtures import get, predicate_of, put

pytestmark = pytest.mark.cassandra

LIMITS = CassandraLimits(request_seconds=2.0)
"""Time-out that detects a lost answer."""

LOST_AFTER = [Loss.ANSWER, Loss.SILENCE]


class Two(NamedTuple):
    """A store behind the proxy, and one with a direct connection."""

    kv: CassandraKv
    other: CassandraKv
    proxy: TcpProxy


@pytest.fixture
async def two(cassandra_nodes: CassandraNodes) -> AsyncIterator[Two]:
    port = cassandra_nodes.native_port
    direct = CassandraSettings(cassandra_nodes.contact_points, "datacenter1", "faults", 1)
    other = await open_store(direct)
    async with TcpProxy("127.0.0.1", port) as proxy:
        through = CassandraSettings((f"127.0.0.1:{proxy.port}",), "datacenter1", "faults", 1)
        kv = await open_store(through, LIMITS)
        yield Two(kv, other, proxy)
        await kv.close()
    await other.close()


@pytest.fixture
def register(request: pytest.FixtureRequest) -> Partition:
    return Partition(f"{request.node.name}/register", PartitionKind.REGISTER)


@pytest.fixture
def plain(request: pytest.FixtureRequest) -> Partition:
    return Partition(f"{request.node.name}/plain", PartitionKind.PLAIN)


@pytest.mark.parametrize("loss", LOST_AFTER)
async def test_compare_and_set_whose_answer_is_lost_is_settled_as_applied(
    two: Two, register: Partition, loss: Loss
) -> None:
    first = await two.kv.set_if(register, b"k", b"1", None)
    lost = two.proxy.lose(loss, b"second value")
    second = await two.kv.set_if(register, b"k", b"second value", first)
    assert lost.is_set()
    assert await predicate_of(two.other, register, b"k") == second
    lost = two.proxy.lose(loss, b"new row")
    created = await two.kv.set_if(register, b"new", b"new row", None)
    assert lost.is_set()
    assert await predicate_of(two.other, register, b"new") == created


async def test_compare_and_set_that_never_arrived_is_settled_and_repeated(
    two: Two, register: Partition
) -> None:
    first = await two.kv.set_if(register, b"k", b"1", None)
    lost = two.proxy.lose(Loss.REQUEST, b"second value")
    second = await two.kv.set_if(register, b"k", b"second value", first)
    assert lost.is_set()
    assert await predicate_of(two.other, register, b"k") == second
    assert await get(two.other, register, b"k") == b"second value"


async def test_creation_that_never_arrived_stays_unknown(two: Two, register: Partition) -> None:
    """An absent row may be one that was created and removed again."""
    await put(two.kv, register, (b"other", b""))
    lost = two.proxy.lose(Loss.REQUEST, b"new row")
    with pytest.raises(OutcomeUnknownError):
        await two.kv.set_if(register, b"k", b"new row", None)
    assert lost.is_set()
    assert await get(two.other, register, b"k") is None


async def test_compare_and_set_that_was_written_over_stays_unknown(
    two: Two, register: Partition
) -> None:
    first = await two.kv.set_if(register, b"k", b"1", None)

    async def write_over() -> None:
        mine = await predicate_of(two.other, register, b"k")
        await two.other.set_if(register, b"k", b"third value", mine)

    two.proxy.lose(Loss.ANSWER, b"second value", meanwhile=write_over)
    with pytest.raises(OutcomeUnknownError):
        await two.kv.set_if(register, b"k", b"second value", first)
    assert await get(two.kv, register, b"k") == b"third value"


async def test_lost_race_whose_answer_is_lost_stays_unknown(two: Two, register: Partition) -> None:
    """The row has another writer's version, so it is unknown whether ours was there before."""
    first = await two.kv.set_if(register, b"k", b"1", None)
    await two.other.set_if(register, b"k", b"2", first)
    two.proxy.lose(Loss.ANSWER, b"third value")
    with pytest.raises(OutcomeUnknownError):
        await two.kv.set_if(register, b"k", b"third value", first)
    with pytest.raises(PredicateFailedError):
        await two.kv.set_if(register, b"k", b"third value", first)


async def test_removal_whose_answer_is_lost_stays_unknown(two: Two, register: Partition) -> None:
    """Two callers must never both believe that they removed a row."""
    version = await two.kv.set_if(register, b"removed row", b"1", None)
    lost = two.proxy.lose(Loss.ANSWER, b"removed row")
    with pytest.raises(OutcomeUnknownError):
        await two.kv.delete_if(register, b"removed row", version)
    assert lost.is_set()
    assert await get(two.kv, register, b"removed row") is None


@pytest.mark.parametrize("loss", LOST_AFTER)
async def test_unconditional_sets_and_removals_of_registers_are_settled(
    two: Two, register: Partition, loss: Loss
) -> None:
    await put(two.kv, register, (b"a", b"1"), (b"b", b"1"))
    lost = two.proxy.lose(loss, b"second value")
    groups = [
        Group(b"a", ((b"a", b"second value"), (b"event", b"x"))),
        Group(b"b", ((b"b", b"2"),)),
    ]
    assert await two.kv.set_many(register, groups) == [None, None]
    assert lost.is_set()
    assert await get(two.other, register, b"a") == b"second value"
    assert await get(two.other, register, b"b") == b"2"
    lost = two.proxy.lose(loss, b"event")
    await two.kv.delete_many(register, [b"event"])
    assert lost.is_set()
    assert await get(two.other, register, b"event") is None


async def test_unconditional_set_of_a_register_that_never_arrived_stays_unknown(
    two: Two, register: Partition
) -> None:
    """A repetition could overwrite a newer value if the first attempt did arrive."""
    await put(two.kv, register, (b"a", b"1"))
    two.proxy.lose(Loss.REQUEST, b"second value")
    (outcome,) = await two.kv.set_many(register, [Group(b"a", ((b"a", b"second value"),))])
    assert isinstance(outcome, OutcomeUnknownError)
    assert await get(two.other, register, b"a") == b"1"


@pytest.mark.parametrize("loss", list(Loss))
async def test_plain_writes_are_repeated_as_the_same_write(
    two: Two, plain: Partition, loss: Loss
) -> None:
    """A repetition has the timestamp of its first attempt, so it does not overwrite a newer value."""
    await put(two.kv, plain, (b"k", b"1"))

    async def write_over() -> None:
        await put(two.other, plain, (b"k", b"third value"))

    lost = two.proxy.lose(loss, b"second value", meanwhile=write_over)
    await put(two.kv, plain, (b"k", b"second value"))
    assert lost.is_set()
    assert await get(two.kv, plain, b"k") == b"third value"


async def test_reads_are_repeated(two: Two, plain: Partition) -> None:
    rows = [(b"read key %d" % n, b"%d" % n) for n in range(5)]
    await put(two.kv, plain, *rows)
    for loss in (Loss.SILENCE, Loss.ANSWER, Loss.REQUEST):
        lost = two.proxy.lose(loss, b"read key 3")
        assert await two.other.scan(plain, b"", None, 10) == rows
        try:
            assert await get(two.kv, plain, b"read key 3") == b"3"
        finally:
            assert lost.is_set()
