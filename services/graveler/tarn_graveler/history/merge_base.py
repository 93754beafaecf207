"""Finds the merge base of two commits, and whether a commit is an ancestor of another.

A *common ancestor* is a commit that is reachable from both; a commit is reachable from itself. The merge base is the
common ancestor with the greatest generation; of several, the one with the latest time; of several, the one with the
smallest id. It is never an ancestor of another common ancestor, because an ancestor has a smaller generation. After
criss-cross merges several common ancestors have that property. Then this rule picks one, the same for every replica
and for both orders of the arguments (docs/design/versioning.md).

Both searches walk backwards, greatest generation first: when a commit is reached, all of its descendants on the way
have been passed, so its marks are complete, and it can be forgotten afterwards. They read the parents of the
commits whose generation is greater than the base's, each once, and all of one generation in one batch. They hold
only the frontier: O(width of the history).
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId

__all__ = ["ReadCommits", "is_ancestor", "merge_base"]

ReadCommits = Callable[[Sequence[CommitId]], Awaitable[list[Commit]]]
"""Returns commits in the order of their ids, such as `Commits.get_many` of one repository."""

_LEFT, _RIGHT = 1, 2
_BOTH = _LEFT | _RIGHT
_ROUNDS_AT_ONCE = 64
"""Generations that are passed before other tasks get their turn: reads of cached commits do not wait."""


async def merge_base(read: ReadCommits, left: CommitId, right: CommitId) -> CommitId | None:
    """Returns the merge base of two commits; None if they have no common ancestor.

    Raises:
        TarnError: as `read`; CORRUPT if a parent's generation is not smaller than its child's.
    """
    frontier = _Frontier(read)
    await frontier.add([(left, _LEFT, None), (right, _RIGHT, None)])
    while frontier:
        generation = await frontier.pop_generation()
        for commit in generation:
            if commit.marks == _BOTH:
                return commit.commit_id
        await frontier.add(
            [(parent, each.marks, each) for each in generation for parent in each.commit.parents]
        )
    return None


async def is_ancestor(read: ReadCommits, ancestor: CommitId, descendant: CommitId) -> bool:
    """Returns whether `ancestor` is reachable from `descendant`; each commit is from itself.

    Reads the commits from `descendant` down to the generation of `ancestor`.

    Raises:
        TarnError: as `merge_base`.
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
    """A commit of the frontier, and the starts that it is reachable from."""

    commit_id: CommitId
    commit: Commit
    marks: int


@dataclass(slots=True)
class _Frontier:
    """Commits that were reached and not yet passed, greatest generation first, then latest time, then smallest id."""

    read: ReadCommits
    _heap: list[tuple[int, int, CommitId]] = field(default_factory=list)
    _reached: dict[CommitId, _Reached] = field(default_factory=dict)
    _rounds: int = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    async def add(self, found: Sequence[tuple[CommitId, int, _Reached | None]]) -> None:
        """Adds commits with their marks, each with the child that named it."""
        missing = list(dict.fromkeys(each for each, _, _ in found if each not in self._reached))
        for commit_id, commit in zip(missing, await self.read(missing), strict=True):
            self._reached[commit_id] = _Reached(commit_id, commit, 0)
            heapq.heappush(self._heap, (-commit.generation, -commit.create_time_us, commit_id))
        for commit_id, marks, child in found:
            reached = self._reached[commit_id]
            if child is not None and reached.commit.generation >= child.commit.generation:
                raise _corrupt(child, reached)
            reached.marks |= marks

    async def pop_generation(self) -> list[_Reached]:
        """Removes the commits of the greatest generation, in order; there must be one."""
        self._rounds += 1
        if self._rounds % _ROUNDS_AT_ONCE == 0:
            await asyncio.sleep(0)
        return list(self._pop())

    def _pop(self) -> Iterator[_Reached]:
        generation = self._heap[0][0]
        while self._heap and self._heap[0][0] == generation:
            yield self._reached.pop(heapq.heappop(self._heap)[2])


def _corrupt(child: _Reached, parent: _Reached) -> TarnError:
    text = (
        f"commit {child.commit_id} of generation {child.commit.generation} has the parent {parent.commit_id} of "
        f"generation {parent.commit.generation}; a parent's generation must be smaller"
    )
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
