"""The sources of a transfer: a store or a snapshot. Both yield ranges whose rows are loaded on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol

from tarn.kv.paging import rows_of
from tarn.kv.port import ListingKv, Partition, Row
from tarn.snapshot.files.chunks import cut, rows_in
from tarn.snapshot.files.ranges import Range
from tarn.snapshot.files.stored import StoredSnapshot
from tarn.snapshot.store.dumping import batches_of_partitions
from tarn.snapshot.store.layout import Inventory, take_inventory

__all__ = ["Piece", "SnapshotSource", "Source", "StoreSource", "Unit"]

_UNIT_CHUNKS: Final = 64
_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Piece:
    """A range, and a way to load its rows: from memory, or from a file that is read only if needed."""

    range: Range
    load: Callable[[], Awaitable[list[Row]]]


class Unit(Protocol):
    """A part of a source that one worker processes in order."""

    def pieces(self) -> AsyncIterator[Piece]:
        """Yields its ranges."""
        ...


class Source(Protocol):
    """A source of rows."""

    async def look(self, concurrency: int) -> tuple[dict[str, Partition], Sequence[Unit]]:
        """Returns the current partitions, by name, and the units that together cover all of them."""
        ...

    def rows(self, partition: Partition, start: bytes, end: bytes | None) -> AsyncIterator[Row]:
        """Yields the rows of a region of one of its partitions, in order of keys."""
        ...


class StoreSource:
    """A store as a source."""

    def __init__(self, kv: ListingKv, installation_id: str) -> None:
        self._kv = kv
        self._installation_id = installation_id
        self.inventory = Inventory({}, ())

    async def look(self, concurrency: int) -> tuple[dict[str, Partition], Sequence[Unit]]:
        """See `Source`. Also sets `inventory`."""
        self.inventory = await take_inventory(self._kv, self._installation_id)
        partitions = self.inventory.partitions
        units = batches_of_partitions(partitions.values(), concurrency)
        return partitions, [_StoreUnit(self._kv, unit) for unit in units]

    def rows(self, partition: Partition, start: bytes, end: bytes | None) -> AsyncIterator[Row]:
        """See `Source`."""
        return rows_of(self._kv, partition, start, end, _PAGE)


class _StoreUnit:
    def __init__(self, kv: ListingKv, partitions: Sequence[Partition]) -> None:
        self._kv = kv
        self._partitions = partitions

    async def pieces(self) -> AsyncIterator[Piece]:
        for partition in self._partitions:
            async with aclosing(cut(self._kv, partition)) as chunks:
                async for chunk in chunks:

                    async def load(
                        text: bytes = chunk.text, found: Range = chunk.range
                    ) -> list[Row]:
                        return rows_in(text, found)

                    yield Piece(chunk.range, load)


class SnapshotSource:
    """A finished snapshot as a source. A chunk is read only if its rows are needed."""

    def __init__(self, snapshot: StoredSnapshot) -> None:
        self._snapshot = snapshot
        self._by_partition: dict[str, list[Range]] = {}
        for line in snapshot.lines:
            self._by_partition.setdefault(line.partition.name, []).append(line)

    async def look(self, concurrency: int) -> tuple[dict[str, Partition], Sequence[Unit]]:
        """See `Source`. The chunks of a partition may be read in any order: their ranges are independent."""
        del concurrency
        lines = self._snapshot.lines
        partitions = {line.partition.name: line.partition for line in lines}
        units = [
            _SnapshotUnit(self._snapshot, lines[at : at + _UNIT_CHUNKS])
            for at in range(0, len(lines), _UNIT_CHUNKS)
        ]
        return partitions, units

    async def rows(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[Row]:
        """See `Source`. Reads the chunks that may have some of them."""
        lines = self._by_partition.get(partition.name, [])
        for line in sorted(lines, key=lambda line: line.start):
            if (line.end is None or line.end > start) and (end is None or line.start < end):
                for row in await self._snapshot.rows(line):
                    if row[0] >= start and (end is None or row[0] < end):
                        yield row


class _SnapshotUnit:
    def __init__(self, snapshot: StoredSnapshot, lines: Sequence[Range]) -> None:
        self._snapshot = snapshot
        self._lines = lines

    async def pieces(self) -> AsyncIterator[Piece]:
        for line in self._lines:
            yield Piece(line, lambda line=line: self._snapshot.rows(line))  # type: ignore[misc]  # bound at once
