"""What differs between two listings: vectorised over runs, and page by page."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarn.core.merge import Counts, match_rows, same_identity
from tarn.core.run import Run, markers_of

__all__ = [
    "DIFF_SCHEMA",
    "DiffEntry",
    "DiffKind",
    "count_diff",
    "diff_changes",
    "diff_entries",
    "diff_runs",
]


class DiffKind(enum.IntEnum):
    """What happened to a path from left to right; the numbers are those of `DIFF_SCHEMA`."""

    ADDED = 1
    REMOVED = 2
    CHANGED = 3


@dataclass(frozen=True, slots=True)
class DiffEntry:
    """One path that differs.

    Attributes:
        path: in the repository.
        kind: seen from the left.
        left: packed entry, None if the path is only on the right.
        right: packed entry, None if the path is only on the left.
    """

    path: str
    kind: DiffKind
    left: bytes | None
    right: bytes | None


DIFF_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("left", pa.binary()),
        pa.field("right", pa.binary()),
    ]
)
"""Differences in bulk, sorted by path; `kind` holds numbers of `DiffKind`."""


def diff_runs(left: Run, right: Run) -> pa.RecordBatch:
    """The paths whose identity differs, as a batch of `DIFF_SCHEMA`."""
    left, right = _trim(left, right)
    matches = match_rows(right, left)
    same = same_identity(right, left, matches)
    only_left = np.ones(len(left), np.bool_)
    only_left[matches.at[matches.found]] = False
    removed = np.flatnonzero(only_left)
    chosen = np.flatnonzero(~same)
    changed = matches.found[chosen]
    # A removed row of the left goes before the first row of the right that is not smaller.
    before = (
        pc.search_sorted(right.paths.take(pa.array(chosen)), left.paths.take(pa.array(removed)))
        .to_numpy()
        .astype(np.int64)
    )
    rights = np.insert(chosen, before, -1)
    lefts = np.insert(np.where(changed, matches.at[chosen], -1), before, removed)
    return _batch(left, lefts, right, rights)


def diff_changes(base: Run, changes: Run) -> pa.RecordBatch:
    """What staged rows change of `base`: a marker is a removal, or nothing if it hides nothing.

    Rows of `base` that `changes` does not name do not matter, so any piece of a listing that spans
    the changes will do.
    """
    matches = match_rows(changes, base)
    marker = markers_of(changes.values)
    same = same_identity(changes, base, matches)
    chosen = np.flatnonzero(np.where(marker, matches.found, ~same))
    lefts = np.where(matches.found[chosen], matches.at[chosen], -1)
    rights = np.where(marker[chosen], -1, chosen)
    return _batch(base, lefts, changes, rights)


def _trim(left: Run, right: Run) -> tuple[Run, Run]:
    """Without the equal rows at both ends, which most ranges of two related commits begin and end with.

    Comparing in place costs a tenth of searching.
    """
    both = min(len(left), len(right))
    head = _equal_rows(left.slice(0, both), right.slice(0, both))
    left, right = left.slice(head), right.slice(head)
    both -= head
    tail = _equal_rows(left.slice(len(left) - both), right.slice(len(right) - both), from_end=True)
    return left.slice(0, len(left) - tail), right.slice(0, len(right) - tail)


def _equal_rows(left: Run, right: Run, *, from_end: bool = False) -> int:
    if not len(left):
        return 0
    paths = pc.equal(left.paths, right.paths).to_numpy(zero_copy_only=False)
    values = pc.equal(left.values, right.values).to_numpy(zero_copy_only=False)
    differs = ~(paths & values)
    if from_end:
        differs = differs[::-1]
    return int(differs.argmax()) if differs.any() else len(left)


def _batch(
    left: Run,
    lefts: npt.NDArray[np.integer],
    right: Run,
    rights: npt.NDArray[np.integer],
) -> pa.RecordBatch:
    """Rows by number on each side, -1 for none."""
    left_index = pa.array(lefts, pa.int64(), mask=lefts < 0)
    right_index = pa.array(rights, pa.int64(), mask=rights < 0)
    kinds = np.where(
        rights < 0, DiffKind.REMOVED, np.where(lefts < 0, DiffKind.ADDED, DiffKind.CHANGED)
    )
    paths = pc.coalesce(right.paths.take(right_index), left.paths.take(left_index))
    columns = [
        paths,
        pa.array(kinds.astype(np.int8)),
        left.values.take(left_index),
        right.values.take(right_index),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DIFF_SCHEMA)


def diff_entries(batch: pa.RecordBatch) -> list[DiffEntry]:
    """A page's worth of differences as objects."""
    columns = (batch.column(name).to_pylist() for name in ("path", "kind", "left", "right"))
    return [
        DiffEntry(path, DiffKind(kind), left, right)
        for path, kind, left, right in zip(*columns, strict=True)
    ]


def count_diff(batch: pa.RecordBatch) -> Counts:
    """How many of each kind."""
    counts = np.bincount(batch.column("kind").to_numpy(), minlength=4)
    return Counts(
        added=int(counts[DiffKind.ADDED]),
        updated=int(counts[DiffKind.CHANGED]),
        removed=int(counts[DiffKind.REMOVED]),
    )
