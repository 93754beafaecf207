"""All references to blocks: what the roots name, and what the listings behind them name.

graveler names addresses (staged rows, open uploads) and listings (of commits and compactions). A listing is
opened here: its metarange names ranges, its ranges name addresses. Every file is opened once, whatever number of
commits use it. Every file is verified against its id, because a damaged one that names too little would let
live blocks go; a missing or damaged file ends the collection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError, ReadBlocks
from tarn.block.rangefile import decode_metarange, decode_range, metarange_path, range_path
from tarn.core.entry import FLAG_EXTERNAL, FLAG_TOMBSTONE
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId, RangeId
from tarn.core.listing.metarange import EMPTY_METARANGE
from tarn.core.listing.run import heads_of
from tarn.lifecycle.block_names import BlockKind, Bytes
from tarn.lifecycle.progress import Progress
from tarn.lifecycle.spill import PARTITIONS, Spill

__all__ = [
    "EMPTY_KEY",
    "References",
    "RootBatch",
    "Roots",
    "addresses_of_range",
    "collect_references",
    "ranges_of_metarange",
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
    """

    addresses: bytes = b""
    metaranges: bytes = b""


class Roots(Protocol):
    """Reads all roots of one repository, in the order that docs/design/collection.md requires."""

    def read_roots(self) -> AsyncGenerator[RootBatch, None]:
        """Yields all roots. Raises if it could not read them completely; a normal end means that it did."""
        ...


class References:
    """The blocks that something refers to.

    Args:
        folder: an empty or missing folder; the caller removes it.
    """

    def __init__(self, folder: Path) -> None:
        self._spills = {kind: Spill(folder / kind.value, kind.key_dtype) for kind in BlockKind}

    def add(self, kind: BlockKind, keys: Bytes) -> None:
        """Adds keys, shape (keys, width); the same key may come more than once. Blocks."""
        records = np.zeros(len(keys), kind.key_dtype)
        records["key"] = keys
        self._spills[kind].add(records)

    def count(self, kind: BlockKind) -> int:
        """Returns the number of references, not of blocks."""
        return self._spills[kind].count

    def partition(self, kind: BlockKind, number: int) -> Bytes:
        """Returns the referenced keys of a partition, each once, in order. Blocks."""
        records = self._spills[kind].partition(number)
        # `S` compares as bytes do, if all have the same width: it ignores only zeros at the end.
        unique = np.unique(np.ascontiguousarray(records["key"]).view(f"S{kind.key_bytes}"))
        return unique.view(np.uint8).reshape(-1, kind.key_bytes)


async def collect_references(
    roots: Roots, blocks: ReadBlocks, namespace: str, folder: Path, progress: Progress
) -> References:
    """Reads the roots of a repository and opens their listings.

    Raises:
        TarnError: CORRUPT if a metarange or a range is missing or damaged; any error of the roots or the store.
    """
    references = References(folder)
    references.add(BlockKind.METARANGE, np.frombuffer(EMPTY_KEY, np.uint8).reshape(1, 32))
    async with aclosing(roots.read_roots()) as batches:
        async for batch in batches:
            for kind, keys in (
                (BlockKind.DATA, batch.addresses),
                (BlockKind.METARANGE, batch.metaranges),
            ):
                references.add(kind, np.frombuffer(keys, np.uint8).reshape(-1, kind.key_bytes))
            progress.done += 1
    progress.begin("open listings")
    await _open_metaranges(references, blocks, namespace, progress)
    progress.begin("open ranges")
    await _open_ranges(references, blocks, namespace, progress)
    return references


async def _open_metaranges(
    references: References, blocks: ReadBlocks, namespace: str, progress: Progress
) -> None:
    seen: set[bytes] = set()

    async def work(key: bytes) -> None:
        if key == EMPTY_KEY:
            return
        found = await ranges_of_metarange(blocks, namespace, MetarangeId(key.hex()))
        new = {range_key.tobytes() for range_key in found} - seen
        if len(seen) > _KEYS_HELD_MAX:
            seen.clear()
        seen.update(new)
        keys = np.frombuffer(b"".join(new), np.uint8).reshape(-1, 32)
        references.add(BlockKind.RANGE, keys)
        progress.done += 1

    await for_each(_each_key(references, BlockKind.METARANGE), work, _OPENED_AT_ONCE)


async def _open_ranges(
    references: References, blocks: ReadBlocks, namespace: str, progress: Progress
) -> None:
    async def work(key: bytes) -> None:
        found = await addresses_of_range(blocks, namespace, RangeId(key.hex()))
        references.add(BlockKind.DATA, found)
        progress.done += 1

    await for_each(_each_key(references, BlockKind.RANGE), work, _OPENED_AT_ONCE)


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
    body = await _read(blocks, namespace, metarange_path(metarange_id))
    metarange = await asyncio.to_thread(decode_metarange, metarange_id, body)
    keys = b"".join(bytes.fromhex(info.range_id) for info in metarange.ranges)
    return np.frombuffer(keys, np.uint8).reshape(-1, 32)


async def addresses_of_range(blocks: ReadBlocks, namespace: str, range_id: RangeId) -> Bytes:
    """Returns the addresses of a range's entries, shape (entries, 16), without those outside the namespace.

    Raises:
        TarnError: CORRUPT if it is missing or damaged.
    """
    body = await _read(blocks, namespace, range_path(range_id))
    return await asyncio.to_thread(_addresses_of, range_id, body)


async def _read(blocks: ReadBlocks, namespace: str, path: str) -> bytes:
    try:
        return await blocks.read(BlockKey(namespace, path))
    except BlockNotFoundError as error:
        text = (
            f"{path} in {namespace} is missing, so the collection cannot know which objects are in use; "
            "nothing was deleted; run tarn fsck"
        )
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=path) from error


def _addresses_of(range_id: RangeId, body: bytes) -> Bytes:
    heads = heads_of(decode_range(range_id, body).values)
    heads = heads[(heads["flags"] & (FLAG_TOMBSTONE | FLAG_EXTERNAL)) == 0]
    return np.ascontiguousarray(heads["address"]).view(np.uint8).reshape(-1, 16)
