"""Walks history backwards: all ancestors of a commit, or those of one commit that another one lacks.

Order: greatest generation first, then latest time, then smallest id. So a commit never precedes one of its
descendants, whatever their clocks said, and the order is the same on every replica.

Every commit of the frontier has *marks*: the ways in which it is reachable from the starts. When a commit is passed,
all of its descendants have been passed, so its marks are complete, and it can be forgotten. The walk holds only the
frontier: O(width of the history), at most `_WIDTH_MAX` commits.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId
from tarn_graveler.graph.merge_base import ReadCommits

__all__ = ["LEFT", "LISTED", "RIGHT", "Marked", "Order", "Span", "Walk", "order_of"]

LISTED, LEFT, RIGHT = 1, 2, 4
"""Marks: reachable in the way that is listed (with `first_parent`: by first parents only); reachable in any way from
the left start; reachable in any way from the right start."""

Marked = tuple[CommitId, int]
"""A commit and its marks."""

Order = tuple[int, int, CommitId]
"""The place of a commit in the order of a walk; smaller ones come first."""

_WIDTH_MAX = 100_000
"""Greatest number of commits of the frontier: some 30 MiB."""

_STEPS_AT_ONCE = 64
"""Commits that are passed before other tasks get their turn: reads of cached commits do not wait."""


def order_of(commit_id: CommitId, commit: Commit) -> Order:
    """Returns the place of a commit in the order of a walk."""
    return -commit.generation, -commit.create_time_us, commit_id


@dataclass(frozen=True, slots=True)
class Span:
    """A part of history.

    Attributes:
        starts: the commits where it begins, with their marks.
        hiding: a commit that has all of these marks is not listed; 0: all are listed.
        first_parent: list only what first parents lead to.
    """

    starts: tuple[Marked, ...]
    hiding: int
    first_parent: bool

    @staticmethod
    def of(commit_id: CommitId, *, first_parent: bool = False) -> Span:
        """All ancestors of a commit, and the commit."""
        return Span(((commit_id, LISTED),), 0, first_parent)

    @staticmethod
    def between(left: CommitId, right: CommitId, *, first_parent: bool = False) -> Span:
        """`left..right`: `right` and its ancestors, without `left` and its ancestors."""
        return Span(_joined((left, LEFT), (right, LISTED)), LEFT, first_parent)

    @staticmethod
    def of_either(left: CommitId, right: CommitId, *, first_parent: bool = False) -> Span:
        """`left...right`: the commits that only one of both reaches."""
        starts = _joined((left, LISTED | LEFT), (right, LISTED | RIGHT))
        return Span(starts, LEFT | RIGHT, first_parent)

    def lists(self, marks: int) -> bool:
        """Whether a commit with these marks is listed."""
        return bool(marks & LISTED) and not (self.hiding and marks & self.hiding == self.hiding)


def _joined(*starts: Marked) -> tuple[Marked, ...]:
    """Joins the marks of equal starts."""
    marks: dict[CommitId, int] = {}
    for commit_id, mark in starts:
        marks[commit_id] = marks.get(commit_id, 0) | mark
    return tuple(marks.items())


class Walk:
    """One walk over a span. It ends when no commit of the frontier is listed: then none of its ancestors is.

    Attributes:
        steps: number of commits passed so far, listed or not.
        last: the last commit passed; None before the first one.
    """

    def __init__(self, read: ReadCommits, span: Span, width_max: int = _WIDTH_MAX) -> None:
        self._read = read
        self._span = span
        self._width_max = width_max
        self._heap: list[Order] = []
        self._marks: dict[CommitId, int] = {}
        self._listed = 0  # Invariant: commits of the frontier that are listed.
        self.steps = 0
        self.last: CommitId | None = None

    @property
    def is_over(self) -> bool:
        """Whether no commit is left to list."""
        return not self._listed

    def frontier(self) -> tuple[Marked, ...]:
        """The commits to continue with, and their marks: the starts of a walk that continues this one."""
        return tuple(self._marks.items())

    async def add(self, found: Iterable[Marked], child: Order | None = None) -> None:
        """Adds commits with their marks: the starts, or the parents of `child`.

        Raises:
            TarnError: as the reader of commits; CORRUPT if a parent's generation is not smaller than its child's;
                EXHAUSTED if the history is wider than the walk can hold.
        """
        marked = [(commit_id, marks) for commit_id, marks in found if marks]
        missing = list(dict.fromkeys(each for each, _ in marked if each not in self._marks))
        for commit_id, commit in zip(missing, await self._read(missing), strict=True):
            order = order_of(commit_id, commit)
            if child is not None and order[0] <= child[0]:
                raise _corrupt(child, order)
            heapq.heappush(self._heap, order)
            self._marks[commit_id] = 0
        if len(self._marks) > self._width_max:
            raise _too_wide(self._width_max)
        for commit_id, marks in marked:
            before = self._marks[commit_id]
            self._marks[commit_id] = now = before | marks
            self._listed += self._span.lists(now) - self._span.lists(before)

    async def step(self) -> tuple[CommitId, Commit] | None:
        """Passes the next commit; returns it if it is listed, else None. The walk must not be over.

        Raises:
            TarnError: as `add`.
        """
        self.steps += 1
        if self.steps % _STEPS_AT_ONCE == 0:
            await asyncio.sleep(0)
        order = heapq.heappop(self._heap)
        commit_id = order[2]
        (commit,) = await self._read([commit_id])
        marks = self._marks.pop(commit_id)
        is_listed = self._span.lists(marks)
        self._listed -= is_listed
        self.last = commit_id
        # The other parents are reachable, but not in the way that is listed.
        further = marks & ~LISTED if self._span.first_parent else marks
        parents = [(each, further) for each in commit.parents]
        if parents:
            parents[0] = (parents[0][0], marks)
        await self.add(parents, order)
        return (commit_id, commit) if is_listed else None

    async def skip(self, place: Order, *, inclusive: bool = True) -> None:
        """Passes everything before a place in the order, and the commit at that place if `inclusive`."""
        while self._listed and (self._heap[0] < place or (inclusive and self._heap[0] == place)):
            await self.step()


def _corrupt(child: Order, parent: Order) -> TarnError:
    text = (
        f"commit {child[2]} of generation {-child[0]} has the parent {parent[2]} of generation "
        f"{-parent[0]}; a parent's generation must be smaller"
    )
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)


def _too_wide(width_max: int) -> TarnError:
    text = (
        f"more than {width_max:,} lines of history run side by side here, which is more than one walk can hold; "
        "follow first parents only, or exclude the history of an older ref"
    )
    return TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
