"""Fences: a build of a listing notices sweeps that may have taken the ranges and metaranges that it relies on.

Ranges and metaranges are named by their content. A build may find one in the bucket that nothing refers to any more,
and that a sweep has judged. The build puts it again, which makes it young, and makes its listing a *root*: it writes
the row of a commit, or pins a compacted listing in the branch record. Only then it looks at the collection record for
the last time. A sweep that begins later finds the root. One that had begun before the first look finds the blocks
young. If one began in between, the build is made again (rule 13 of docs/design/protocol.md).

A sweep looks at the time of each block after its batch has begun, and passes over a young one. So one that had begun
before can take a block only by a batch that overlaps the build. Then the build waits for the end of that batch, looks
whether its blocks are there, and is made again if not (docs/design/collection.md).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError, BlockStore
from tarn.core.clock import Clock
from tarn.core.collection import Collection, Disturbance, Phase, disturbance
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId
from tarn.kv.records import Repository
from tarn_graveler.records.collections import CollectionRecords
from tarn_graveler.records.expired import ExpiredCommits

__all__ = ["Fences", "BuildBlocks", "ResultT"]

_TRIES: Final = 3
_WAITS: Final = 10
_WAIT_SECONDS: Final = 1.0
_LOOKS_AT_ONCE: Final = 16

ResultT = TypeVar("ResultT")


class _DisturbedError(Exception):
    """A sweep may have taken a block of a build, which is therefore made again."""


class BuildBlocks:
    """The blocks of a build: the ranges and metaranges that it wrote, or found and made young.

    Args:
        is_whole: whether no sweep takes any of these paths.
        refuse_expired: raises if one of these commits has expired.
        is_beside_sweep: whether a sweep ran, or a batch was open, when the build began.
    """

    def __init__(
        self,
        is_whole: Callable[[set[str]], Awaitable[bool]],
        refuse_expired: Callable[[set[CommitId]], Awaitable[None]],
        *,
        is_beside_sweep: bool,
    ) -> None:
        self._is_whole = is_whole
        self._refuse_expired = refuse_expired
        self._is_beside_sweep = is_beside_sweep
        self._paths: set[str] = set()
        self._sources: set[CommitId] = set()

    def add(self, paths: Iterable[str]) -> None:
        """Adds paths."""
        self._paths.update(paths)

    def take_from(self, commit_ids: Iterable[CommitId]) -> None:
        """Adds commits whose entries the build takes, and that nothing keeps from expiring meanwhile (rule 14)."""
        self._sources.update(commit_ids)

    async def check(self) -> None:
        """Looks for sweeps before a root is made, if one runs. It is the later look that decides; this one saves most
        rows of commits that would name missing blocks for ever.
        """
        if self._is_beside_sweep:
            await self.check_again()

    async def check_again(self) -> None:
        """Looks for sweeps, and for commits that have expired, after the roots were made.

        Raises:
            TarnError: EXPIRED_COMMIT.
        """
        if self._sources:
            await self._refuse_expired(self._sources)
        if self._paths and not await self._is_whole(self._paths):
            raise _DisturbedError


class Fences:
    """Makes listings whose blocks no sweep takes."""

    def __init__(
        self,
        collections: CollectionRecords,
        expired: ExpiredCommits,
        blocks: BlockStore,
        clock: Clock,
    ) -> None:
        self._collections = collections
        self._expired = expired
        self._blocks = blocks
        self._clock = clock

    async def rooted(
        self, repository: Repository, make: Callable[[BuildBlocks], Awaitable[ResultT]]
    ) -> ResultT:
        """Returns the result of `make`, once no sweep has taken a block of it, or ever will while its root stays.

        Args:
            repository: where the listings are.
            make: builds listings, adds the blocks that it puts to its argument, checks that, and makes the listings
                roots before it returns. Called again if a sweep began meanwhile or took a block of the last result,
                which must not be used.

        Raises:
            TarnError: as `make`; UNAVAILABLE: this happened again and again, or a batch of deletions does not end.
        """
        for _ in range(_TRIES):
            begin_us = self._clock.now_us()
            before = await self._collections.read(repository)
            is_beside = before.phase is Phase.SWEEP or before.is_batch_open(begin_us)
            is_whole = partial(self._is_whole, repository, before, begin_us)
            made = BuildBlocks(
                is_whole, partial(self._expired.refuse, repository), is_beside_sweep=is_beside
            )
            try:
                result = await make(made)
                await made.check_again()
            except _DisturbedError:
                continue
            return result
        text = f"garbage collections disturbed a new listing {_TRIES} times while it was built; try again"
        raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)

    async def _is_whole(
        self, repository: Repository, before: Collection, begin_us: int, paths: set[str]
    ) -> bool:
        """Whether no sweep has taken one of these blocks, or will take it although it is referenced.

        Raises:
            TarnError: UNAVAILABLE.
        """
        ids = [_id_of(path) for path in paths]
        after = await self._collections.read(repository)
        found = disturbance(before, after, ids, begin_us)
        if found is Disturbance.BATCH:
            await self._wait(repository, ids)
            return await self._are_there(repository, paths)
        return found is Disturbance.NONE

    async def _wait(self, repository: Repository, block_ids: Sequence[str]) -> None:
        """Waits until no open batch names one of these blocks.

        Raises:
            TarnError: UNAVAILABLE.
        """
        for _ in range(_WAITS):
            now = await self._collections.read(repository)
            if not now.may_delete(block_ids, self._clock.now_us()):
                return
            await self._clock.sleep(_WAIT_SECONDS)
        text = "a garbage collection is deleting ranges that the new listing needs; try again in some minutes"
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)

    async def _are_there(self, repository: Repository, paths: Iterable[str]) -> bool:
        missing: list[str] = []

        async def look(path: str) -> None:
            try:
                await self._blocks.stat(BlockKey(repository.storage_namespace, path))
            except BlockNotFoundError:
                missing.append(path)

        await for_each(sorted(paths), look, _LOOKS_AT_ONCE)
        return not missing


def _id_of(path: str) -> str:
    """Returns the id in the path of a range or a metarange."""
    return path.rpartition("/")[2].partition(".")[0]
