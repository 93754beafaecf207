"""The difference between two listings, vectorised over runs, and as pages.

Pages are columns, as in `tarn.core.listing.pages`: one object per change would cost more than finding it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarn.core.listing.changes import match_rows, match_similar, same_bytes, same_identity
from tarn.core.listing.run import Run, identities_of, tombstones_of

__all__ = [
    "DIFF_SCHEMA",
    "DiffPage",
    "DiffRows",
    "diff_changes",
    "diff_runs",
    "fitting",
]


@dataclass(frozen=True, slots=True)
class DiffPage:
    """Changes in byte order of their paths. The sides that have an entry tell the kind of change.

    Attributes:
        paths: the paths that differ.
        lefts: packed entries, one for each path; empty if only the right side has the path (added).
        rights: packed entries, one for each path; empty if only the left side has the path (removed).
        next_after: where the next page begins; None at the end. A page may be short before the end.
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
"""Changes in columns, sorted by path. A side is null if it does not have the path."""


def diff_runs(left: Run, right: Run, *, exact: bool = False) -> pa.RecordBatch:
    """Returns the paths whose identities (with `exact`: packed entries) differ, as a batch of `DIFF_SCHEMA`."""
    left, right = _trim(left, right)
    if left.paths.equals(right.paths):
        return _updates(left, right, exact=exact)
    matches = match_similar(right, left)
    same = (same_bytes if exact else same_identity)(right, left, matches)
    only_left = np.ones(len(left), np.bool_)
    only_left[matches.at[matches.found]] = False
    removed = np.flatnonzero(only_left)
    chosen = np.flatnonzero(~same)
    changed = matches.found[chosen]
    # A row that only the left has is placed before the first greater row of the right.
    before = (
        pc.search_sorted(right.paths.take(pa.array(chosen)), left.paths.take(pa.array(removed)))
        .to_numpy()
        .astype(np.int64)
    )
    rights = np.insert(chosen, before, -1)
    lefts = np.insert(np.where(changed, matches.at[chosen], -1), before, removed)
    return _batch(left, lefts, right, rights)


def diff_changes(base: Run, changes: Run) -> pa.RecordBatch:
    """Returns what staged rows change in `base`. A tombstone is a removal, or no change if it hides nothing.

    Rows of `base` whose paths are not in `changes` do not matter, so any part of a listing that spans the
    changes gives the right result.
    """
    matches = match_rows(changes, base)
    tombstone = tombstones_of(changes.values)
    same = same_identity(changes, base, matches)
    chosen = np.flatnonzero(np.where(tombstone, matches.found, ~same))
    lefts = np.where(matches.found[chosen], matches.at[chosen], -1)
    rights = np.where(tombstone[chosen], -1, chosen)
    return _batch(base, lefts, changes, rights)


def _updates(left: Run, right: Run, *, exact: bool) -> pa.RecordBatch:
    """The difference of runs with the same paths: only rows whose bytes differ are looked at closely."""
    equal = pc.equal(left.values, right.values).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(~equal)
    left, right = left.take(rows), right.take(rows)
    batch = pa.RecordBatch.from_arrays([right.paths, left.values, right.values], schema=DIFF_SCHEMA)
    if exact:
        return batch
    return batch.filter(pc.not_equal(identities_of(left.values), identities_of(right.values)))


def _trim(left: Run, right: Run) -> tuple[Run, Run]:
    """Removes the equal rows at both ends; most ranges of two related commits have many of them.

    Comparing rows in place costs a tenth of searching for them.
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
    """Builds the batch from row numbers of each side; -1 for a side without a row."""
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
    """Collects changes until they make a page.

    Attributes:
        limit: most changes, at least one.
        bytes_left: bytes of paths and entries that still fit. The change that exceeds it is the last one
            taken.
        paths, lefts, rights: as in `DiffPage`.
    """

    limit: int
    bytes_left: int
    paths: list[str] = field(default_factory=list)
    lefts: list[bytes] = field(default_factory=list)
    rights: list[bytes] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> bool:
        """Adds the next changes, a batch of `DIFF_SCHEMA`. Returns whether some of them did not fit."""
        taken = fitting(batch, self.limit - len(self.paths), self.bytes_left)
        self.bytes_left -= taken.nbytes
        self.paths += taken.column("path").to_pylist()
        self.lefts += pc.fill_null(taken.column("left"), b"").to_pylist()
        self.rights += pc.fill_null(taken.column("right"), b"").to_pylist()
        return len(taken) < len(batch)

    def page(self, next_after: str | None) -> DiffPage:
        """The changes that were taken, and where the next page begins."""
        return DiffPage(self.paths, self.lefts, self.rights, next_after)


def fitting(batch: pa.RecordBatch, limit: int, bytes_left: int) -> pa.RecordBatch:
    """Returns the first rows of a batch of texts and entries: those that still fit a page, without a copy.

    Args:
        batch: the rows.
        limit: most rows.
        bytes_left: the row that exceeds them is the last one; without bytes left, none is.
    """
    if bytes_left <= 0:
        return batch.slice(0, 0)
    taken = batch.slice(0, limit)
    if taken.nbytes > bytes_left:
        sizes = _row_bytes(taken).cumsum()
        taken = taken.slice(0, int(np.searchsorted(sizes, bytes_left)) + 1)
    return taken


def _row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The size of each row: bytes of the path and of all entries."""
    total = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        total += pc.fill_null(pc.binary_length(column), 0).to_numpy()
    return total
