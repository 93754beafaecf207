"""Compares two copies of the data by digests of ranges, and lists the first keys that differ."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass

from tarn.aio.parallel import for_each
from tarn.kv.port import ListingKv, Partition
from tarn.snapshot.files.ranges import Chunk, digest_of, rows_of
from tarn.snapshot.files.work import TransferOptions, TransferProgress
from tarn.snapshot.store.dump_folder import DumpFolder
from tarn.snapshot.store.layout import take_inventory
from tarn.snapshot.store.parts import read_part
from tarn.snapshot.store.sources import Source, Unit

__all__ = ["DIFFERENCES_MAX", "Comparison", "Difference", "Sort", "check_dump", "compare"]

DIFFERENCES_MAX = 20
"""How many differences are listed; all are counted."""


class Sort(enum.Enum):
    """How a row differs."""

    ONLY_FIRST = "only in the first"
    ONLY_SECOND = "only in the second"
    VALUE = "other value"


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs between the two copies."""

    partition: str
    key: bytes
    sort: Sort


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        progress: how much was compared; `changed` counts the ranges that differ.
        differences: the first differences, sorted by partition and key.
        count: number of all rows that differ.
    """

    progress: TransferProgress
    differences: tuple[Difference, ...]
    count: int


async def compare(
    first: Source, second: ListingKv, installation_id: str, options: TransferOptions
) -> Comparison:
    """Compares all rows of an installation, except its fence and settings, which belong to the store.

    Raises:
        TarnError: CORRUPT: a record or a part of the dump cannot be read. Also the stores' errors.
    """
    partitions, units = await first.look(options.concurrency)
    others = (await take_inventory(second, installation_id)).partitions
    progress = TransferProgress("compare", units_total=len(units))
    found: list[Difference] = []
    count = 0

    def note(differences: Sequence[Difference]) -> None:
        nonlocal count
        count += len(differences)
        # Workers finish in any order; the differences that are kept must not depend on it.
        found.extend(differences)
        found.sort(key=lambda each: (each.partition, each.key))
        del found[DIFFERENCES_MAX:]

    async def work(unit: Unit) -> None:
        async for chunk in unit.chunks():
            each = chunk.range
            # The other engine may declare another number of buckets.
            there = others.get(each.partition.name, each.partition)
            same = await digest_of(second, there, each.start, each.end) == each.digest
            if not same:
                note(await _differences(chunk, second, there))
            progress.add(each.rows, each.size_bytes, changed=not same)
            options.report(progress)
            await options.rate_limiter.take(each.rows)
        progress.units += 1

    await for_each(units, work, options.concurrency)
    for name, partition in others.items():
        if name not in partitions:
            async for batch in second.scan_arrow(partition, b"", None):
                keys = batch.column(0).to_pylist()
                note([Difference(name, key, Sort.ONLY_SECOND) for key in keys])
    return Comparison(progress, tuple(found), count)


async def check_dump(dump: DumpFolder, options: TransferOptions) -> TransferProgress:
    """Reads every file of a dump and checks its digests.

    Raises:
        TarnError: CORRUPT; the text names the file.
    """
    progress = TransferProgress("check dump", units_total=len(dump.parts))

    async def work(number: int) -> None:
        part = dump.parts[number]
        await asyncio.to_thread(_read_all, dump, number)
        progress.units += 1
        for each in part.ranges:
            progress.add(each.rows, each.size_bytes, changed=False)
        options.report(progress)

    await for_each(range(len(dump.parts)), work, options.concurrency)
    return progress


def _read_all(dump: DumpFolder, number: int) -> None:
    for _ in read_part(dump.path, dump.parts[number]):
        pass


async def _differences(chunk: Chunk, second: ListingKv, there: Partition) -> list[Difference]:
    """The rows of a range that differ. Either side holds a few MiB, unless its ranges were cut differently."""
    name = chunk.range.partition.name
    left: dict[bytes, bytes] = dict(rows_of(await chunk.load()))
    found: list[Difference] = []
    async for batch in second.scan_arrow(there, chunk.range.start, chunk.range.end):
        for key, value in rows_of([batch]):
            expected = left.pop(key, None)
            if expected is None:
                found.append(Difference(name, key, Sort.ONLY_SECOND))
            elif expected != value:
                found.append(Difference(name, key, Sort.VALUE))
    return found + [Difference(name, key, Sort.ONLY_FIRST) for key in left]
