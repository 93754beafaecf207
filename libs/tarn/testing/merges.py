"""Merges for tests: the rule of docs/design/versioning.md on dicts, and random histories to merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tarn.core.entry import TOMBSTONE, identity_of, pack, unpack
from tarn.core.listing.choice import Side
from tarn.testing.listings import Listing, applied, listings, paths, sample_entry

__all__ = ["Conflict", "ModelMerge", "Trio", "merge_by_definition", "rewritten", "trios"]

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
    """What a merge gives.

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
