"""All references to blocks: those of the roots, and those of the listings behind them.

graveler names addresses (staged rows, open uploads) and listings (of commits and compactions). A listing is
opened here: its metarange names ranges, its ranges name addresses. Every file is opened once, whatever number of
commits use it. Every file is verified against its id, because a damaged one that names too little would let
live blocks go; a missing or damaged file ends the collection.

Except if graveler tells that the listing is not needed: a commit whose process paused for days, and that no branch was
moved to, may have lost its files, and stays as a row for ever (docs/design/collection.md).

The listing of an expired commit is *emptied*: its ranges are in use. The blocks of data behind them are in use only if
another listing or an address names them (docs/design/retention.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError, ReadBlocks, read_whole
from tarn.block.rangefile import decode_metarange, decode_range, metarange_path, range_path
from tarn.collection.block_names import BlockKind, Bytes, Listed
from tarn.collection.progress import CollectionProgress
from tarn.collection.spill import PARTITIONS, Spill
from tarn.core.collection import LISTING_IDS_MAX
from tarn.core.entry import FLAG_EXTERNAL, FLAG_TOMBSTONE
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId, RangeId
from tarn.core.listing.metarange import EMPTY_METARANGE, Metarange
from tarn.core.listing.run import Run, heads_of

__all__ = [
    "EMPTY_KEY",
    "MissingFiles",
    "References",
    "RootBatch",
    "Roots",
    "collect_references",
    "find_addresses",
    "find_ranges",
    "ranges_of_metarange",
    "read_range",
]

_OPENED_AT_ONCE: Final = 4
_KEYS_HELD_MAX: Final = 1 << 20
EMPTY_KEY: Final = bytes.fromhex(EMPTY_METARANGE.metarange_id)
"""Key of the empty listing, which is always in use and need not exist."""


@dataclass(frozen=True, slots=True)
class RootBatch:
    """Some roots of a repository.

    Attributes:
        addresses: 16 bytes for each block that a root names.
        metaranges: 32 bytes for the id of each listing that a root names.
        emptied: the same for listings of which only the metarange and its ranges are in use, not the blocks of data:
            those of expired commits. Another root may name one among `metaranges`.
        keeping: the same for listings of heads that keep objects of expired commits: those whose path they list.
        written_since_us: objects of expired commits that were written since then are kept, microseconds since the
            epoch; 0: none because of that.
        read: 16 bytes for each block that was read lately: objects of expired commits with these are kept.
        keeps_all: the journal of reads is not whole, so all objects of expired commits are kept.
    """

    addresses: bytes = b""
    metaranges: bytes = b""
    emptied: bytes = b""
    keeping: bytes = b""
    written_since_us: int = 0
    read: bytes = b""
    keeps_all: bool = False


class Roots(Protocol):
    """Reads all roots of one repository, in the order that docs/design/collection.md requires."""

    def read_roots(self) -> AsyncGenerator[RootBatch, None]:
        """Yields all roots. Raises if it could not read them completely; a normal end means that it did."""
        ...

    async def in_use(self, listings: Sequence[MetarangeId]) -> set[MetarangeId]:
        """Returns which of up to `LISTING_IDS_MAX` listings a ref or a reflog leads to, or a branch builds on."""
        ...


class References:
    """The blocks that something refers to.

    Args:
        folder: an empty or missing folder; the caller removes it.

    Attributes:
        abandoned: listings of roots that are not needed, and of which files are missing.
    """

    def __init__(self, folder: Path) -> None:
        self.abandoned: tuple[MetarangeId, ...] = ()
        self._spills = {kind: Spill(folder / kind.value, kind.key_dtype) for kind in BlockKind}
        self._opened = {
            (kind, is_emptied): Spill(folder / f"opened-{kind.value}-{is_emptied}", kind.key_dtype)
            for kind in (BlockKind.METARANGE, BlockKind.RANGE)
            for is_emptied in (False, True)
        }

    def add(self, kind: BlockKind, keys: Bytes, *, is_emptied: bool = False) -> None:
        """Adds keys, shape (keys, width); the same key may come more than once. Blocks.

        Args:
            kind: of the blocks.
            keys: their keys.
            is_emptied: the blocks of data behind these listings or ranges are not in use because of them.
        """
        records = np.zeros(len(keys), kind.key_dtype)
        records["key"] = keys
        self._spills[kind].add(records)
        if kind is not BlockKind.DATA:
            self._opened[kind, is_emptied].add(records)

    def to_open(self, kind: BlockKind, *, is_emptied: bool) -> Iterator[bytes]:
        """Yields the listings, or the ranges, that were added like that; each once. Blocks."""
        for number in range(PARTITIONS):
            for key in _unique(kind, self._opened[kind, is_emptied].partition(number)):
                yield key.tobytes()

    def partition(self, kind: BlockKind, number: int) -> Bytes:
        """Returns the referenced keys of a partition, each once, in order. Blocks."""
        return _unique(kind, self._spills[kind].partition(number))


def _unique(kind: BlockKind, records: Listed) -> Bytes:
    if not len(records):  # most partitions of a small repository
        return np.zeros((0, kind.key_bytes), np.uint8)
    # `S` compares as bytes do, if all have the same width: it ignores only zeros at the end.
    unique = np.unique(np.ascontiguousarray(records["key"]).view(f"S{kind.key_bytes}"))
    return unique.view(np.uint8).reshape(-1, kind.key_bytes)


async def collect_references(
    roots: Roots, blocks: ReadBlocks, namespace: str, folder: Path, progress: CollectionProgress
) -> References:
    """Reads the roots of a repository and opens their listings.

    Raises:
        TarnError: CORRUPT if a metarange or a range is damaged, or missing although its listing is needed; any error of
            the roots or the store.
    """
    references = References(folder)
    references.add(BlockKind.METARANGE, np.frombuffer(EMPTY_KEY, np.uint8).reshape(1, 32))
    async with aclosing(roots.read_roots()) as batches:
        async for batch in batches:
            for kind, keys, is_emptied in (
                (BlockKind.DATA, batch.addresses, False),
                (BlockKind.METARANGE, batch.metaranges, False),
                (BlockKind.METARANGE, batch.emptied, True),
            ):
                found = np.frombuffer(keys, np.uint8).reshape(-1, kind.key_bytes)
                references.add(kind, found, is_emptied=is_emptied)
            progress.done += 1
    missing = MissingFiles(namespace)
    progress.begin("open listings")
    for is_emptied in (False, True):
        await _open_metaranges(
            references, blocks, namespace, progress, missing, is_emptied=is_emptied
        )
    progress.begin("open ranges")
    await _open_ranges(references, blocks, namespace, progress, missing)
    if missing.ranges:
        progress.begin("find the listings of missing ranges")
        await _find_listings(references, blocks, namespace, progress, missing)
    if missing.listings:
        progress.begin("find the incomplete listings that are needed")
        references.abandoned = await missing.abandoned(roots)
    return references


class MissingFiles:
    """Files that are not in the bucket.

    Attributes:
        ranges: ids of missing ranges.
        listings: incomplete listings, each with the path of one of its missing files.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self.ranges: set[RangeId] = set()
        self.listings: dict[MetarangeId, str] = {}

    def add_range(self, range_id: RangeId) -> None:
        """Notes a missing range.

        Raises:
            TarnError: CORRUPT: there are more than some processes that paused for days can explain.
        """
        self.ranges.add(range_id)
        self._check(len(self.ranges), range_path(range_id))

    def add_listing(self, listing: MetarangeId, path: str) -> None:
        """Notes an incomplete listing, with the path of one of its missing files. Raises as `add_range`."""
        self.listings[listing] = path
        self._check(len(self.listings), path)

    async def abandoned(self, roots: Roots) -> tuple[MetarangeId, ...]:
        """Returns the incomplete listings, in order, if nothing needs them.

        Raises:
            TarnError: CORRUPT: one is needed.
        """
        needed = await roots.in_use(sorted(self.listings))
        for listing in sorted(needed):
            raise self.error(self.listings[listing])
        return tuple(sorted(self.listings))

    def _check(self, count: int, path: str) -> None:
        if count > LISTING_IDS_MAX:  # not some commits whose processes paused for days
            raise self.error(path)

    def error(self, path: str) -> TarnError:
        """Returns the error of a missing file that is needed."""
        return _missing_error(self._namespace, path)


async def _open_metaranges(
    references: References,
    blocks: ReadBlocks,
    namespace: str,
    progress: CollectionProgress,
    missing: MissingFiles,
    *,
    is_emptied: bool,
) -> None:
    seen: set[bytes] = set()

    async def work(key: bytes) -> None:
        if key == EMPTY_KEY:
            return
        progress.done += 1
        metarange_id = MetarangeId(key.hex())
        metarange = await _read_metarange(blocks, namespace, metarange_id)
        if metarange is None:
            missing.add_listing(metarange_id, metarange_path(metarange_id))
            return
        new = {bytes.fromhex(info.range_id) for info in metarange.ranges} - seen
        if len(seen) > _KEYS_HELD_MAX:
            seen.clear()
        seen.update(new)
        keys = np.frombuffer(b"".join(new), np.uint8).reshape(-1, 32)
        references.add(BlockKind.RANGE, keys, is_emptied=is_emptied)

    listings = references.to_open(BlockKind.METARANGE, is_emptied=is_emptied)
    await for_each(listings, work, _OPENED_AT_ONCE)


async def _open_ranges(
    references: References,
    blocks: ReadBlocks,
    namespace: str,
    progress: CollectionProgress,
    missing: MissingFiles,
) -> None:
    async def work(key: bytes) -> None:
        progress.done += 1
        range_id = RangeId(key.hex())
        addresses = await find_addresses(blocks, namespace, range_id)
        if addresses is None:
            missing.add_range(range_id)
        else:
            references.add(BlockKind.DATA, addresses)

    ranges = references.to_open(BlockKind.RANGE, is_emptied=False)
    await for_each(ranges, work, _OPENED_AT_ONCE)


async def _find_listings(
    references: References,
    blocks: ReadBlocks,
    namespace: str,
    progress: CollectionProgress,
    missing: MissingFiles,
) -> None:
    """Finds the listings that name missing ranges, by reading all again."""

    async def work(key: bytes) -> None:
        progress.done += 1
        metarange_id = MetarangeId(key.hex())
        if key == EMPTY_KEY or metarange_id in missing.listings:
            return
        metarange = await _read_metarange(blocks, namespace, metarange_id)
        named = (
            missing.ranges.intersection(each.range_id for each in metarange.ranges)
            if metarange
            else ()
        )
        if metarange is None:
            missing.add_listing(metarange_id, metarange_path(metarange_id))
        elif named:
            missing.add_listing(metarange_id, range_path(min(named)))

    await for_each(_each_key(references, BlockKind.METARANGE), work, _OPENED_AT_ONCE)


def _each_key(references: References, kind: BlockKind) -> Iterator[bytes]:
    for number in range(PARTITIONS):
        for key in references.partition(kind, number):
            yield key.tobytes()


async def ranges_of_metarange(
    blocks: ReadBlocks, namespace: str, metarange_id: MetarangeId
) -> Bytes:
    """Returns the keys of the ranges that a metarange names, shape (ranges, 32).

    Raises:
        TarnError: CORRUPT if it is missing or damaged.
    """
    found = await find_ranges(blocks, namespace, metarange_id)
    if found is None:
        raise _missing_error(namespace, metarange_path(metarange_id))
    return found


async def find_ranges(
    blocks: ReadBlocks, namespace: str, metarange_id: MetarangeId
) -> Bytes | None:
    """As `ranges_of_metarange`, but returns None if the metarange is missing."""
    metarange = await _read_metarange(blocks, namespace, metarange_id)
    if metarange is None:
        return None
    keys = b"".join(bytes.fromhex(info.range_id) for info in metarange.ranges)
    return np.frombuffer(keys, np.uint8).reshape(-1, 32)


async def read_range(blocks: ReadBlocks, namespace: str, range_id: RangeId) -> Run:
    """Returns the entries of a range.

    Raises:
        TarnError: CORRUPT if it is missing or damaged.
    """
    try:
        body = await read_whole(blocks, BlockKey(namespace, range_path(range_id)))
    except BlockNotFoundError as error:
        raise _missing_error(namespace, range_path(range_id)) from error
    return await asyncio.to_thread(decode_range, range_id, body)


async def find_addresses(blocks: ReadBlocks, namespace: str, range_id: RangeId) -> Bytes | None:
    """Returns the addresses of a range's entries, shape (entries, 16), without those outside the namespace.

    None if it is missing.

    Raises:
        TarnError: CORRUPT if it is damaged.
    """
    try:
        body = await read_whole(blocks, BlockKey(namespace, range_path(range_id)))
    except BlockNotFoundError:
        return None
    return await asyncio.to_thread(_addresses_of, range_id, body)


async def _read_metarange(
    blocks: ReadBlocks, namespace: str, metarange_id: MetarangeId
) -> Metarange | None:
    """Returns a metarange; None if it is missing."""
    try:
        body = await read_whole(blocks, BlockKey(namespace, metarange_path(metarange_id)))
    except BlockNotFoundError:
        return None
    return await asyncio.to_thread(decode_metarange, metarange_id, body)


def _addresses_of(range_id: RangeId, body: bytes) -> Bytes:
    heads = heads_of(decode_range(range_id, body).values)
    heads = heads[(heads["flags"] & (FLAG_TOMBSTONE | FLAG_EXTERNAL)) == 0]
    return np.ascontiguousarray(heads["address"]).view(np.uint8).reshape(-1, 16)


def _missing_error(namespace: str, path: str) -> TarnError:
    text = (
        f"{path} in {namespace} is missing, so the collection cannot know which objects are in use; "
        "nothing was deleted; run tarn fsck"
    )
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=path)
