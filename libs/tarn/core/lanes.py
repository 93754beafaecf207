"""Lanes of history: in which column each commit stands, and how the columns go from one commit to the next.

Commits come in an order in which none precedes one of its descendants. Each column waits for one commit. Several
columns that wait for the same commit join above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Lanes", "lanes"]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The columns around one commit. All numbers are columns, from 0 at the left.

    Attributes:
        at: the column of the commit.
        count: number of columns above the commit, with its own.
        is_first: whether nothing waited for the commit, so that its column begins with it.
        joining: the other columns that end in the commit, from right to left.
        parents: number of columns that leave the commit, to `at` and those right of it.
    """

    at: int
    count: int
    is_first: bool
    joining: tuple[int, ...]
    parents: int

    @property
    def count_below(self) -> int:
        """Number of columns below the commit."""
        return self.count - len(self.joining) - 1 + self.parents

    def above(self) -> list[int]:
        """Returns the columns that come from above into the commit."""
        return [*([] if self.is_first else [self.at]), *reversed(self.joining)]

    def below(self) -> list[int]:
        """Returns the columns that leave the commit downwards, one for each parent."""
        return [self.at + place for place in range(self.parents)]

    def passing(self) -> list[tuple[int, int]]:
        """Returns the columns that pass the commit: where each is above it, and where below it."""
        found, joined = [], 0
        for column in range(self.count):
            if column in self.joining:
                joined += 1
            elif column < self.at:
                found.append((column, column))
            elif column > self.at:
                found.append((column, column - joined + self.parents - 1))
        return found


def lanes(commits: Iterable[tuple[str, Sequence[str]]]) -> Iterator[Lanes]:
    """Yields the lanes around each commit.

    Args:
        commits: ids, each with those of the parents whose lines are drawn.
    """
    columns: list[str] = []  # The commit that each column waits for, from left to right.
    for commit_id, parent_ids in commits:
        is_first = commit_id not in columns
        if is_first:
            columns.append(commit_id)
        count, at = len(columns), columns.index(commit_id)
        joining = [place for place in range(at + 1, count) if columns[place] == commit_id]
        yield Lanes(at, count, is_first, tuple(reversed(joining)), len(parent_ids))
        rest = [each for each in columns[at + 1 :] if each != commit_id]
        columns = [*columns[:at], *parent_ids, *rest]
