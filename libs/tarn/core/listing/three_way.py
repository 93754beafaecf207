r"""The three-way merge of listings, vectorised over runs (docs/design/versioning.md).

Entries are compared in two ways. They are *equal* if their bytes are equal, and the *same* if their identities are
equal: then they are one version of the object, possibly at different addresses. A path without an entry equals, and is
the same as, no entry. For each path, the first of these lines that holds decides:

    1  the source equals the base                   → the destination's entry
    2  the destination equals the base              → the source's entry
    3  the source is the same as the destination    → the destination's entry
    4  the source is the same as the base           → the destination's entry
    5  the destination is the same as the base      → the source's entry
    6  otherwise                                    → a conflict

Only identities make a conflict. Bytes come first so that the result is one exact listing: wherever the destination
equals the base, it is the source, byte for byte, so whole ranges of either side are taken over unopened.

Cost: as two differences of runs, O(rows) in C, and then O(changes x log changes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.core.entry import TOMBSTONE
from tarn.core.listing.changes import match_paths
from tarn.core.listing.choice import Choice, Side
from tarn.core.listing.diff import diff_runs
from tarn.core.listing.run import EMPTY_RUN, Bools, Run, identities_of

__all__ = ["CONFLICT_SCHEMA", "NO_CONFLICTS", "RunMerge", "merge_runs"]

CONFLICT_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("base", pa.binary()),
        pa.field("source", pa.binary()),
        pa.field("dest", pa.binary()),
    ]
)
"""Conflicts in columns, sorted by path: packed entries. A side is null if it does not have the path."""

# `from_pylist` would import pandas.
NO_CONFLICTS = pa.RecordBatch.from_arrays(
    [pa.nulls(0, field.type) for field in CONFLICT_SCHEMA], schema=CONFLICT_SCHEMA
)

_NO_ENTRY = b""
"""The identity of a path without an entry; none has this one."""
_NO_SIDE = -1


@dataclass(frozen=True, slots=True, eq=False)
class RunMerge:
    """The merge of some rows.

    Attributes:
        changes: what to apply to the destination, exactly (`apply_changes`); tombstones delete.
        conflicts: the conflicts that the choice refuses, a batch of `CONFLICT_SCHEMA`. Their paths are not in
            `changes`.
        source_count: number of conflicts that the choice gave to the source.
        dest_count: number of conflicts that the choice gave to the destination.
    """

    changes: Run
    conflicts: pa.RecordBatch
    source_count: int = 0
    dest_count: int = 0


def merge_runs(base: Run, source: Run, dest: Run, choice: Choice) -> RunMerge:
    """Merges all rows of one span of paths, by the table of this module."""
    # Line 1: only what the source has changed can change the destination.
    changed = diff_runs(base, source, exact=True)
    if not changed.num_rows:
        return RunMerge(EMPTY_RUN, NO_CONFLICTS)
    takes_source = np.ones(changed.num_rows, np.bool_)

    # Line 2: of that, the destination takes what it has left alone. The other lines are about `both`: the rows of
    # `changed` whose paths both sides have changed.
    changed_by_dest = diff_runs(base, dest, exact=True)
    matches = match_paths(changed.column("path"), changed_by_dest.column("path"))
    both = np.flatnonzero(matches.found)
    if not len(both):
        return RunMerge(_changes(changed, takes_source), NO_CONFLICTS)
    rows = pa.array(both)
    entries = [
        changed.column("left").take(rows),
        changed.column("right").take(rows),
        changed_by_dest.column("right").take(pa.array(matches.at[both])),
    ]
    base_id, source_id, dest_id = (pc.fill_null(identities_of(each), _NO_ENTRY) for each in entries)

    # Lines 3 to 6, in this order: a path is at most one of kept, taken over and in conflict.
    is_kept = _same(source_id, dest_id) | _same(source_id, base_id)
    is_taken = ~is_kept & _same(dest_id, base_id)
    is_conflict = ~is_kept & ~is_taken
    takes_source[both] = is_taken
    if not is_conflict.any():
        return RunMerge(_changes(changed, takes_source), NO_CONFLICTS)

    # The choice gives conflicts to a side, or refuses them.
    paths = changed.column("path").take(rows)
    sides = np.where(is_conflict, choice.sides(paths), _NO_SIDE)
    takes_source[both[sides == Side.SOURCE]] = True
    refused = pa.array(sides == Side.REFUSE)
    return RunMerge(
        _changes(changed, takes_source),
        pa.RecordBatch.from_arrays(
            [column.filter(refused) for column in (paths, *entries)], schema=CONFLICT_SCHEMA
        ),
        int((sides == Side.SOURCE).sum()),
        int((sides == Side.DEST).sum()),
    )


def _same(left: pa.BinaryArray, right: pa.BinaryArray) -> Bools:
    same: Bools = pc.equal(left, right).to_numpy(zero_copy_only=False)
    return same


def _changes(changed: pa.RecordBatch, takes_source: Bools) -> Run:
    """Returns the source's entries of the rows that the destination takes over; tombstones for paths it deletes."""
    if not takes_source.all():
        changed = changed.filter(pa.array(takes_source))
    return Run(changed.column("path"), pc.fill_null(changed.column("right"), TOMBSTONE))
