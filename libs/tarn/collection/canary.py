"""The canary: reads a sample of live blocks before and after a sweep.

A block that was there before the sweep and is gone or another one after it was deleted wrongly. This cannot bring it
back, but it stops the next sweep, and a person hears of the defect after one run. Blocks that are missing before the
sweep do not count: the block of an upload that is not complete is referenced and does not exist yet.

Of a block of data it reads the size and the first KiB; of a range or metarange, of which the sample has a tenth as
many, the whole file, at most the first MiB.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError, ReadBlocks
from tarn.collection.block_names import BlockKind, paths_of
from tarn.collection.references import References
from tarn.collection.spill import PARTITIONS
from tarn.core.errors import Kind, TarnError

__all__ = ["Sample", "lost_of", "sample_of", "share_of", "taken"]

Sample = Mapping[str, bytes]
"""Live blocks: the SHA-256 of the bytes that were read of each, by path."""
_AT_ONCE: Final = 16
_DATA_BYTES: Final = 1 << 10
_LISTING_BYTES: Final = 1 << 20
_LISTINGS_SHARE: Final = 10


def share_of(kind: BlockKind, count: int) -> int:
    """Returns how many blocks of a kind a sample has that has `count` blocks of data."""
    return count if kind is BlockKind.DATA else -(-count // _LISTINGS_SHARE)


def sample_of(references: References, count: int, rng: random.Random) -> list[str]:
    """Returns the paths of up to `count` referenced blocks of data, and of some ranges and metaranges. Blocks."""
    return [
        path
        for kind in BlockKind
        for path in _sample_of(references, kind, share_of(kind, count), rng)
    ]


def _sample_of(
    references: References, kind: BlockKind, count: int, rng: random.Random
) -> list[str]:
    """Returns up to `count` paths, drawn evenly from a few partitions."""
    paths: list[str] = []
    for number in rng.sample(range(PARTITIONS), PARTITIONS):
        if len(paths) >= count:
            break
        keys = references.partition(kind, number)
        share = min(len(keys), count - len(paths), max(1, count // 8))
        if not share:
            continue
        rows = np.array(sorted(rng.sample(range(len(keys)), share)), np.intp)
        found: pa.StringArray = paths_of(kind, keys[rows])
        paths += found.to_pylist()
    return paths


async def taken(blocks: ReadBlocks, namespace: str, paths: Sequence[str]) -> Sample:
    """Reads blocks; returns those that are there."""
    found: dict[str, bytes] = {}

    async def look(path: str) -> None:
        digest = await _read(blocks, BlockKey(namespace, path))
        if digest is not None:
            found[path] = digest

    await for_each(paths, look, _AT_ONCE)
    return found


async def lost_of(blocks: ReadBlocks, namespace: str, sample: Sample) -> tuple[str, ...]:
    """Reads the blocks of a sample again; returns the paths of those that are gone or have other bytes, in order."""
    found = await taken(blocks, namespace, sorted(sample))
    return tuple(path for path in sorted(sample) if found.get(path) != sample[path])


async def _read(blocks: ReadBlocks, key: BlockKey) -> bytes | None:
    """Returns the SHA-256 of the size and the first bytes of a block; None: it is not there, or cannot be read."""
    most = _DATA_BYTES if key.path.startswith(BlockKind.DATA.prefix) else _LISTING_BYTES
    try:
        size = (await blocks.stat(key)).size
        body = await blocks.read(key, 0, min(size, most)) if size else b""
    except BlockNotFoundError:
        return None
    except TarnError as error:
        if error.kind is not Kind.CORRUPT:
            raise
        return None
    return hashlib.sha256(b"%d " % size + body).digest()
