"""Ranges in pages: only the necessary pages are read."""

from __future__ import annotations

import pytest

from tarn.kv.mem import MemKv
from tarn.kv.paging import pages_of, rows_of, sifted
from tarn.kv.port import Group, Partition, PartitionKind, Row, RowFilter, SiftedPage

PLAIN = Partition("test/rows", PartitionKind.PLAIN)
ROWS = [(key, b"v") for key in (b"0", b"0\0", b"1", b"2", b"3", b"4")]
ALIVE = (b"2", b"alive")


class Counted(MemKv):
    reads = 0

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        self.reads += 1
        return await super().scan(partition, start, end, limit)


@pytest.fixture
async def kv() -> Counted:
    made = Counted()
    assert not any(await made.set_many(PLAIN, [Group(row[0], (row,)) for row in ROWS]))
    return made


@pytest.mark.parametrize(
    ("limit", "sizes", "reads"), [(1, [1] * 6, 7), (4, [4, 2], 2), (6, [6], 2), (7, [6], 1)]
)
async def test_a_page_is_read_after_a_full_one_and_none_is_empty(
    kv: Counted, limit: int, sizes: list[int], reads: int
) -> None:
    pages = [page async for page in pages_of(kv, PLAIN, b"", None, limit)]
    assert [len(page) for page in pages] == sizes
    assert [row for page in pages for row in page] == ROWS
    assert kv.reads == reads


async def test_rows_of_a_range_are_read_as_far_as_they_are_used(kv: Counted) -> None:
    assert [row async for row in rows_of(kv, PLAIN, b"0\0", b"4", 2)] == ROWS[1:5]
    kv.reads = 0
    async for _ in rows_of(kv, PLAIN, b"", None, 2):
        break
    assert kv.reads == 1


async def test_rows_written_after_the_last_page_read_are_not_missed(kv: Counted) -> None:
    seen: list[bytes] = []
    async for key, _ in rows_of(kv, PLAIN, b"", None, 2):
        if not seen:
            for late in (b"/", b"0\0a"):  # before the page that was read, and right after it
                assert await kv.set_many(PLAIN, [Group(late, ((late, b"v"),))]) == [None]
        seen.append(key)
    assert seen == [b"0", b"0\0", b"0\0a", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("limit", "examined_max", "found"),
    [
        (1, 1, SiftedPage([], b"0")),
        (2, 3, SiftedPage([ALIVE], b"2")),
        (2, 4, SiftedPage([ALIVE], b"2")),
        (1, 9, SiftedPage([ALIVE], b"2")),
        (6, 6, SiftedPage([ALIVE], b"4")),
        (7, 1, SiftedPage([ALIVE], None)),
    ],
)
async def test_a_sifted_page_ends_with_enough_rows_or_after_many_examined_ones(
    limit: int, examined_max: int, found: SiftedPage
) -> None:
    """Only a full page of the scan ends it early: a short one was the last."""
    kv = MemKv()
    rows = [(key, b"dead") for key, _ in ROWS] + [ALIVE]
    assert not any(await kv.set_many(PLAIN, [Group(row[0], (row,)) for row in rows]))
    unwanted = RowFilter(b"dead")
    assert await sifted(kv, PLAIN, b"", None, limit, unwanted, examined_max) == found


async def test_rows_are_looked_for_one_by_one_in_partitions_that_hide_them() -> None:
    """The rows that the first one hides are not looked for in the second."""
    kv = MemKv()
    newer = [Partition(name, PartitionKind.PLAIN) for name in ("first", "second")]
    assert not any(await kv.set_many(PLAIN, [Group(row[0], (row,)) for row in ROWS]))
    assert await kv.set_many(newer[0], [Group(b"1", ((b"1", b"any"),))]) == [None]
    page = await sifted(kv, PLAIN, b"", None, 10, RowFilter(b"dead", newer), 100)
    assert page == SiftedPage([row for row in ROWS if row[0] != b"1"], None, probes=6 + 5)
