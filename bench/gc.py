"""Mark of a collection without Spark: time and memory, for blocks that are listed from columns.

    python bench/gc.py [--blocks 2000000] [--live 0.9]

The listing comes from memory, with one object per block as every driver makes them. So the figure is that of the
engine; a bucket adds its own time to list.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from bisect import bisect_right
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import numpy as np

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockInfo, BlockKey
from tarn.block.rangefile import (
    describe_range,
    encode_metarange,
    encode_range,
    metarange_path,
    range_path,
)
from tarn.core.entry import Entry, pack
from tarn.core.ids import MetarangeId
from tarn.core.listing.metarange import Metarange
from tarn.lifecycle.block_names import BlockKind, paths_of
from tarn.lifecycle.marking import Lake, Run, mark
from tarn.lifecycle.progress import Progress
from tarn.lifecycle.references import RootBatch
from tarn.rpc.process.system import SystemClock
from tarn.testing.listings import run_of

NAMESPACE = "mem://lake"
RANGE_ROWS = 20_000
DAY_US = 86_400_000_000


class ListedStore(MemBlockStore):
    """Metadata in memory; the listing of data is made of columns, a page at a time."""

    def __init__(self, keys: np.ndarray, mtime_us: int) -> None:
        super().__init__(SystemClock())
        self._keys = keys
        self._mtime_us = mtime_us
        self._firsts: list[str] = paths_of(BlockKind.DATA, keys[::10_000]).to_pylist()

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        if prefix != "data/":
            return await super().list_page(namespace, prefix, after, limit)
        assert limit == 10_000
        page = bisect_right(self._firsts, after) if after else 0
        keys = self._keys[page * limit : (page + 1) * limit]
        paths = paths_of(BlockKind.DATA, keys).to_pylist()
        return [BlockInfo(path, 1000, self._mtime_us) for path in paths]


class ListedRoots:
    """One commit, whose ranges name the live blocks."""

    def __init__(self, metarange_id: str) -> None:
        self._key = bytes.fromhex(metarange_id)

    async def read_roots(self) -> AsyncGenerator[RootBatch, None]:
        yield RootBatch(metaranges=self._key)

    async def in_use(self, listings: Sequence[MetarangeId]) -> set[MetarangeId]:
        return set(listings)


async def filled(count: int, live: float) -> tuple[ListedStore, ListedRoots]:
    """Returns a store with `count` blocks of data and one commit of a share of them."""
    clock = SystemClock()
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 256, (count, 16), np.uint8)
    start_ms = clock.now_us() // 1000 - 30 * 86_400_000
    times = (start_ms + np.arange(count, dtype=np.int64) // 4).astype(">i8").view(np.uint8)
    keys[:, :6] = times.reshape(-1, 8)[:, 2:]
    store = ListedStore(keys, clock.now_us() - 2 * DAY_US)
    is_live = np.flatnonzero(rng.random(count) < live)
    infos = []
    for number, start in enumerate(range(0, len(is_live), RANGE_ROWS)):
        rows = keys[is_live[start : start + RANGE_ROWS]]
        entries = {
            f"table/{number:06}/part-{place:08}.parquet": pack(
                Entry(1000, 0, key.tobytes(), key.tobytes())
            )
            for place, key in enumerate(rows)
        }
        run = run_of(entries)
        info = describe_range(run)
        body = encode_range(run).to_pybytes()
        await store.put(BlockKey(NAMESPACE, range_path(info.range_id)), body)
        infos.append(info)
    listing = Metarange(tuple(infos))
    body = encode_metarange(listing).to_pybytes()
    await store.put(BlockKey(NAMESPACE, metarange_path(listing.metarange_id)), body)
    return store, ListedRoots(listing.metarange_id)


async def run(count: int, live: float) -> None:
    """Fills a store, marks it, and prints the figures."""
    store, roots = await filled(count, live)
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake("lake", NAMESPACE, store, clock, Path(folder))
        began, began_cpu = time.monotonic(), time.process_time()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        manifest = await mark(lake, Run("a" * 32, "b" * 32, clock.now_us()), roots, Progress())
        seconds, cpu = time.monotonic() - began, time.process_time() - began_cpu
    candidates = manifest.candidates(BlockKind.DATA).count
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{count} blocks listed, {candidates} candidates: {seconds:.1f} s, {cpu:.1f} s of CPU,")
    print(f"peak {peak >> 10} MiB ({before >> 10} MiB before the mark)")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=2_000_000)
    parser.add_argument("--live", type=float, default=0.9)
    chosen = parser.parse_args()
    asyncio.run(run(chosen.blocks, chosen.live))


if __name__ == "__main__":
    main()
