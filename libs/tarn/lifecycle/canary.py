"""The canary: looks at a sample of live blocks before and after a sweep.

A block that was there before the sweep and is gone after it was deleted wrongly. This cannot bring it back, but it
stops the next sweep, and a person hears of the defect after one run. Blocks that are missing before the
sweep do not count: the block of an upload that is not complete is referenced and does not exist yet.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError, ReadBlocks
from tarn.lifecycle.block_names import BlockKind, paths_of
from tarn.lifecycle.references import References
from tarn.lifecycle.spill import PARTITIONS

__all__ = ["present_of", "sample_of"]

_AT_ONCE: Final = 16


def sample_of(references: References, count: int, rng: random.Random) -> list[str]:
    """Returns the paths of up to `count` referenced blocks of data, drawn evenly from a few partitions. Blocks."""
    paths: list[str] = []
    for number in rng.sample(range(PARTITIONS), PARTITIONS):
        keys = references.partition(BlockKind.DATA, number)
        share = min(len(keys), count - len(paths), max(1, count // 8))
        rows = np.array(sorted(rng.sample(range(len(keys)), share)), np.intp)
        found: pa.StringArray = paths_of(BlockKind.DATA, keys[rows])
        paths += found.to_pylist()
        if len(paths) >= count:
            break
    return paths


async def present_of(blocks: ReadBlocks, namespace: str, paths: Sequence[str]) -> list[str]:
    """Returns those of the paths that have a block, in no order."""
    present: list[str] = []

    async def look(path: str) -> None:
        try:
            await blocks.stat(BlockKey(namespace, path))
        except BlockNotFoundError:
            return
        present.append(path)

    await for_each(paths, look, _AT_ONCE)
    return present
