"""Counts changes and their bytes, in all and for each top-level prefix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarn.core.listing.run import Ints, heads_of
from tarn.core.listing.sizes import sums_of_groups

__all__ = ["PREFIXES_MAX", "ChangeStats", "ChangeTally", "stats_of_groups"]

PREFIXES_MAX = 1000
"""Most prefixes that a tally tells apart."""


@dataclass(frozen=True, slots=True)
class ChangeStats:
    """Counts and sizes of some changes.

    Attributes:
        added: number of paths that only the right side has.
        updated: number of paths whose identities differ.
        removed: number of paths that only the left side has.
        bytes_added: sum of the object sizes of added paths, and of updated paths on the right.
        bytes_removed: sum of the object sizes of removed paths, and of updated paths on the left.
    """

    added: int = 0
    updated: int = 0
    removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0

    @property
    def count(self) -> int:
        """The number of paths that differ."""
        return self.added + self.updated + self.removed

    def __add__(self, other: ChangeStats) -> ChangeStats:
        return ChangeStats(
            self.added + other.added,
            self.updated + other.updated,
            self.removed + other.removed,
            self.bytes_added + other.bytes_added,
            self.bytes_removed + other.bytes_removed,
        )


@dataclass(slots=True)
class ChangeTally:
    """Adds up batches of changes.

    Attributes:
        prefixes_max: most prefixes that are told apart: the first ones in the order of the batches.
        total: all changes.
        prefixes: the changes below each top-level prefix, which ends with its `/`. Paths without a `/` count under
            the empty prefix.
        others: the changes below all prefixes that were too many.
    """

    prefixes_max: int = PREFIXES_MAX
    total: ChangeStats = ChangeStats()
    prefixes: dict[str, ChangeStats] = field(default_factory=dict)
    others: ChangeStats = ChangeStats()

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds the changes of a batch of `DIFF_SCHEMA`."""
        if not batch.num_rows:
            return
        for name, stats in stats_of_groups(batch, _top_levels(batch.column("path"))):
            self.total += stats
            if name in self.prefixes or len(self.prefixes) < self.prefixes_max:
                self.prefixes[name] = self.prefixes.get(name, ChangeStats()) + stats
            else:
                self.others += stats


def stats_of_groups(
    batch: pa.RecordBatch, groups: pa.StringArray
) -> Iterator[tuple[str, ChangeStats]]:
    """Yields each group of a batch of `DIFF_SCHEMA` with its changes, in the order of first rows.

    Args:
        batch: the changes.
        groups: the name of each row's group.
    """
    names = groups.dictionary_encode()
    rows, count = names.indices.to_numpy(), len(names.dictionary)
    has_left, has_right = (
        batch.column(side).is_valid().to_numpy(zero_copy_only=False) for side in ("left", "right")
    )
    columns: list[list[int] | npt.NDArray[np.integer]] = [
        np.bincount(rows[~has_left], minlength=count),
        np.bincount(rows[has_left & has_right], minlength=count),
        np.bincount(rows[~has_right], minlength=count),
        sums_of_groups(rows[has_right], _sizes_of(batch.column("right")), count),
        sums_of_groups(rows[has_left], _sizes_of(batch.column("left")), count),
    ]
    for name, *numbers in zip(names.dictionary.to_pylist(), *columns, strict=True):
        yield name, ChangeStats(*map(int, numbers))


def _top_levels(paths: pa.StringArray) -> pa.StringArray:
    """The first segment of each path with its `/`; empty without a `/`."""
    firsts = pc.list_element(pc.split_pattern(paths, "/", max_splits=1), 0)
    named = pc.binary_join_element_wise(firsts, "/", "")
    return pc.if_else(pc.match_substring(paths, "/"), named, "")


def _sizes_of(values: pa.BinaryArray) -> Ints:
    """The object sizes of the entries that are not null."""
    sizes: Ints = heads_of(values.drop_null())["size"]
    return sizes
