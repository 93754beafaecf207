"""Fences: a build of a listing notices deletions of the ranges and metaranges that it relies on.

Ranges and metaranges are named by their content. A build may find one in the bucket that nothing refers to any more,
and that a sweep has judged. The build puts it again, which makes it young; a sweep looks at the time of each block
after its batch has begun, and passes over a young one. So only a batch that overlaps the build can take a block from
it. The build reads the collection record before and after. If a batch overlapped that may have named one of its
blocks, it waits for the end of that batch, looks whether its blocks are there, and is made again if not
(docs/design/collection.md).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from tarn.aio.parallel import for_each
from tarn.block.applying import BuildResult
from tarn.block.port import BlockKey, BlockNotFoundError, BlockStore
from tarn.core.clock import Clock
from tarn.core.collection import is_undisturbed
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.records import Repository
from tarn_graveler.branch.building import Builder, BuildOrder
from tarn_graveler.collection.records import Collections

__all__ = ["FencedBuilder", "Fences", "Made", "MadeT"]

_TRIES: Final = 3
_WAITS: Final = 10
_WAIT_SECONDS: Final = 1.0
_LOOKS_AT_ONCE: Final = 16


class Made(Protocol):
    """The result of a build."""

    @property
    def made(self) -> tuple[str, ...]:
        """Paths of the ranges and metaranges that were put."""
        ...


MadeT = TypeVar("MadeT", bound=Made)


class Fences:
    """Makes builds whose blocks no sweep has taken."""

    def __init__(self, collections: Collections, blocks: BlockStore, clock: Clock) -> None:
        self._collections = collections
        self._blocks = blocks
        self._clock = clock

    async def built(self, repository: Repository, build: Callable[[], Awaitable[MadeT]]) -> MadeT:
        """Returns the result of a build, once all of its blocks are there and young.

        Args:
            repository: where the listing is.
            build: makes the build; called again if a sweep took a block of the last one.

        Raises:
            TarnError: as `build`; UNAVAILABLE: sweeps took its blocks again and again, or one did not end, or the build
                took longer than a block stays young.
        """
        for _ in range(_TRIES):
            begin_us = self._clock.now_us()
            before = await self._collections.read(repository)
            result = await build()
            if not result.made:
                return result
            ids = [_id_of(path) for path in result.made]
            after = await self._collections.read(repository)
            if not is_undisturbed(before, after, ids, begin_us):
                await self._wait(repository, ids)
                if not await self._are_there(repository, result.made):
                    continue
            if self._clock.now_us() - begin_us >= self._collections.limits.staging_us:
                text = "the listing took too long to build; its ranges may be judged as unused. Try again"
                raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
            return result
        text = f"a garbage collection took ranges of a listing {_TRIES} times while it was built; try again"
        raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)

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

    async def _are_there(self, repository: Repository, paths: Sequence[str]) -> bool:
        missing: list[str] = []

        async def look(path: str) -> None:
            try:
                await self._blocks.stat(BlockKey(repository.storage_namespace, path))
            except BlockNotFoundError:
                missing.append(path)

        await for_each(paths, look, _LOOKS_AT_ONCE)
        return not missing


class FencedBuilder:
    """Builds listings of branches behind the fences."""

    def __init__(self, builder: Builder, fences: Fences) -> None:
        self._builder = builder
        self._fences = fences

    async def build(self, repository: Repository, order: BuildOrder) -> BuildResult:
        """Builds the listing of an order, as `Builder.build`; no sweep has taken a block of it.

        Raises:
            TarnError: as `Builder.build` and `Fences.built`.
        """
        return await self._fences.built(repository, lambda: self._builder.build(order))


def _id_of(path: str) -> str:
    """Returns the id in the path of a range or a metarange."""
    return path.rpartition("/")[2].partition(".")[0]
