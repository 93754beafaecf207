"""Ranges in pages: only the necessary pages are read."""

from __future__ import annotations

import pytest

from tarn.kv.mem import MemKv
from tarn.kv.paging import pages_of, rows_of
from tarn.kv.port import Group, Partition, PartitionKind, Row

PLAIN = Partition("test/rows", PartitionKind.PLAIN)
ROWS = [(key, b"v") for key in (b"0", b"0\0", b"1", b"2", b"3", b"4")]


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
