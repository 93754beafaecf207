"""Sums of object sizes. No check kept older releases from storing sizes whose sum is more than 64 bits hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tarn.core.listing.run import Ints

__all__ = ["BYTES_MAX", "bounded", "sum_of", "sums_of_groups"]

BYTES_MAX = 2**63 - 1
"""The largest number of bytes in messages and files."""


def bounded(size_bytes: int) -> int:
    """Returns the nearest number of bytes that a message can hold."""
    return min(size_bytes, BYTES_MAX)


def sum_of(sizes: Ints) -> int:
    """Returns the exact sum of sizes that are not negative."""
    return sum(sizes.tolist()) if _may_overflow(sizes) else int(sizes.sum())


def sums_of_groups(rows: npt.NDArray[np.integer], sizes: Ints, count: int) -> list[int]:
    """Returns the exact sum of the sizes of each group.

    Args:
        rows: number of the group of each size, below `count`.
        sizes: not negative.
        count: number of groups.
    """
    # `bincount` with weights would use floats.
    if _may_overflow(sizes):
        exact = np.zeros(count, object)
        np.add.at(exact, rows, sizes.astype(object))
        return [int(each) for each in exact]
    sums = np.zeros(count, np.int64)
    np.add.at(sums, rows, sizes)
    made: list[int] = sums.tolist()
    return made


def _may_overflow(sizes: Ints) -> bool:
    return len(sizes) > 0 and int(sizes.max()) > BYTES_MAX // len(sizes)
