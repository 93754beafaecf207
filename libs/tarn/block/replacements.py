"""Entries that replace an erased entry of the commit, although they are the same object (docs/design/erase.md).

Writing the same object again is not a change: a listing keeps the entry that it has, with its block. If that block is
erased, the object could never be read again. So an entry whose like in the commit is erased names the erased address
(`Entry.replaced_address`), which is part of its identity: to commits, merges and differences it is a change.

Once the commit has such an entry, its object may be staged again, without the address: the same write, whose token was
sealed, or another one. That is no change again, so the row gets the address that the commit's entry has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from tarn.aio.first_error import collapse_error_groups
from tarn.block.rangereader import RangeReader
from tarn.core.errors import TarnError
from tarn.core.listing.changes import as_marked, as_replacements, equal_elsewhere, upto
from tarn.core.listing.metarange import Metarange, RangeInfo
from tarn.core.listing.run import Ints, Run, concat_runs

__all__ = ["ErasedRows", "beside_head", "replacing_rows", "with_replacements"]

_AT_ONCE: Final = 4
"""Ranges of the listing that are read at a time."""


class ErasedRows(Protocol):
    """The rows of a repository's erased addresses.

    Both reads find every row that was durable when this object was made. A row is never removed.
    """

    async def any(self) -> bool:
        """Whether there is a row."""
        ...

    async def among(self, addresses: Sequence[bytes]) -> AbstractSet[bytes]:
        """Returns those of some addresses that have a row."""
        ...


async def beside_head(
    run: Run, reader: RangeReader, namespace: str, head: Metarange
) -> AsyncGenerator[tuple[Run, Run | None], None]:
    """Cuts a run where the ranges of a listing end; yields each piece with the rows of its range, or None without."""
    pieces = await reader.compute(_cut, run, head)
    for at in range(0, len(pieces), _AT_ONCE):
        window = pieces[at : at + _AT_ONCE]
        with collapse_error_groups(prefer=TarnError):
            async with asyncio.TaskGroup() as group:
                loads = [group.create_task(_rows_of(reader, namespace, info)) for _, info in window]
        for (here, _), rows in zip(window, loads, strict=True):
            yield here, rows.result()


def _cut(run: Run, head: Metarange) -> list[tuple[Run, RangeInfo | None]]:
    """Cuts a run where the ranges of a listing end; returns each piece with the range that may hold its paths."""
    pieces: list[tuple[Run, RangeInfo | None]] = []
    left = run
    while len(left):
        place = head.range_of(left.first_path)
        if place == len(head.ranges):
            pieces.append((left, None))
            break
        info = head.ranges[place]
        here, left = upto(left, info.max_path)
        pieces.append((here, None if here.last_path < info.min_path else info))
    return pieces


async def _rows_of(reader: RangeReader, namespace: str, info: RangeInfo | None) -> Run | None:
    return None if info is None else (await reader.range(namespace, info.range_id)).run


async def with_replacements(
    changes: AsyncIterator[Run],
    reader: RangeReader,
    namespace: str,
    head: Metarange,
    erased: ErasedRows,
) -> AsyncGenerator[Run, None]:
    """Yields `changes`, in which each row that is the same object as an erased entry of the head replaces it.

    A repository without erasures costs one read. An erasure that begins after it is too late for these rows: they are
    of sealed tokens, so a write that begins later is acknowledged only in a newer token.
    """
    is_needed = await erased.any()
    async for run in changes:
        yield await replacing_rows(run, reader, namespace, head, erased) if is_needed else run


async def replacing_rows(
    run: Run, reader: RangeReader, namespace: str, head: Metarange, erased: ErasedRows
) -> Run:
    """Returns a run of staged rows, in which those that are the same object as an erased entry of the head replace it.

    `erased` was made after the staged rows were read, or they are of sealed tokens. So a write that began after an
    erasure is found together with the erasure, or its row is not found, or is acknowledged only in a newer token.
    """
    pieces: list[Run] = []
    async for here, committed in beside_head(run, reader, namespace, head):
        rows = here
        if committed is not None:
            rows, numbers, addresses = await reader.compute(_compared, here, committed)
            if addresses:
                gone = await erased.among(addresses)
                both = zip(numbers.tolist(), addresses, strict=True)
                replaced = {number: address for number, address in both if address in gone}
                rows = await reader.compute(as_replacements, rows, replaced)
        pieces.append(rows)
    return await reader.compute(concat_runs, pieces)


def _compared(here: Run, committed: Run) -> tuple[Run, Ints, list[bytes]]:
    """Returns rows with the marks that the committed entries have, and which of them are at another address."""
    rows = as_marked(here, committed)
    return rows, *equal_elsewhere(rows, committed)
