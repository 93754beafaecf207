"""Merges for tests: the rule of docs/design/versioning.md on dicts, and random histories to merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from tests.support.listings import Listing, applied, listings, paths, sample_entry

from tarn.core.entry import TOMBSTONE, identity_of, pack, unpack
from tarn.core.listing.choice import Side
from tarn.core.listing.virtual import UNDECIDED, FoldStep

__all__ = [
    "Conflict",
    "ModelMerge",
    "Trio",
    "fold_by_definition",
    "folds",
    "merge_by_definition",
    "rewritten",
    "trios",
]

Conflict = tuple[str, bytes, bytes, bytes]
"""A path, and its packed entries in base, source and destination, empty for none."""


@dataclass(frozen=True, slots=True)
class Trio:
    """Three listings to merge."""

    base: Listing
    source: Listing
    dest: Listing


@dataclass(frozen=True, slots=True)
class ModelMerge:
    """The result of a merge.

    Attributes:
        result: the merged listing; at refused conflicts the destination.
        refused: the conflicts that were refused, sorted.
        taken: the number of conflicts given to each side.
    """

    result: Listing
    refused: list[Conflict]
    taken: Mapping[Side, int]


def rewritten(packed: bytes, mtime_us: int = 7) -> bytes:
    """Returns the entry of the same object, written again: another address and time, the same identity."""
    return pack(replace(unpack(packed), mtime_us=mtime_us, address=bytes(16)))


def merge_by_definition(trio: Trio, choose: Callable[[str], Side] | None = None) -> ModelMerge:
    """Merges path by path. `choose` decides conflicts; None refuses them."""
    result: Listing = {}
    refused: list[Conflict] = []
    taken = {Side.SOURCE: 0, Side.DEST: 0}
    for path in sorted(trio.base.keys() | trio.source.keys() | trio.dest.keys()):
        base, source, dest = (
            listing.get(path, b"") for listing in (trio.base, trio.source, trio.dest)
        )
        if source == base:
            kept = dest
        elif dest == base:
            kept = source
        elif _is_same(source, dest) or _is_same(source, base):
            kept = dest
        elif _is_same(dest, base):
            kept = source
        else:
            side = choose(path) if choose is not None else Side.REFUSE
            if side is Side.REFUSE:
                refused.append((path, base, source, dest))
            else:
                taken[side] += 1
            kept = source if side is Side.SOURCE else dest
        if kept:
            result[path] = kept
    return ModelMerge(result, refused, taken)


def _is_same(left: bytes, right: bytes) -> bool:
    if not left or not right:
        return left == right
    return identity_of(left) == identity_of(right)


def fold_by_definition(listings: Sequence[Listing], steps: Sequence[FoldStep]) -> Listing:
    """Folds listings path by path; an undecided path has `UNDECIDED`."""
    results = list(listings)
    for step in steps:
        left, right = results[step.left], results[step.right]
        folded: Listing = {}
        for path in left.keys() | right.keys():
            pair = left.get(path, b""), right.get(path, b"")
            kept = UNDECIDED
            if UNDECIDED not in pair:
                here = [{path: each} if each else {} for each in pair]
                if step.base is not None:
                    before = results[step.base].get(path, b"")
                    trio = Trio({path: before} if before else {}, *here)
                    merged = merge_by_definition(trio)
                    kept = UNDECIDED if merged.refused else merged.result.get(path, b"")
                elif _is_same(*pair):
                    kept = pair[1]
            if kept:
                folded[path] = kept
        results.append(folded)
    return results[-1]


@st.composite
def folds(draw: st.DrawFn, max_size: int = 30) -> tuple[list[Listing], list[FoldStep]]:
    """Two to five listings that changed some of the same paths, and any steps over them."""
    base = draw(listings(max_size))
    values = st.one_of(st.just(TOMBSTONE), st.integers(0, 3).map(sample_entry))
    changes = st.dictionaries(paths(), values, max_size=max_size // 2)
    many = [base] + [applied(base, draw(changes)) for _ in range(draw(st.integers(1, 4)))]
    again = draw(st.sets(st.integers(0, max_size - 1)))
    many[-1] = _written_again(many[-1], again, mtime_us=7)
    steps: list[FoldStep] = []
    for number in range(len(many), len(many) + draw(st.integers(1, 4))):
        known = st.integers(0, number - 1)
        steps.append(FoldStep(draw(st.none() | known), draw(known), draw(known)))
    return many, steps


def trios(max_size: int = 40) -> st.SearchStrategy[Trio]:
    """Listings with a common ancestor: each side changed paths and wrote objects again, some of them both."""
    values = st.one_of(st.just(TOMBSTONE), st.integers(0, 3).map(sample_entry))
    changes = st.dictionaries(paths(), values, max_size=max_size // 2)
    places = st.sets(st.integers(0, max_size - 1))
    return st.builds(_trio, listings(max_size), changes, changes, changes, places, places)


def _trio(
    base: Listing,
    both: Listing,
    source: Listing,
    dest: Listing,
    source_again: set[int],
    dest_again: set[int],
) -> Trio:
    return Trio(
        base,
        _written_again(applied(base, both | source), source_again, mtime_us=7),
        _written_again(applied(base, both | dest), dest_again, mtime_us=8),
    )


def _written_again(listing: Listing, places: set[int], mtime_us: int) -> Listing:
    again = enumerate(sorted(listing.items()))
    return {
        path: rewritten(value, mtime_us) if place in places else value
        for place, (path, value) in again
    }
