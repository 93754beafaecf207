"""Virtual merge bases: the fold of several common ancestors into one listing, which is computed and never stored.

After criss-cross merges, two commits have several best common ancestors. A *fold* merges them one after the other, each
with the merge base of the pair (docs/design/versioning.md). A path that is in conflict there is *undecided*: it stays
so in later merges of the fold, and as a base it equals no version of an object. So both sides of the merge that uses
the fold must hold equal versions of it, or the path is in conflict.

A fold is evaluated for one span of paths at a time: by the ids of ranges as far as they decide (`reduced`), then by
rows (`fold_rows`). Memory: the rows of one span.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.core.entry import HEAD_BYTES, TOMBSTONE, VERSION
from tarn.core.ids import MetarangeId
from tarn.core.listing.changes import apply_changes, match_paths
from tarn.core.listing.choice import REFUSE
from tarn.core.listing.diff import diff_runs
from tarn.core.listing.metarange import Metarange, RangeInfo
from tarn.core.listing.run import EMPTY_RUN, Bools, Run, concat_runs
from tarn.core.listing.three_way import merge_runs

__all__ = [
    "UNDECIDED",
    "FoldStep",
    "Ranges",
    "SpanFold",
    "VirtualBase",
    "VirtualLeft",
    "VirtualListing",
    "decided",
    "fold_rows",
    "reduced",
    "undecided_of",
]

Ranges = tuple[RangeInfo, ...]

UNDECIDED = bytes([VERSION, 0]).ljust(HEAD_BYTES - 16, b"\0") + b"undecided"
"""Stands for the entry of an undecided path. Never written: it is shorter than an entry, so no entry equals it, and no
identity, nor the identity of a path without an entry, is the same as its own."""
assert HEAD_BYTES - 16 < len(UNDECIDED) < HEAD_BYTES


@dataclass(frozen=True, slots=True)
class FoldStep:
    """One merge of a fold. The numbers name listings, from 0, and behind them the results of earlier steps.

    Attributes:
        base: the merge base of the pair; None if it is not known: then all paths that differ are undecided.
        left, right: the listings to merge; the result is the same in both orders, but for the addresses of equal
            versions.
    """

    base: int | None
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class VirtualBase:
    """A virtual merge base, by the listings that it is made of.

    Attributes:
        listings: None is the empty listing.
        steps: at least one; the result of the last one is the virtual base.
    """

    listings: tuple[MetarangeId | None, ...]
    steps: tuple[FoldStep, ...]


@dataclass(frozen=True, slots=True)
class VirtualLeft:
    """A virtual base as the left side of a difference.

    Attributes:
        base: the virtual base.
        undecided: the listing that has the entries of its undecided paths.
    """

    base: VirtualBase
    undecided: MetarangeId


@dataclass(frozen=True, slots=True)
class VirtualListing:
    """The metaranges of a `VirtualBase`."""

    listings: tuple[Metarange, ...]
    steps: tuple[FoldStep, ...]


@dataclass(frozen=True, slots=True)
class SpanFold:
    """A fold in one span of paths, where no range is cut in two, after the steps that need no rows.

    Attributes:
        parts: different ranges of the span; each may be empty.
        steps: as in `FoldStep`, with the parts as listings; none if there is one part, and that is the result.
    """

    parts: tuple[Ranges, ...]
    steps: tuple[FoldStep, ...]


def reduced(listings: Sequence[Ranges], steps: Sequence[FoldStep]) -> SpanFold:
    """Does the steps of a fold that need no rows: two of the three listings have the same ranges.

    Args:
        listings: the ranges of each listing in one span of paths.
        steps: the fold.
    """
    places: dict[Ranges, int] = {}
    at = [places.setdefault(ranges, len(places)) for ranges in listings]
    made: dict[FoldStep, int] = {}
    for step in steps:
        base = None if step.base is None else at[step.base]
        left, right = at[step.left], at[step.right]
        # Only ranges have no undecided paths, which must stay: so a base that is a result decides nothing here.
        is_known = base is not None and base < len(places)
        if left == right or (is_known and right == base):
            at.append(left)
        elif is_known and left == base:
            at.append(right)
        else:
            at.append(made.setdefault(FoldStep(base, left, right), len(places) + len(made)))
    return _pruned(tuple(places), tuple(made), at[-1])


def _pruned(parts: Sequence[Ranges], steps: Sequence[FoldStep], last: int) -> SpanFold:
    """Leaves out the parts and steps that the result `last` does not need."""
    needed = {last}
    for number in range(len(steps) - 1, -1, -1):
        if len(parts) + number in needed:
            step = steps[number]
            needed |= {each for each in (step.base, step.left, step.right) if each is not None}
    order = {old: new for new, old in enumerate(sorted(needed))}
    return SpanFold(
        tuple(parts[each] for each in order if each < len(parts)),
        tuple(
            FoldStep(
                None if step.base is None else order[step.base],
                order[step.left],
                order[step.right],
            )
            for step in (steps[each - len(parts)] for each in order if each >= len(parts))
        ),
    )


def fold_rows(runs: Sequence[Run], steps: Sequence[FoldStep]) -> Run:
    """Returns the rows of a fold in one span of paths; the value of an undecided path is `UNDECIDED`.

    Args:
        runs: all rows of each listing in the span.
        steps: the fold; without steps, the result is the only run.
    """
    last_use: dict[int | None, int] = {}
    for number, step in enumerate(steps):
        last_use |= dict.fromkeys((step.base, step.left, step.right), number)
    values = list(runs)
    for number, step in enumerate(steps):
        base = None if step.base is None else values[step.base]
        values.append(_folded(base, values[step.left], values[step.right]))
        for each in (step.base, step.left, step.right):
            if each is not None and last_use[each] == number:
                values[each] = EMPTY_RUN  # so that memory holds the results that are still needed
    return values[-1]


def _folded(base: Run | None, left: Run, right: Run) -> Run:
    if base is None:
        rows, conflicts = right, diff_runs(left, right).column("path")
    else:
        merged = merge_runs(base, left, right, REFUSE)
        rows = concat_runs(apply_changes(right, merged.changes, exact=True).runs)
        conflicts = merged.conflicts.column("path")
    found = [conflicts, *(run.paths.filter(pa.array(undecided_of(run))) for run in (left, right))]
    paths = pc.unique(pa.concat_arrays(found))
    if not len(paths):
        return rows
    paths = paths.take(pc.sort_indices(paths))
    marks = Run(paths, pa.array([UNDECIDED] * len(paths), pa.binary()))
    return concat_runs(apply_changes(rows, marks, exact=True).runs)


def undecided_of(run: Run) -> Bools:
    """Which rows of a virtual base are undecided."""
    found: Bools = pc.equal(run.values, pa.scalar(UNDECIDED, pa.binary())).to_numpy(
        zero_copy_only=False
    )
    return found


def decided(base: Run, side: Run) -> Run:
    """Returns the rows of a virtual base with the entries of `side`, or none, at its undecided paths."""
    undecided = undecided_of(base)
    if not undecided.any():
        return base
    paths = base.paths.filter(pa.array(undecided))
    matches = match_paths(paths, side.paths)
    rows = pa.array(np.where(matches.found, matches.at, 0), pa.int64(), mask=~matches.found)
    values = pc.fill_null(side.values.take(rows), TOMBSTONE)
    return concat_runs(apply_changes(base, Run(paths, values), exact=True).runs)
