"""The base of a merge by definition: sets of ancestors, and a recursive merge of dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["LEVELS", "UNDECIDED", "RecursiveMerge", "folded"]

K = TypeVar("K", bound=str)

Contents = Mapping[str, int]
"""Version by path."""
UNDECIDED = -1
"""Stands for the version of an undecided path."""
LEVELS = 4
"""Folds of merge bases within folds; beyond, paths that differ are undecided."""


def folded(base: Contents | None, left: Contents, right: Contents) -> Contents:
    """Merges two merge bases; without a base, every path that differs is undecided."""
    result = {}
    for path in left.keys() | right.keys():
        ours, theirs = left.get(path), right.get(path)
        old = None if base is None else base.get(path)
        if UNDECIDED in (ours, theirs):
            new: int | None = UNDECIDED
        elif ours == theirs:
            new = ours
        elif base is None or old not in (ours, theirs):
            new = UNDECIDED
        else:
            new = theirs if ours == old else ours
        if new is not None:
            result[path] = new
    return result


class RecursiveMerge(Generic[K]):
    """Finds merge bases, and what a merge uses as its base.

    Args:
        parents: those of each commit.
        contents: those of each commit.
        rank: decides the order of merge bases, smallest first.
    """

    def __init__(
        self,
        parents: Mapping[K, Sequence[K]],
        contents: Mapping[K, Contents],
        rank: Callable[[K], Any],
    ) -> None:
        self._parents = parents
        self._contents = contents
        self._rank = rank

    def bases(self, lefts: Sequence[K], right: K) -> list[K]:
        """Returns the common ancestors that are no ancestors of another one."""
        common = self._ancestors(lefts) & self._ancestors([right])
        best = {
            each
            for each in common
            if not any(each in self._ancestors([o]) for o in common - {each})
        }
        return sorted(best, key=self._rank)

    def base(self, bases: Sequence[K], level: int = 1) -> Contents | None:
        """Returns the contents of the only merge base, the fold of several, or nothing; None beyond the limit."""
        if len(bases) < 2:
            return self._contents[bases[0]] if bases else {}
        if level > LEVELS:
            return None
        result = self._contents[bases[0]]
        for at in range(1, len(bases)):
            below = self.base(self.bases(bases[:at], bases[at]), level + 1)
            result = folded(below, result, self._contents[bases[at]])
        return result

    def _ancestors(self, commits: Sequence[K]) -> set[K]:
        found, left = set(commits), [*commits]
        while left:
            parents = set(self._parents[left.pop()]) - found
            found |= parents
            left += parents
        return found
