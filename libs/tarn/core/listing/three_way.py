r"""The three-way merge of listings, vectorised over runs (docs/design/versioning.md).

Entries are compared in two ways. They are *equal* if their bytes are equal, and the *same* if their identities are
equal: then they are one version of the object, possibly at different addresses. A path without an entry equals, and is
the same as, no entry. For each path, the first of these lines that holds decides:

    the source equals the base                   → the destination's entry
    the destination equals the base              → the source's entry
    the source is the same as the destination    → the destination's entry
    the source is the same as the base           → the destination's entry
    the destination is the same as the base      → the source's entry
    otherwise                                    → a conflict

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

NO_CONFLICTS = pa.RecordBatch.from_pylist([], schema=CONFLICT_SCHEMA)


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
    """Merges all rows of one span of paths."""
    theirs = diff_runs(base, source, exact=True)
    ours = diff_runs(base, dest, exact=True)
    if not theirs.num_rows:
        return RunMerge(EMPTY_RUN, NO_CONFLICTS)
    taken = np.ones(theirs.num_rows, np.bool_)
    matches = match_paths(theirs.column("path"), ours.column("path"))
    both = np.flatnonzero(matches.found)
    if not len(both):
        return RunMerge(_changes(theirs, taken), NO_CONFLICTS)
    at = pa.array(both)
    sides = [
        theirs.column("left").take(at),
        theirs.column("right").take(at),
        ours.column("right").take(pa.array(matches.at[both])),
    ]
    old, new, own = (pc.fill_null(identities_of(side), b"") for side in sides)
    conflict = ~(_equal(new, own) | _equal(new, old))
    taken[both] = conflict & _equal(own, old)
    conflict &= ~taken[both]
    if not conflict.any():
        return RunMerge(_changes(theirs, taken), NO_CONFLICTS)
    paths = theirs.column("path").take(at)
    choices = np.where(conflict, choice.sides(paths), -1)
    taken[both[choices == Side.SOURCE]] = True
    refused = pa.array(choices == Side.REFUSE)
    return RunMerge(
        _changes(theirs, taken),
        pa.RecordBatch.from_arrays(
            [column.filter(refused) for column in (paths, *sides)], schema=CONFLICT_SCHEMA
        ),
        int((choices == Side.SOURCE).sum()),
        int((choices == Side.DEST).sum()),
    )


def _equal(left: pa.BinaryArray, right: pa.BinaryArray) -> Bools:
    equal: Bools = pc.equal(left, right).to_numpy(zero_copy_only=False)
    return equal


def _changes(theirs: pa.RecordBatch, taken: Bools) -> Run:
    if not taken.all():
        theirs = theirs.filter(pa.array(taken))
    return Run(theirs.column("path"), pc.fill_null(theirs.column("right"), TOMBSTONE))
