"""Tasks of executors: list slices, read roots, open listings, write and read the files of a run.

Each is a `BatchWork`: it takes rows that name what to do, and yields rows of blocks. All can be repeated, as Spark does
when an executor dies: they read what never changes, or write files under names of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from tarn.aio.parallel import for_each
from tarn.block.keys import LIST_LIMIT_MAX
from tarn.block.port import BlockStore
from tarn.collection.block_names import BlockKind, Bytes, listed_of
from tarn.collection.outcomes import Outcome, OutcomeLog, read_outcomes
from tarn.collection.quarantine import Part, QuarantineWriter, read_part
from tarn.collection.references import find_addresses, find_ranges
from tarn.collection.root_files import read_root_part
from tarn.core.ids import MetarangeId, RangeId
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_spark.collection.columns import (
    ascending,
    by_kind,
    keys_batch,
    listed_batch,
    missing_batch,
)

__all__ = [
    "LACKS",
    "OUTCOME_TALLIES",
    "PARTS",
    "SLICES",
    "FindListings",
    "ListSlices",
    "OpenListings",
    "ReadNoted",
    "ReadQuarantine",
    "ReadRoots",
    "WriteOutcomes",
    "WriteQuarantine",
    "new_attempt",
]

PARTS: Final = "path string, kind string, count bigint, size_bytes bigint, sha256 string"
"""Rows that are `tarn.collection.quarantine.Part`."""
LACKS: Final = "listing binary, lacks binary"
"""Keys of metaranges, each with that of a range which it names and which is missing."""
SLICES: Final = "kind string, prefix string, after string"
OUTCOME_TALLIES: Final = "kind string, count bigint, size_bytes bigint"
_OPENED_AT_ONCE: Final = 4


def new_attempt() -> str:
    """Returns the id of an attempt of a task: files of two attempts never have the same name."""
    return SystemIds(SystemClock()).uuid7().hex()


def _parts(batch: pa.RecordBatch) -> list[Part]:
    return [Part(**row) for row in batch.to_pylist()]


@dataclass(frozen=True, slots=True)
class ListSlices:
    """Lists slices of a namespace; yields all blocks, young ones included. Takes `SLICES`, yields `LISTED`."""

    namespace: str

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        for row in batch.to_pylist():
            kind, after = BlockKind(row["kind"]), row["after"]
            while True:
                page = await blocks.list_page(self.namespace, row["prefix"], after, LIST_LIMIT_MAX)
                yield listed_batch(kind, listed_of(kind, page))
                if len(page) < LIST_LIMIT_MAX:
                    break
                after = page[-1].path


@dataclass(frozen=True, slots=True)
class ReadRoots:
    """Reads parts of the roots. Takes `PARTS`, yields `KEYS`."""

    namespace: str

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        for part in _parts(batch):
            yield keys_batch(
                BlockKind(part.kind), await read_root_part(blocks, self.namespace, part)
            )


@dataclass(frozen=True, slots=True)
class OpenListings:
    """Opens metaranges, and yields the keys of their ranges; or ranges, and yields addresses. `KEYS` to `KEYS`.

    Every file is verified against its id: a damaged one that names too little would let live blocks go. A missing one
    yields a row that says so (`MISSING`).
    """

    namespace: str

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        for kind, rows in by_kind(batch):
            keys = [key.tobytes() for key in rows["key"]]
            for start in range(0, len(keys), _OPENED_AT_ONCE):
                opened: list[Bytes] = []
                missing: list[bytes] = []
                open_one = partial(self._open, blocks, kind, opened, missing)
                await for_each(keys[start : start + _OPENED_AT_ONCE], open_one, _OPENED_AT_ONCE)
                inner = BlockKind.RANGE if kind is BlockKind.METARANGE else BlockKind.DATA
                for found in opened:
                    yield keys_batch(inner, found)
                if missing:
                    yield missing_batch(kind, missing)

    async def _open(
        self,
        blocks: BlockStore,
        kind: BlockKind,
        opened: list[Bytes],
        missing: list[bytes],
        key: bytes,
    ) -> None:
        if kind is BlockKind.METARANGE:
            found = await find_ranges(blocks, self.namespace, MetarangeId(key.hex()))
        else:
            found = await find_addresses(blocks, self.namespace, RangeId(key.hex()))
        if found is None:
            missing.append(key)
        else:
            opened.append(found)


@dataclass(frozen=True, slots=True)
class FindListings:
    """Finds the metaranges that name missing ranges. Takes `KEYS` of metaranges, yields `LACKS`.

    Attributes:
        namespace: of the repository.
        missing: keys of ranges.
    """

    namespace: str
    missing: frozenset[bytes]

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        for key in batch.column("key").to_pylist():
            ranges = await find_ranges(blocks, self.namespace, MetarangeId(key.hex()))
            named = () if ranges is None else self.missing.intersection(map(bytes, ranges))
            if named:
                yield pa.RecordBatch.from_pydict({"listing": [key], "lacks": [min(named)]})


@dataclass(frozen=True, slots=True)
class WriteQuarantine:
    """Writes candidates to quarantine. Takes `LISTED`, yields `PARTS`.

    Attributes:
        namespace: of the repository.
        run_id: of the mark.
        dry_run: write nothing.
    """

    namespace: str
    run_id: str
    dry_run: bool

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        target = None if self.dry_run else blocks
        writer = QuarantineWriter(target, self.namespace, self.run_id, new_attempt())
        for kind, rows in by_kind(batch):
            await writer.add(kind, rows)
            await writer.flush(kind)
        columns = [[getattr(part, name) for part in writer.parts] for name in _PART_NAMES]
        yield pa.RecordBatch.from_arrays([pa.array(each) for each in columns], names=_PART_NAMES)


_PART_NAMES: Final = ["path", "kind", "count", "size_bytes", "sha256"]


@dataclass(frozen=True, slots=True)
class ReadQuarantine:
    """Reads files of a quarantine. Takes `PARTS`, yields `LISTED`."""

    namespace: str

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        for part in _parts(batch):
            rows = await read_part(blocks, self.namespace, part)
            yield listed_batch(BlockKind(part.kind), rows)


@dataclass(frozen=True, slots=True)
class ReadNoted:
    """Reads which blocks had an outcome in earlier attempts. Takes paths of files of outcomes, yields `KEYS`."""

    namespace: str
    outcome: Outcome

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        for path in batch.column("path").to_pylist():
            found = await read_outcomes(blocks, self.namespace, path, self.outcome)
            for kind, rows in found.items():
                yield keys_batch(kind, np.ascontiguousarray(rows["key"]))


@dataclass(frozen=True, slots=True)
class WriteOutcomes:
    """Writes one outcome of blocks. Takes `LISTED`, yields `OUTCOME_TALLIES`."""

    namespace: str
    mark_run_id: str
    outcome: Outcome

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        log = OutcomeLog(blocks, self.namespace, self.mark_run_id, new_attempt())
        for kind, rows in by_kind(batch):
            log.add(kind, ascending(kind, rows), self.outcome)
        await log.flush()
        told = [
            (kind, tallies[self.outcome.value]) for kind, tallies in sorted(log.tallies.items())
        ]
        yield pa.RecordBatch.from_pydict(
            {
                "kind": [kind for kind, _ in told],
                "count": [tally.count for _, tally in told],
                "size_bytes": [tally.size_bytes for _, tally in told],
            }
        )
