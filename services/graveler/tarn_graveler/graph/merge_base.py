"""Finds the merge bases of two commits, and whether a commit is an ancestor of another.

A *common ancestor* is a commit that is reachable from both; a commit is reachable from itself. The *merge bases* are
the common ancestors that no other common ancestor descends from. After criss-cross merges there are several;
`tarn_graveler.graph.virtual_bases` makes the base of a merge from them (docs/design/versioning.md).

All searches walk backwards, greatest generation first: when a commit is reached, all of its descendants on the way
have been passed, so its marks are complete, and it can be forgotten afterwards. They read each commit once, and all of
one generation in one batch. They hold only the frontier: O(width of the history).

The search for merge bases ends when nothing in the frontier can meet any more. If one side has no line of its own left,
that is at the merge base. Otherwise it goes on below, until all lines of one side have joined ancestors of a base.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId

__all__ = ["ReadCommits", "is_ancestor", "merge_bases"]

ReadCommits = Callable[[Sequence[CommitId]], Awaitable[list[Commit]]]
"""Returns commits in the order of their ids, such as `Commits.get_many` of one repository."""

_LEFT, _RIGHT, _BEHIND = 1, 2, 4
"""Marks: reachable from the left group, from the right group, from another common ancestor."""
_BOTH = _LEFT | _RIGHT
_ROUNDS_AT_ONCE = 64
"""Generations that are passed before other tasks get their turn: reads of cached commits do not wait."""


async def merge_bases(
    read: ReadCommits, lefts: Sequence[CommitId], rights: Sequence[CommitId], *, limit: int
) -> tuple[CommitId, ...]:
    """Returns the best common ancestors of two groups of commits: those that no other one descends from.

    Args:
        read: reads commits.
        lefts: a commit is an ancestor of the group if it is one of any of these.
        rights: likewise.
        limit: the search ends when it has found more than these, which are then not all.

    Returns:
        Greatest generation first, then latest time, then smallest id: the same in both orders of the groups. Empty if
        there is no common ancestor.

    Raises:
        TarnError: as `read`; CORRUPT if a parent's generation is not smaller than its child's.
    """
    frontier = _Frontier(read)
    starts = [(each, _LEFT, None) for each in lefts] + [(each, _RIGHT, None) for each in rights]
    await frontier.add(starts)
    found: list[CommitId] = []
    while frontier:
        generation = await frontier.pop_generation()
        found += [each.commit_id for each in generation if each.marks == _BOTH]
        if found and (len(found) > limit or not frontier.can_meet(generation)):
            break
        await frontier.add(
            [
                # An ancestor of a common ancestor is none of the best ones.
                (parent, each.marks | (_BEHIND if each.marks == _BOTH else 0), each)
                for each in generation
                for parent in each.commit.parents
            ]
        )
    return tuple(found)


async def is_ancestor(read: ReadCommits, ancestor: CommitId, descendant: CommitId) -> bool:
    """Returns whether `ancestor` is reachable from `descendant`; each commit is from itself.

    Reads the commits from `descendant` down to the generation of `ancestor`.

    Raises:
        TarnError: as `merge_bases`.
    """
    if ancestor == descendant:
        return True
    (last,) = await read([ancestor])
    frontier = _Frontier(read)
    await frontier.add([(descendant, _LEFT, None)])
    while frontier:
        generation = await frontier.pop_generation()
        if generation[0].commit.generation <= last.generation:
            return False
        parents = [(parent, _LEFT, each) for each in generation for parent in each.commit.parents]
        if any(parent == ancestor for parent, _, _ in parents):
            return True
        await frontier.add(parents)
    return False


@dataclass(slots=True)
class _Reached:
    """A commit of the frontier, and its marks."""

    commit_id: CommitId
    commit: Commit
    marks: int


@dataclass(slots=True)
class _Frontier:
    """Commits that were reached and not yet passed, greatest generation first, then latest time, then smallest id."""

    read: ReadCommits
    _heap: list[tuple[int, int, CommitId]] = field(default_factory=list)
    _reached: dict[CommitId, _Reached] = field(default_factory=dict)
    _counts: list[int] = field(default_factory=lambda: [0] * 8)
    """Number of commits of the frontier by their marks."""
    _rounds: int = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    def can_meet(self, passed: Sequence[_Reached]) -> bool:
        """Whether a further best common ancestor may be found, in the frontier or behind it.

        Args:
            passed: commits that left the frontier, whose parents are not in it yet.
        """
        counts = self._counts
        if counts[_BOTH]:
            return True
        # A commit that both sides reach only behind a common ancestor is none of the best ones. So a line of its own
        # must be left on each side.
        return all(
            counts[side] or any(each.marks == side for each in passed) for side in (_LEFT, _RIGHT)
        )

    async def add(self, found: Sequence[tuple[CommitId, int, _Reached | None]]) -> None:
        """Adds commits with their marks, each with the child that named it."""
        missing = list(dict.fromkeys(each for each, _, _ in found if each not in self._reached))
        for commit_id, commit in zip(missing, await self.read(missing), strict=True):
            self._reached[commit_id] = _Reached(commit_id, commit, 0)
            self._counts[0] += 1
            heapq.heappush(self._heap, (-commit.generation, -commit.create_time_us, commit_id))
        for commit_id, marks, child in found:
            reached = self._reached[commit_id]
            if child is not None and reached.commit.generation >= child.commit.generation:
                raise _corrupt(child, reached)
            self._counts[reached.marks] -= 1
            reached.marks |= marks
            self._counts[reached.marks] += 1

    async def pop_generation(self) -> list[_Reached]:
        """Removes the commits of the greatest generation, in order; there must be one."""
        self._rounds += 1
        if self._rounds % _ROUNDS_AT_ONCE == 0:
            await asyncio.sleep(0)
        return list(self._pop())

    def _pop(self) -> Iterator[_Reached]:
        generation = self._heap[0][0]
        while self._heap and self._heap[0][0] == generation:
            reached = self._reached.pop(heapq.heappop(self._heap)[2])
            self._counts[reached.marks] -= 1
            yield reached


def _corrupt(child: _Reached, parent: _Reached) -> TarnError:
    text = (
        f"commit {child.commit_id} of generation {child.commit.generation} has the parent {parent.commit_id} of "
        f"generation {parent.commit.generation}; a parent's generation must be smaller"
    )
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
