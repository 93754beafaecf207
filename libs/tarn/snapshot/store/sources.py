"""The sources of a transfer: a store or a dump. Both yield ranges whose rows are loaded on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from tarn.kv.port import ListingKv, Partition
from tarn.snapshot.files.ranges import Chunk, Range, read_chunks
from tarn.snapshot.store.dump_folder import DumpFolder
from tarn.snapshot.store.dump_format import Part
from tarn.snapshot.store.dumping import batches_of_partitions
from tarn.snapshot.store.layout import Inventory, take_inventory
from tarn.snapshot.store.parts import Batches, read_part

__all__ = ["DumpSource", "Source", "StoreSource", "Unit"]


class Unit(Protocol):
    """A part of a source that one worker processes in order."""

    def chunks(self) -> AsyncIterator[Chunk]:
        """Yields its ranges. The rows of a range may be loaded until the next range is requested."""
        ...


class Source(Protocol):
    """A source of rows."""

    async def look(self, concurrency: int) -> tuple[dict[str, Partition], Sequence[Unit]]:
        """Returns the current partitions, by name, and the units that together cover all of them."""
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


class _StoreUnit:
    def __init__(self, kv: ListingKv, partitions: Sequence[Partition]) -> None:
        self._kv = kv
        self._partitions = partitions

    async def chunks(self) -> AsyncIterator[Chunk]:
        for partition in self._partitions:
            async for chunk in read_chunks(self._kv, partition):
                yield chunk


class DumpSource:
    """A finished dump as a source. A file is read only if the rows of one of its ranges are needed."""

    def __init__(self, dump: DumpFolder) -> None:
        self._dump = dump

    async def look(self, concurrency: int) -> tuple[dict[str, Partition], Sequence[Unit]]:
        """See `Source`. The parts of a partition may be read in any order: their ranges are independent."""
        del concurrency
        return self._dump.partitions(), [_DumpUnit(self._dump, part) for part in self._dump.parts]


class _DumpUnit:
    def __init__(self, dump: DumpFolder, part: Part) -> None:
        self._dump = dump
        self._part = part
        self._read: Iterator[tuple[Range, Batches]] | None = None

    async def chunks(self) -> AsyncIterator[Chunk]:
        self._read = None
        for each in self._part.ranges:
            yield Chunk(each, lambda each=each: self._load(each))  # type: ignore[misc]  # bound at once

    async def _load(self, wanted: Range) -> Sequence[pa.RecordBatch]:
        return await asyncio.to_thread(self._find, wanted)

    def _find(self, wanted: Range) -> Batches:
        if self._read is None:
            self._read = read_part(self._dump.path, self._part)
        for found, batches in self._read:
            if found is wanted:
                return batches
        raise AssertionError("the ranges of a part must be loaded in order")
