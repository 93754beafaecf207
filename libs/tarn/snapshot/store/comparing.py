"""Compares two copies of the data by digests of ranges, and lists the first keys that differ."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from tarn.aio.parallel import for_each
from tarn.kv.port import ListingKv, Partition
from tarn.snapshot.files.ranges import digest_of, row_batches
from tarn.snapshot.files.work import TransferOptions, TransferProgress
from tarn.snapshot.store.layout import take_inventory
from tarn.snapshot.store.renaming import PairedNames, RenamedSource
from tarn.snapshot.store.sources import Piece, Source, Unit

__all__ = ["DIFFERENCES_MAX", "Comparison", "Difference", "Sort", "compare"]

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

    Staging tokens may have other names in the second, where its records have as many (`tarn.snapshot.store.renaming`).

    Raises:
        TarnError: CORRUPT: a record or a chunk of the dump cannot be read. Also the stores' errors.
    """
    partitions, units = await RenamedSource(first, PairedNames(second)).look(options.concurrency)
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
        async for piece in unit.pieces():
            each = piece.range
            # The other engine may declare another number of buckets.
            there = others.get(each.partition.name, each.partition)
            same = await digest_of(second, there, each.start, each.end) == each.digest
            if not same:
                note(await _differences(piece, second, there))
            progress.add(each.rows, each.size_bytes, changed=not same)
            options.report(progress)
            await options.rate_limiter.take(each.rows)
        progress.units += 1

    await for_each(units, work, options.concurrency)
    for name, partition in others.items():
        if name not in partitions:
            async for rows in row_batches(second, partition):
                note([Difference(name, key, Sort.ONLY_SECOND) for key, _ in rows])
    return Comparison(progress, tuple(found), count)


async def _differences(piece: Piece, second: ListingKv, there: Partition) -> list[Difference]:
    """The rows of a range that differ. Either side holds a few MiB, unless its ranges were cut differently."""
    name, left = piece.range.partition.name, dict(await piece.load())
    found: list[Difference] = []
    async for rows in row_batches(second, there, piece.range.start, piece.range.end):
        for key, value in rows:
            expected = left.pop(key, None)
            if expected is None:
                found.append(Difference(name, key, Sort.ONLY_SECOND))
            elif expected != value:
                found.append(Difference(name, key, Sort.VALUE))
    return found + [Difference(name, key, Sort.ONLY_FIRST) for key in left]
