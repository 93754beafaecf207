"""Which addresses are erased: by lookups and by scans, as a set by definition says."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from tarn.core.erasure import ErasedAddress
from tarn.core.ids import CommitId, RepositoryId
from tarn.kv.collection_records import encode_erased
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import Group, Partition
from tarn_graveler.records.erased_lookups import ErasureLookups, ScannedErasures

COMMITS = InstallationKeys("tarn").of_repository(RepositoryId("lake"), "u1").commits


def address(number: int) -> bytes:
    """Addresses in the order of their numbers; some end with zeros."""
    return bytes([128 + number // 4, number % 4]) + bytes(14)


ADDRESSES = st.integers(0, 150).map(address)


class CountingKv(MemKv):
    """Counts the rows that scans yield."""

    def __init__(self) -> None:
        super().__init__()
        self.scanned = 0

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        async for batch in super().scan_arrow(partition, start, end):
            self.scanned += batch.num_rows
            yield batch


async def store(erased: set[bytes]) -> CountingKv:
    """A store with the rows of erased addresses, and with those that lie beside them in the partition."""
    kv = CountingKv()
    row = encode_erased(ErasedAddress("ab" * 16, 1))
    keys = [RepositoryKeys.erased(each) for each in erased]
    keys += [RepositoryKeys.commit(CommitId("1" * 64)), RepositoryKeys.expired(CommitId("1" * 64))]
    assert not any(await kv.set_many(COMMITS, [Group(key, ((key, row),)) for key in keys]))
    return kv


@given(st.sets(ADDRESSES), st.lists(st.lists(ADDRESSES, max_size=30), max_size=6))
@example({address(1), address(9)}, [[address(number) for number in range(1, 10)]])
@example(
    {address(number) for number in range(40)},
    [[address(number) for number in range(low, low + 10)] for low in (15, 20, 0, 30, 10, 3)],
)
async def test_the_erased_ones_among_addresses_are_found(
    erased: set[bytes], asked: list[list[bytes]]
) -> None:
    """By one object, after any earlier questions. Many that are asked for by scans cost no row twice."""
    kv = await store(erased)
    scans = ScannedErasures(kv, COMMITS)
    for rows in (scans, ErasureLookups(kv, COMMITS)):
        for addresses in asked:
            assert await rows.among(addresses) == erased & set(addresses)
    kv.scanned = 0
    again = ScannedErasures(kv, COMMITS)
    for addresses in asked:
        if len(set(addresses)) > 8:
            await again.among(addresses)
    assert kv.scanned <= len(erased)


@given(st.sets(ADDRESSES, max_size=2))
async def test_whether_any_address_is_erased(erased: set[bytes]) -> None:
    kv = await store(erased)
    assert await ScannedErasures(kv, COMMITS).any() is bool(erased)
    assert await ErasureLookups(kv, COMMITS).any() is bool(erased)


async def test_a_few_addresses_are_scanned_for_one_by_one() -> None:
    """Else two addresses of different years would cost all rows between them."""
    kv = await store({address(number) for number in range(100)})
    few = [address(number) for number in range(0, 96, 12)]
    assert await ScannedErasures(kv, COMMITS).among(few) == set(few)
    assert kv.scanned == len(few)


async def test_what_was_scanned_is_not_scanned_again() -> None:
    kv = await store({address(number) for number in range(100)})
    rows = ScannedErasures(kv, COMMITS)
    await rows.among([address(number) for number in range(10, 90)])
    assert kv.scanned == 80
    assert await rows.among([address(10), address(89)]) == {address(10), address(89)}
    assert kv.scanned == 80


async def test_more_addresses_are_looked_up_than_one_request_takes() -> None:
    many = [number.to_bytes(16, "big") for number in range(2500)]
    rows = ErasureLookups(await store(set(many[::2])), COMMITS)
    assert await rows.among(many) == set(many[::2])
