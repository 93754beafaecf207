"""Builds the listing of a commit, or of the changes that a reset leaves. Orders and results are ids, so that any
process can do a build.

An order names sealed tokens of a confirmed record (rule 4) and the listing beneath them. The builder
reads the tokens itself: a row that was acknowledged before the seal was confirmed is in every later scan,
by any process. Nothing refers to the result until the branch record does. So a build that fails, is
cancelled or is done twice leaves only unreferenced files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tarn.block.committed import BuildResult, Committed
from tarn.core.ids import MetarangeId
from tarn.core.listing.spans import PathSpan
from tarn.kv.keys import PATHS_END, PATHS_START, path_key
from tarn.kv.port import Partition, ScanKv
from tarn_graveler.records.erased_lookups import ScannedErasures

__all__ = [
    "BuildOrder",
    "Builder",
    "InlineBuilder",
    "again",
    "batch_of",
    "build_layers",
    "keys_of",
    "keys_without",
    "rows_batch",
    "staged_batches",
]

_SLICE_END: Final = 1 << 20  # the stop of `binary_slice` for "to the end"


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """The input of a build.

    Attributes:
        namespace: storage namespace of the repository.
        base: the listing to start from.
        tokens: the sealed tokens over it, newest first. Invariant: their seal is confirmed.
        head: the listing of the branch's commit, if `base` is a compacted one.
        reset: paths that get the commit's content; the tokens' rows of these paths are not even read. None: none.
        counts_changes: the result counts what changes the commit. If `base` is a compacted listing, that compares all
            of it with `head`, which only a commit needs.
        finely: cuts the listing finer where it is written, so that the next build over it rewrites less; for compacted
            listings.
        is_background: no caller waits for the result, so it leaves room for builds of commits; for the
            compactor's compactions.
        rows: a newest layer over the tokens: paths, ascending, and their entries or tombstones.
        commits: the partition of the repository's commits, which holds the rows of erased addresses. A staged entry
            that is the same object as an erased entry of the commit replaces it. None: none is erased.
    """

    namespace: str
    base: MetarangeId
    tokens: tuple[Partition, ...]
    head: MetarangeId | None = None
    reset: PathSpan | None = None
    counts_changes: bool = True
    finely: bool = False
    is_background: bool = False
    rows: tuple[tuple[str, bytes], ...] = ()
    commits: Partition | None = None


class Builder(Protocol):
    """Writes listings durably."""

    async def build(self, order: BuildOrder) -> BuildResult:
        """Builds the listing of an order; its ranges and metarange are durable when this returns.

        Raises:
            TarnError: as `Committed.build` and the KV; UNAVAILABLE if the building process ended. No
                error leaves anything published.
        """
        ...


class InlineBuilder:
    """Builds in this process: small commits, simulations, and tools."""

    def __init__(self, kv: ScanKv, committed: Committed) -> None:
        self._kv = kv
        self._committed = committed

    async def build(self, order: BuildOrder) -> BuildResult:
        """See `Builder.build`."""
        layers = [staged_batches(self._kv, token, order.reset) for token in order.tokens]
        if order.rows:
            layers.insert(0, again([rows_batch(order.rows)]))
        return await build_layers(self._kv, self._committed, order, layers)


async def build_layers(
    kv: ScanKv,
    committed: Committed,
    order: BuildOrder,
    layers: Sequence[AsyncIterator[pa.RecordBatch]],
) -> BuildResult:
    """Builds the listing of an order, whose rows are in layers: the newest one first.

    Raises:
        TarnError: as `Builder.build`.
    """
    return await committed.build(
        order.namespace,
        order.base,
        layers,
        head=order.head,
        restored=order.reset,
        counts_changes=order.counts_changes,
        finely=order.finely,
        erased=None if order.commits is None else ScannedErasures(kv, order.commits),
    )


async def staged_batches(
    kv: ScanKv, token: Partition, without: PathSpan | None = None
) -> AsyncIterator[pa.RecordBatch]:
    """Yields the staged rows of a token in byte order, as batches of the columns `path` and `value`.

    Args:
        kv: the store.
        token: the token.
        without: paths whose rows are left out; None: no paths.
    """
    for start, end in keys_without(without):
        async for batch in kv.scan_arrow(token, start, end):
            yield batch_of(batch.column("key"), batch.column("value"))


def rows_batch(rows: Sequence[tuple[str, bytes]]) -> pa.RecordBatch:
    """Makes a batch of `path` and `value` from the rows of an order."""
    paths, values = zip(*rows, strict=True)
    columns = [pa.array(paths, pa.string()), pa.array(values, pa.binary())]
    return pa.record_batch(columns, names=["path", "value"])


async def again(batches: Sequence[pa.RecordBatch]) -> AsyncIterator[pa.RecordBatch]:
    """Yields batches that were already read, as a layer of a build."""
    for batch in batches:
        yield batch


def keys_of(span: PathSpan) -> tuple[bytes, bytes]:
    """Returns the bounds of the keys of a span in a token: first, and end (exclusive)."""
    return path_key(span.start), PATHS_END if span.end is None else path_key(span.end)


def keys_without(span: PathSpan | None) -> list[tuple[bytes, bytes]]:
    """Returns the bounds of all keys of paths in a token that are not in a span, in order."""
    if span is None:
        return [(PATHS_START, PATHS_END)]
    start, end = keys_of(span)
    return [each for each in ((PATHS_START, start), (end, PATHS_END)) if each[0] < each[1]]


def batch_of(keys: pa.BinaryArray, values: pa.BinaryArray) -> pa.RecordBatch:
    """Makes a batch of `path` and `value` from rows of a token."""
    paths = pc.binary_slice(keys, len(PATHS_START), _SLICE_END).cast(pa.string())
    return pa.record_batch([paths, values], names=["path", "value"])
