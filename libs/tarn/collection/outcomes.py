"""The outcome of each candidate of a sweep: Parquet files beside the quarantine, and a report with the totals.

Files are written while the sweep goes on. A sweep that is resumed reads them, and does not delete those blocks
again. Blocks that were deleted after the last file and before an interruption are deleted once more, which does no
harm.
"""

from __future__ import annotations

import enum
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tarn.block.paging import blocks_below
from tarn.block.port import (
    BlockInfo,
    BlockKey,
    BlockNotFoundError,
    BlockStore,
    ReadBlocks,
    read_whole,
)
from tarn.collection.block_names import BlockKind, Listed, listed_of, paths_of
from tarn.collection.quarantine import Tally, run_folder
from tarn.collection.spill import Spill
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.parquet import UNREADABLE, ParquetLimits, read_table

__all__ = [
    "Outcome",
    "OutcomeLog",
    "Report",
    "outcome_files",
    "read_outcomes",
    "read_report",
    "write_report",
]


class Outcome(enum.StrEnum):
    """The outcome of a candidate."""

    DELETED = "deleted"
    REFERENCED = "referenced"
    """A root refers to it now: it was kept."""
    RENEWED = "renewed"
    """A builder wrote it again after the mark: it was kept."""
    FAILED = "failed"
    """The block store did not delete it, or did not answer; the next run finds it again."""


_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
    ]
)
_FOLDER: Final = "sweep/"
_FLUSH_ROWS: Final = 1 << 16
_LIMITS: Final = ParquetLimits(rows=1 << 22, size_bytes=128 << 20)
"""A file has `_FLUSH_ROWS` rows, and at most those of a part of the mark more."""
_VERSION: Final = 1
_REPORT_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Report:
    """The end of a run.

    Attributes:
        mark_run_id: the mark, 32 hex digits.
        sweep_run_id: the sweep that came to an end, 32 hex digits.
        repository: its name at the time.
        cutoff_us: younger blocks were kept, microseconds since the epoch.
        swept_us: when the last batch had ended.
        listed: all blocks at the time of the mark, by the value of their kind.
        outcomes: candidates, by the value of their kind, then by outcome.
        sampled: live blocks that the canary read again.
        missing: paths of those that were missing, or had other bytes, after the sweep. Any is a defect.
    """

    mark_run_id: str
    sweep_run_id: str
    repository: str
    cutoff_us: int
    swept_us: int
    listed: Mapping[str, Tally]
    outcomes: Mapping[str, Mapping[str, Tally]]
    sampled: int
    missing: tuple[str, ...]

    def total(self, outcome: Outcome) -> Tally:
        """Returns the blocks of all kinds that had an outcome."""
        found = Tally()
        for tallies in self.outcomes.values():
            tally = tallies[outcome.value]
            found.add(tally.count, tally.size_bytes)
        return found


class OutcomeLog:
    """Records outcomes of the sweeps of one mark.

    Args:
        mark_run_id: the mark, so that a sweep goes on where an interrupted one of the same mark stopped.
        attempt: 32 hex digits, new for each process that works on the run.
    """

    def __init__(self, blocks: BlockStore, namespace: str, mark_run_id: str, attempt: str) -> None:
        self._blocks = blocks
        self._namespace = namespace
        self._mark_run_id = mark_run_id
        self._folder = run_folder(mark_run_id) + _FOLDER
        self._attempt = attempt
        self._files = 0
        self._held: list[pa.Table] = []
        self._held_count = 0
        self.tallies = {
            kind.value: {outcome.value: Tally() for outcome in Outcome} for kind in BlockKind
        }

    def add(self, kind: BlockKind, rows: Listed, outcome: Outcome) -> None:
        """Records the outcome of some blocks; written by the next `flush`."""
        if not len(rows):
            return
        self.count(kind, rows, outcome)
        paths = paths_of(kind, np.ascontiguousarray(rows["key"]))
        told = pa.repeat(pa.scalar(outcome.value), len(rows))
        self._held.append(
            pa.Table.from_arrays([paths, pa.array(rows["size"]), told], schema=_SCHEMA)
        )
        self._held_count += len(rows)

    def count(self, kind: BlockKind, rows: Listed, outcome: Outcome) -> None:
        """Counts blocks whose outcome is in a file already."""
        self.tallies[kind.value][outcome.value].add(len(rows), int(rows["size"].sum()))

    async def flush(self, *, always: bool = True) -> None:
        """Writes the buffered outcomes; unless `always`, only if there are many."""
        if not self._held_count or (not always and self._held_count < _FLUSH_ROWS):
            return
        sink = pa.BufferOutputStream()
        pq.write_table(pa.concat_tables(self._held), sink, compression="zstd")
        path = f"{self._folder}{self._attempt}-{self._files:06d}.parquet"
        await self._blocks.put(BlockKey(self._namespace, path), sink.getvalue().to_pybytes())
        self._files += 1
        self._held, self._held_count = [], 0

    async def resume(
        self, deleted: Mapping[BlockKind, Spill], referenced: Mapping[BlockKind, Spill]
    ) -> None:
        """Adds the blocks that earlier attempts deleted, or noted as referenced; a block may come more than once.

        Raises:
            TarnError: CORRUPT if a file is damaged.
        """
        async for path in outcome_files(self._blocks, self._namespace, self._mark_run_id):
            for outcome, spills in (
                (Outcome.DELETED, deleted),
                (Outcome.REFERENCED, referenced),
            ):
                found = await read_outcomes(self._blocks, self._namespace, path, outcome)
                for kind, rows in found.items():
                    spills[kind].add(rows)


async def outcome_files(blocks: ReadBlocks, namespace: str, mark_run_id: str) -> AsyncIterator[str]:
    """Yields the paths of the files of outcomes of a mark's sweeps."""
    folder = run_folder(mark_run_id) + _FOLDER
    async for info in blocks_below(blocks, namespace, folder):
        yield info.path


async def read_outcomes(
    blocks: ReadBlocks, namespace: str, path: str, outcome: Outcome
) -> dict[BlockKind, Listed]:
    """Returns the blocks that had an outcome according to one file of outcomes; their times are 0.

    Raises:
        TarnError: CORRUPT if the file is damaged.
    """
    body = await read_whole(blocks, BlockKey(namespace, path))
    try:
        table = read_table(body, _SCHEMA, _LIMITS)
    except UNREADABLE as error:
        text = (
            f"{path} in {namespace}, a file of a garbage collection, cannot be read: "
            f"{error}; begin another run"
        )
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=path) from error
    rows = table.filter(pc.equal(table.column("outcome"), outcome.value))
    paths, sizes = rows.column("path").to_pylist(), rows.column("size").to_pylist()
    infos = [BlockInfo(path, size, 0) for path, size in zip(paths, sizes, strict=True)]
    return {
        kind: listed_of(kind, [one for one in infos if one.path.startswith(kind.prefix)])
        for kind in BlockKind
    }


def _report_key(namespace: str, mark_run_id: str) -> BlockKey:
    return BlockKey(namespace, run_folder(mark_run_id) + "report.json")


async def write_report(blocks: BlockStore, namespace: str, report: Report) -> None:
    """Writes the report, after which the sweep is over."""
    body = json.dumps({"version": _VERSION, **asdict(report)}, indent=1).encode()
    await blocks.put(_report_key(namespace, report.mark_run_id), body)


async def read_report(blocks: ReadBlocks, namespace: str, mark_run_id: str) -> Report | None:
    """Returns the report about a mark; None if no sweep of it has ended.

    Raises:
        TarnError: CORRUPT if it is damaged.
    """
    key = _report_key(namespace, mark_run_id)
    try:
        body = await blocks.read(key, 0, _REPORT_BYTES_MAX)
    except BlockNotFoundError:
        return None
    try:
        values = json.loads(body)
        if values.pop("version") != _VERSION:
            raise ValueError("it has another version")
        values["listed"] = {name: Tally(**tally) for name, tally in values["listed"].items()}
        values["outcomes"] = {
            name: {outcome: Tally(**tally) for outcome, tally in tallies.items()}
            for name, tallies in values["outcomes"].items()
        }
        values["missing"] = tuple(values["missing"])
        return Report(**values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        text = f"{key.path} in {key.namespace} cannot be read: {error}"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=key.path) from error
