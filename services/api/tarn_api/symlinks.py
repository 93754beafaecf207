"""Symlink manifests: files that tell engines which objects of the bucket are those of a directory
(docs/formats/symlinks.md).

A run first looks at all directories, and writes nothing if one cannot have a manifest or if there are too many. Then it
replaces the manifests, one directory after the other, and at last removes those of directories that are gone. Runs for
one ref exclude each other, in all processes, by a block that each leaves in the namespace while it works: otherwise a
slow run could put back what a later one replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import compress
from typing import Final

from tarn.aio.parallel import for_each
from tarn.block.keys import REPLACED_PREFIX, check_replaced
from tarn.block.paging import pages_below
from tarn.block.port import BlockKey, BlockStore
from tarn.client.graveler import GravelerClient
from tarn.core.clock import Clock
from tarn.core.entry import ListedEntry, listed_of
from tarn.core.errors import TarnError
from tarn.core.ids import physical_path
from tarn.objects.bodies import refuse_external
from tarn.rpc.wire.call import Call
from tarn_api.errors import ApiError

__all__ = ["MANIFEST", "RUNS_PREFIX", "SymlinkLimits", "SymlinkPlace", "SymlinkWriter"]

MANIFEST: Final = "symlink.txt"
RUNS_PREFIX: Final = "_tarn/symlink-runs/"
"""Prefix of the blocks by which runs exclude each other."""

_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class SymlinkLimits:
    """Bounds of one run.

    Attributes:
        objects_max: number of objects.
        directories_max: number of directories that have objects of their own: their names are held in memory.
        seconds: from its beginning to its end.
        at_once: manifests that are written at the same time.
    """

    objects_max: int = 1_000_000
    directories_max: int = 10_000
    seconds: float = 300.0
    at_once: int = 8


@dataclass(frozen=True, slots=True)
class SymlinkPlace:
    """What a run is about.

    Attributes:
        repository: its name.
        ref: the branch, the tag or the whole commit id that names the manifests.
        namespace: of the repository.
        location: the directory: empty for all objects, or ending in `/`.
    """

    repository: str
    ref: str
    namespace: str
    location: str

    def manifest(self, directory: str) -> str:
        """Returns the path of the manifest of a directory, which is empty or ends in `/`."""
        return f"{self._root}{directory}{MANIFEST}"

    @property
    def prefix(self) -> str:
        """Begins the paths of all manifests of the run."""
        return self._root + self.location

    @property
    def _root(self) -> str:
        return f"{REPLACED_PREFIX}{self.repository}/{self.ref}/"

    @property
    def runs(self) -> str:
        """Begins the paths of the blocks of runs."""
        return f"{RUNS_PREFIX}{self.repository}/{self.ref}/"


class SymlinkWriter:
    """Writes the manifests of one place.

    Args:
        graveler: lists the objects.
        blocks: stores the manifests.
        clock: tells the age of the blocks of other runs.
        call: makes the context of each rpc, which is a read of the caller.
        place: see `SymlinkPlace`.
        limits: see `SymlinkLimits`.
    """

    def __init__(
        self,
        graveler: GravelerClient,
        blocks: BlockStore,
        clock: Clock,
        call: Callable[[], Call],
        place: SymlinkPlace,
        limits: SymlinkLimits,
    ) -> None:
        self._graveler = graveler
        self._blocks = blocks
        self._clock = clock
        self._call = call
        self._place = place
        self._limits = limits

    async def run(self, run_id: str) -> None:
        """Makes the manifests those of the commit to which the ref points now.

        Args:
            run_id: a name that no other run has: letters and digits.

        Raises:
            ApiError: 400: a limit, or a directory that can have no manifest: nothing was changed. 409: another run
                writes manifests of this ref. 500: the time is over, after a part of them may have been replaced.
            TarnError: of graveler or of the block store.
        """
        seconds = self._limits.seconds
        try:
            async with asyncio.timeout(seconds), self._alone(run_id):
                place = self._place
                head = await self._graveler.get_commit(self._call(), place.repository, place.ref)
                directories = await self._directories(head.commit_id)

                async def write(directory: str) -> None:
                    await self._write(head.commit_id, directory)

                await for_each(directories, write, self._limits.at_once)
                await self._remove_others(directories)
        except TimeoutError:
            text = (
                f"the manifests were not complete after {seconds:.0f} s; some are those of the new commit, and none "
                "was removed before all were; repeat the request, or ask for one directory after the other"
            )
            raise ApiError(500, text, reason="TOO_SLOW") from None

    @asynccontextmanager
    async def _alone(self, run_id: str) -> AsyncIterator[None]:
        """Excludes other runs of the ref. One that died is forgotten after twice the time that a run may take.

        Of two runs that begin together, both may see each other and end.

        Raises:
            ApiError: 409.
        """
        place, blocks = self._place, self._blocks
        own = f"{place.runs}{run_id}"
        await blocks.put(BlockKey(place.namespace, own), run_id.encode())
        try:
            seen = await blocks.list_page(place.namespace, place.runs, "", _PAGE)
            others = [each for each in seen if each.path != own]
            oldest_us = self._clock.now_us() - int(2e6 * self._limits.seconds)
            if any(each.mtime_us > oldest_us for each in others):
                text = f"another request writes the manifests of {place.ref}; repeat this one when that has ended"
                raise ApiError(409, text, reason="CONFLICT")
            await blocks.delete_many(place.namespace, [each.path for each in others])
            yield
        finally:
            await blocks.delete_many(place.namespace, [own])

    async def _directories(self, commit_id: str) -> list[str]:
        """Returns the directories that have objects of their own, in byte order of their first objects.

        Raises:
            ApiError: 400.
        """
        found: dict[str, None] = {}
        count, begin = 0, len(self._place.location)
        last: str | None = None
        async for paths, _ in self._pages(commit_id, self._place.location, delimiter=""):
            for path in paths:
                if _is_hidden(path[begin:]):
                    continue
                count += 1
                directory = path[: path.rfind("/") + 1]
                if directory != last:
                    last = directory
                    if directory not in found:
                        self._check(directory)
                        found[directory] = None
            self._check_counts(count, len(found))
        return list(found)

    def _check_counts(self, objects: int, directories: int) -> None:
        limits = self._limits
        if objects > limits.objects_max or directories > limits.directories_max:
            text = (
                f"there are more than {limits.objects_max} objects or {limits.directories_max} directories; ask for "
                "one part after the other, with location"
            )
            raise ApiError(400, text, reason="TOO_MANY")

    def _check(self, directory: str) -> None:
        if f"/{MANIFEST}/" in f"/{directory}":
            text = f"{directory!r} can have no manifest: one of its names is that of the manifests"
            raise ApiError(400, text, reason="INVALID_ARGUMENT")
        try:
            check_replaced(self._place.manifest(directory))
        except TarnError as error:
            text = f"{directory!r} can have no manifest: {error.message}"
            raise ApiError(400, text, reason="INVALID_ARGUMENT") from error

    async def _pages(
        self, commit_id: str, prefix: str, *, delimiter: str
    ) -> AsyncIterator[tuple[Sequence[str], Sequence[ListedEntry]]]:
        """Yields the objects below a prefix in byte order, page by page, without common prefixes."""
        token = ""
        while True:
            page = await self._graveler.list_entries(
                self._call(),
                self._place.repository,
                commit_id,
                prefix=prefix,
                delimiter=delimiter,
                page_size=_PAGE,
                page_token=token,
            )
            yield list(compress(page.paths, page.entries)), listed_of(filter(None, page.entries))
            token = page.next_page_token
            if not token:
                return

    async def _write(self, commit_id: str, directory: str) -> None:
        """Replaces the manifest of one directory."""
        root = self._place.namespace.rstrip("/")
        key = BlockKey(self._place.namespace, self._place.manifest(directory))
        async with await self._blocks.open_replace(key) as writer:
            async for paths, rows in self._pages(commit_id, directory, delimiter="/"):
                lines = []
                for path, (_, _, _, address, like) in zip(paths, rows, strict=True):
                    if not _is_hidden(path[len(directory) :]):
                        refuse_external(like)
                        lines.append(f"{root}/{physical_path(address)}\n")
                await writer.write("".join(lines).encode())
            await writer.finish()

    async def _remove_others(self, directories: Sequence[str]) -> None:
        """Removes the manifests of directories that have no objects any more."""
        place = self._place
        kept = {place.manifest(each) for each in directories}
        async for page in pages_below(self._blocks, place.namespace, place.prefix):
            gone = [each.path for each in page if each.path not in kept]
            await self._blocks.delete_many(place.namespace, gone)


def _is_hidden(path: str) -> bool:
    """Whether engines pass over an object, because a name of its path begins with `.` or `_`, but for `_name=value`; or
    because it only marks a directory."""
    *parents, name = path.split("/")
    if not name:
        return True
    return any(
        each.startswith(".") or (each.startswith("_") and "=" not in each)
        for each in (*parents, name)
    )
