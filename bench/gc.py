"""Mark of a collection: time and memory, for blocks that are listed from columns.

    python bench/gc.py [--blocks 2000000] [--live 0.9]
    python bench/gc.py --spark [--blocks 22000000]

Without Spark, the listing comes from memory, with one object per block as every driver makes them. So the figure is
that of the engine; a bucket adds its own time to list. With Spark, both sides of the comparison are Parquet files, so
the figure is that of the comparison and of the quarantine. It is shown beside one pass over the same files, because
times of a machine that others use cannot be compared, and ratios can.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from bisect import bisect_right
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import numpy as np
import psutil

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

T = TypeVar("T")
NAMESPACE = "mem://lake"
NAMESPACE_ON_DISK = "local://lake"
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


def processes_cpu() -> float:
    """CPU seconds of this process and of all that it started and that still run."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        times = process.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


async def run_on_spark(count: int, live: float, folder: Path) -> None:
    """Compares synthetic keys with Spark on two cores, and prints the figures."""
    # A wheel without Spark runs the other case.
    from pyspark.sql import functions as f

    from tarn.block.opening import BlockPlace
    from tarn.config import load
    from tarn_spark.collection.actions import SparkActions
    from tarn_spark.collection.engine import write_quarantine
    from tarn_spark.collection.frames import Frames
    from tarn_spark.gc import session_builder

    builder = session_builder("local[2]").config("spark.driver.memory", "4g")
    spark = builder.config("spark.local.dir", str(folder / "spark")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    place = BlockPlace.of(load(None, {"TARN_BLOCKSTORE_LOCAL_PATH": str(folder / "blocks")}))
    rows = spark.range(0, count, 1, 16).select(
        f.lit(2).cast("tinyint").alias("kind"),
        f.unhex(f.md5(f.col("id").cast("string"))).alias("key"),
        f.lit(1000).cast("bigint").alias("size"),
        f.lit(0).cast("bigint").alias("mtime"),
        f.col("id"),
    )
    listed, used = str(folder / "listed"), str(folder / "used")
    rows.drop("id").write.parquet(listed)
    rows.where(f.col("id") % 1000 < int(live * 1000)).select("kind", "key").write.parquet(used)
    with ExitStack() as stack:
        progress = Progress()
        actions = SparkActions(spark, progress)
        frames = Frames(spark, actions, place, NAMESPACE_ON_DISK, stack)

        async def timed(what: str, work: Awaitable[T]) -> tuple[T, float]:
            began, began_cpu = time.monotonic(), processes_cpu()
            found = await work
            seconds = time.monotonic() - began
            print(
                f"{what}: {seconds:.1f} s, {processes_cpu() - began_cpu:.1f} s of CPU", flush=True
            )
            return found, seconds

        def scan() -> object:
            hashes = [
                spark.read.parquet(each).select(f.xxhash64("kind", "key"))
                for each in (listed, used)
            ]
            return (
                hashes[0].unionAll(hashes[1]).agg(f.sum(f.col("xxhash64(kind, key)") % 7)).collect()
            )

        for _ in range(2):  # the first pass compiles
            _, scanned = await timed("one pass over both sides", actions.run("scan", scan))
        sides = (spark.read.parquet(listed), spark.read.parquet(used))
        about = int(count * (1 + live))
        (found, tallies), compared = await timed("compare", frames.unreferenced(*sides, about))
        candidates = sum(tally.count for tally in tallies.values())
        writing = write_quarantine(frames, actions, found, candidates, "a" * 32, dry_run=False)
        parts, written = await timed("write the quarantine", writing)
    spark.stop()
    assert candidates == sum(part.count for part in parts)
    print(f"{count} blocks listed, {candidates} candidates in {len(parts)} files")
    print(f"{compared + written:.1f} s, {(compared + written) / scanned:.1f} times one pass")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--blocks", type=int, default=0)
    parser.add_argument("--live", type=float, default=0.9)
    chosen = parser.parse_args()
    if not chosen.spark:
        asyncio.run(run(chosen.blocks or 2_000_000, chosen.live))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run_on_spark(chosen.blocks or 22_000_000, chosen.live, Path(folder)))


if __name__ == "__main__":
    main()
