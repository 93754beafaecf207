"""Reads listings and dumps of lakeFS, and finds what differs between two listings.

A listing is a table of ranges, and each range a table of records. Ranges are named by their content, so those that two
listings share are not opened. Memory holds the ranges of the two listings and one block of a table of each.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Final

from tarn.lakefs.records import PeerRange, pair_of, range_of
from tarn.lakefs.source import Source
from tarn.lakefs.sstable import Row, Table, damaged

__all__ = ["RANGES_MAX", "Listings"]

RANGES_MAX: Final = 1_000_000
"""Most ranges of a listing: some 200 MB of memory. lakeFS ends a range after some 50,000 records."""
_FOLDER: Final = "_lakefs"


class Listings:
    """The listings of one repository.

    Args:
        source: its storage namespace.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._held: tuple[str, list[PeerRange]] = ("", [])

    async def _rows(self, file_id: str) -> AsyncGenerator[list[Row], None]:
        address = f"{_FOLDER}/{file_id}"
        size = await self._source.size(address)

        async def read(start: int, length: int) -> bytes:
            return await self._source.read(address, start, length)

        async with aclosing(Table(address, size, read).rows()) as blocks:
            async for block in blocks:
                yield block

    async def ranges(self, metarange_id: str) -> list[PeerRange]:
        """Returns the ranges of a listing; none for an empty id.

        Raises:
            TarnError: CORRUPT: the listing is damaged; NOT_FOUND: it is not there; UNAVAILABLE.
        """
        if not metarange_id:
            return []
        if self._held[0] == metarange_id:
            return self._held[1]
        found: list[PeerRange] = []
        async with aclosing(self._rows(metarange_id)) as blocks:
            async for block in blocks:
                try:
                    found += [range_of(*row) for row in block]
                except ValueError as error:
                    raise damaged(f"listing {metarange_id}", str(error)) from error
                if len(found) > RANGES_MAX:
                    raise damaged(f"listing {metarange_id}", f"it has over {RANGES_MAX} ranges")
        for before, after in pairwise(found):
            if after.min_path <= before.max_path:
                raise damaged(f"listing {metarange_id}", f"range {after.range_id} overlaps")
        self._held = metarange_id, found  # most often, the next commit is the child of this one
        return found

    async def records(self, ranges: Sequence[PeerRange]) -> AsyncGenerator[list[Row], None]:
        """Yields the records of ranges: keys, and values as `pair_of` reads them.

        Raises:
            TarnError: as `ranges`; CORRUPT: a range does not hold what its listing says.
        """
        for each in ranges:
            count, first, last = 0, None, b""
            async with aclosing(self._rows(each.range_id)) as blocks:
                async for block in blocks:
                    if not block:
                        continue
                    first = block[0][0] if first is None else first
                    count, last = count + len(block), block[-1][0]
                    yield block
            if (first, last, count) != (each.min_path, each.max_path, each.count):
                raise damaged(f"range {each.range_id}", "it does not hold what its listing says")

    async def records_of(self, metarange_id: str) -> AsyncGenerator[list[Row], None]:
        """Yields all records of a listing or dump; raises as `records`."""
        async with aclosing(self.records(await self.ranges(metarange_id))) as blocks:
            async for block in blocks:
                yield block

    async def changes(
        self, old_id: str, new_id: str
    ) -> AsyncGenerator[tuple[bytes, bytes | None, bytes | None], None]:
        """Yields what a listing changes in another one: paths in order, with the old and the new record, or None.

        Raises:
            TarnError: as `records`.
        """
        left_ranges, right_ranges = await self.ranges(old_id), await self.ranges(new_id)
        shared = {each.range_id for each in left_ranges} & {each.range_id for each in right_ranges}
        left = self.records([each for each in left_ranges if each.range_id not in shared])
        right = self.records([each for each in right_ranges if each.range_id not in shared])
        async with aclosing(left), aclosing(right):
            before, after = _Cursor(left), _Cursor(right)
            await before.fill()
            await after.fill()
            while after.row is not None or before.row is not None:
                old, new = before.row, after.row
                if old is not None and new is not None and old[0] != new[0]:
                    old, new = (old, None) if old[0] < new[0] else (None, new)
                if old is None or new is None or old[1] != new[1]:
                    path = (old or new or (b"", b""))[0]
                    yield path, _record(old_id, old), _record(new_id, new)
                if old is not None:
                    await before.step()
                if new is not None:
                    await after.step()


def _record(metarange_id: str, row: Row | None) -> bytes | None:
    if row is None:
        return None
    try:
        return pair_of(row[1])[1]
    except ValueError as error:
        raise damaged(f"listing {metarange_id}", f"at {row[0][:80]!a}: {error}") from error


class _Cursor:
    """The next record of a stream of blocks; None at the end."""

    __slots__ = ("_at", "_block", "_blocks", "row")

    def __init__(self, blocks: AsyncGenerator[list[Row], None]) -> None:
        self._blocks = blocks
        self._block: list[Row] = []
        self._at = 0
        self.row: Row | None = None

    async def fill(self) -> None:
        while self._at >= len(self._block):
            try:
                self._block, self._at = await anext(self._blocks), 0
            except StopAsyncIteration:
                self.row = None
                return
        self.row = self._block[self._at]

    async def step(self) -> None:
        self._at += 1
        if self._at < len(self._block):
            self.row = self._block[self._at]
        else:
            await self.fill()
