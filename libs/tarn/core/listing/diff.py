"""What differs between two listings: vectorised over runs, and page by page.

Pages are columns, as listings are (`tarn.core.listing.pages`): an object for each change costs more than
finding it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarn.core.listing.changes import match_rows, same_identity
from tarn.core.listing.run import Run, tombstones_of

__all__ = [
    "DIFF_SCHEMA",
    "DiffPage",
    "DiffRows",
    "diff_changes",
    "diff_runs",
]


@dataclass(frozen=True, slots=True)
class DiffPage:
    """Changes in byte order of their paths. What happened to a path is told by the sides that have it.

    Attributes:
        paths: that differ.
        lefts: packed entries, one for each path; empty if only the right has it (added).
        rights: the same; empty if only the left has it (removed).
        next_after: continues the difference, None at its end. A page may be short before the end.
    """

    paths: list[str]
    lefts: list[bytes]
    rights: list[bytes]
    next_after: str | None


DIFF_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("left", pa.binary()),
        pa.field("right", pa.binary()),
    ]
)
"""Differences in bulk, sorted by path; a side is null if it does not have the path."""


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
    """What staged rows change of `base`: a tombstone is a removal, or nothing if it hides nothing.

    Rows of `base` that `changes` does not name do not matter, so any piece of a listing that spans
    the changes will do.
    """
    matches = match_rows(changes, base)
    tombstone = tombstones_of(changes.values)
    same = same_identity(changes, base, matches)
    chosen = np.flatnonzero(np.where(tombstone, matches.found, ~same))
    lefts = np.where(matches.found[chosen], matches.at[chosen], -1)
    rights = np.where(tombstone[chosen], -1, chosen)
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
    paths = pc.coalesce(right.paths.take(right_index), left.paths.take(left_index))
    columns = [
        paths,
        left.values.take(left_index),
        right.values.take(right_index),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DIFF_SCHEMA)


@dataclass(slots=True)
class DiffRows:
    """Changes as they are found, until they make a page.

    Attributes:
        limit: how many, at least one.
        bytes_left: of paths and entries; the change that exceeds them is taken, and is the last.
        paths, lefts, rights: as `DiffPage` has them.
    """

    limit: int
    bytes_left: int
    paths: list[str] = field(default_factory=list)
    lefts: list[bytes] = field(default_factory=list)
    rights: list[bytes] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> bool:
        """Takes the next changes, a batch of `DIFF_SCHEMA`; whether not all of them fit."""
        found: int = batch.num_rows
        count = min(found, self.limit - len(self.paths))
        if not count or self.bytes_left <= 0:
            return found > 0
        taken = batch.slice(0, count)
        if taken.nbytes > self.bytes_left:
            sizes = _row_bytes(taken).cumsum()
            count = min(count, int(np.searchsorted(sizes, self.bytes_left)) + 1)
            taken = batch.slice(0, count)
        self.bytes_left -= taken.nbytes
        self.paths += taken.column("path").to_pylist()
        self.lefts += pc.fill_null(taken.column("left"), b"").to_pylist()
        self.rights += pc.fill_null(taken.column("right"), b"").to_pylist()
        return count < found

    def page(self, next_after: str | None) -> DiffPage:
        """What was taken, and where it goes on."""
        return DiffPage(self.paths, self.lefts, self.rights, next_after)


def _row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of path and entries of each row."""
    total = np.zeros(batch.num_rows, np.int64)
    for name in ("path", "left", "right"):
        total += pc.fill_null(pc.binary_length(batch.column(name)), 0).to_numpy()
    return total
