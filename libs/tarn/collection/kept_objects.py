"""Objects of expired commits that rules of objects keep, as further roots of a collection.

An expired commit is a root of its listing only. But a rule may keep some of its objects (`tarn.core.retention`):

- *listed*: the head of a branch that a rule names has an object at the same path, whatever its content;
- *written*: the object was written in the last days;
- *read*: the object was read in the last days, by the journal of graveler. If that is in doubt, all objects are kept.

This finds them by reading the ranges of expired commits and the listings of these heads, in bounded memory, and adds
their addresses to the roots. So every engine keeps the same objects. Paths are compared by hashes of 16 bytes: two
paths with one hash could only keep an object too long.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tarn.aio.parallel import for_each
from tarn.block.port import ReadBlocks
from tarn.collection.marking import Lake
from tarn.collection.progress import CollectionProgress
from tarn.collection.references import EMPTY_KEY, RootBatch, Roots, ranges_of_metarange, read_range
from tarn.collection.spill import PARTITIONS, Spill
from tarn.core.entry import FLAG_EXTERNAL
from tarn.core.ids import MetarangeId, RangeId
from tarn.core.listing.run import Run, heads_of

__all__ = ["KeptObjects"]

_OPENED_AT_ONCE: Final = 4
_HASH_BYTES: Final = 16
_LISTED: Final = np.dtype([("key", "u1", _HASH_BYTES)])
_NAMED: Final = np.dtype([("key", "u1", _HASH_BYTES), ("address", "u1", 16)])


class KeptObjects:
    """Implements `Roots`: those of a repository, and the objects that rules of objects keep. One for each run.

    Args:
        roots: the roots of the repository.
        lake: the repository that is collected.
        progress: updated.
    """

    def __init__(self, roots: Roots, lake: Lake, progress: CollectionProgress) -> None:
        self._roots = roots
        self._lake = lake
        self._progress = progress

    async def in_use(self, listings: Sequence[MetarangeId]) -> set[MetarangeId]:
        """See `Roots.in_use`."""
        return await self._roots.in_use(listings)

    async def read_roots(self) -> AsyncGenerator[RootBatch, None]:
        """See `Roots.read_roots`.

        Raises:
            TarnError: CORRUPT: a listing of an expired commit or of a head is missing or damaged; any error of the
                roots or the store.
        """
        emptied: set[bytes] = set()
        heads: set[bytes] = set()
        written_since_us = 0
        keeps_all = False
        with tempfile.TemporaryDirectory(prefix="tarn-gc-", dir=self._lake.folder) as name:
            search = _Search(self._lake, Path(name), self._progress)
            async with aclosing(self._roots.read_roots()) as batches:
                async for batch in batches:
                    emptied.update(_keys(batch.emptied))
                    heads.update(_keys(batch.keeping))
                    written_since_us = max(written_since_us, batch.written_since_us)
                    keeps_all = keeps_all or batch.keeps_all
                    search.add_read(batch.read)
                    yield batch
            if not emptied or not (heads or written_since_us or keeps_all or search.read.count):
                return
            self._progress.begin("find the objects that rules keep")
            search.since_us = 1 if keeps_all else written_since_us
            listed = await search.ranges_of(heads)
            # Those of a head are roots with all of their objects anyway.
            await search.read_named(await search.ranges_of(emptied) - listed)
            if search.named.count:
                await search.read_listed(listed)
            for number in range(PARTITIONS):
                addresses = await asyncio.to_thread(search.kept_of, number)
                yield RootBatch(addresses=addresses)


class _Search:
    """The paths of heads, and the objects of expired commits, partitioned by the hash of the path.

    Attributes:
        since_us: objects that were written since then count as written lately, microseconds since the epoch; 0: none.
        read: addresses that were read lately.
        named: objects of expired commits that were not written lately, each with the hash of its path.
    """

    def __init__(self, lake: Lake, folder: Path, progress: CollectionProgress) -> None:
        self._lake = lake
        self._blocks: ReadBlocks = lake.blocks
        self.since_us = 0
        self._progress = progress
        self._listed = Spill(folder / "listed", _LISTED)
        # The keys of these are addresses.
        self._young = Spill(folder / "young", _LISTED)
        self._old = Spill(folder / "old", _LISTED)
        self.read = Spill(folder / "read", _LISTED)
        self.named = Spill(folder / "named", _NAMED)

    def add_read(self, addresses: bytes) -> None:
        """Adds addresses that were read lately, 16 bytes each; before `read_named`."""
        self.read.add(np.frombuffer(addresses, _LISTED))

    async def ranges_of(self, listings: set[bytes]) -> set[bytes]:
        """Returns the ranges of listings."""
        found: set[bytes] = set()

        async def work(key: bytes) -> None:
            metarange_id = MetarangeId(key.hex())
            ranges = await ranges_of_metarange(self._blocks, self._lake.namespace, metarange_id)
            found.update(each.tobytes() for each in ranges)
            self._progress.done += 1

        await for_each(sorted(listings - {EMPTY_KEY}), work, _OPENED_AT_ONCE)
        return found

    async def read_listed(self, ranges: set[bytes]) -> None:
        """Reads the paths of heads."""

        async def work(key: bytes) -> None:
            run = await read_range(self._blocks, self._lake.namespace, RangeId(key.hex()))
            hashes = await asyncio.to_thread(_hashes_of, run)
            records = np.zeros(len(hashes), _LISTED)
            records["key"] = hashes
            self._listed.add(records)
            self._progress.done += 1

        await for_each(sorted(ranges), work, _OPENED_AT_ONCE)

    async def read_named(self, ranges: set[bytes]) -> None:
        """Reads the objects of expired commits."""

        async def work(key: bytes) -> None:
            run = await read_range(self._blocks, self._lake.namespace, RangeId(key.hex()))
            young, old = await asyncio.to_thread(self._split, run)
            self._young.add(young)
            self.named.add(old)
            if self.read.count:
                addresses = np.zeros(len(old), _LISTED)
                addresses["key"] = old["address"]
                self._old.add(addresses)
            self._progress.done += 1

        await for_each(sorted(ranges), work, _OPENED_AT_ONCE)

    def _split(self, run: Run) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
        """Returns the addresses that were written lately, and the others with the hashes of their paths."""
        heads = heads_of(run.values)
        is_own = (heads["flags"] & FLAG_EXTERNAL) == 0
        is_young = (heads["mtime"] >= self.since_us) & is_own & bool(self.since_us)
        young = np.zeros(int(is_young.sum()), _LISTED)
        young["key"] = _addresses(heads[is_young])
        is_old = is_own & ~is_young
        old = np.zeros(int(is_old.sum()), _NAMED)
        old["key"] = _hashes_of(run)[is_old]
        old["address"] = _addresses(heads[is_old])
        return young, old

    def kept_of(self, number: int) -> bytes:
        """Returns the addresses of a partition that are kept. Blocks."""
        listed = _comparable(self._listed.partition(number)["key"])
        named = self.named.partition(number)
        kept = named[np.isin(_comparable(named["key"]), listed)]["address"]
        old = self._old.partition(number)["key"]
        read = np.isin(_comparable(old), _comparable(self.read.partition(number)["key"]))
        young = self._young.partition(number)["key"]
        return kept.tobytes() + old[read].tobytes() + young.tobytes()


def _keys(packed: bytes) -> Iterable[bytes]:
    return (packed[at : at + 32] for at in range(0, len(packed), 32))


def _addresses(heads: np.ndarray) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(heads["address"]).view(np.uint8).reshape(-1, 16)


def _comparable(hashes: npt.NDArray[np.uint8]) -> np.ndarray:
    return np.ascontiguousarray(hashes).view("V16").reshape(-1).view("S16")


def _hashes_of(run: Run) -> npt.NDArray[np.uint8]:
    """Returns the hash of each path, shape (rows, 16)."""
    hashes = b"".join(
        blake2b(path.encode(), digest_size=_HASH_BYTES).digest() for path in run.paths.to_pylist()
    )
    return np.frombuffer(hashes, np.uint8).reshape(-1, _HASH_BYTES)
