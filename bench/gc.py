"""Mark of a collection: time and memory, for blocks that are listed from columns.

    python -m bench.gc [--blocks 2000000] [--live 0.9]
    python -m bench.gc --spark [--blocks 22000000]

Without Spark, the listing comes from memory, with one object per block as every driver makes them. So the figure is
that of the engine; a bucket adds its own time to list. With Spark, the listing comes from Parquet files; the roots,
listings, ranges and the quarantine are files of a local block store. The figure is shown beside one pass over the
listing, because times of a machine that others use cannot be compared, and ratios can.
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
import pyarrow as pa
import pyarrow.parquet as pq

from tarn.block.mem import MemBlockStore
from tarn.block.opening import BlockPlace
from tarn.block.port import BlockInfo, BlockKey, BlockStore
from tarn.block.rangefile import (
    describe_range,
    encode_metarange,
    encode_range,
    metarange_path,
    range_path,
)
from tarn.collection.block_names import BlockKind, paths_of
from tarn.collection.marking import CollectionRun, Lake, mark
from tarn.collection.progress import CollectionProgress
from tarn.collection.references import RootBatch
from tarn.collection.root_files import write_roots
from tarn.config import load
from tarn.core.entry import VERSION
from tarn.core.ids import MetarangeId
from tarn.core.listing.metarange import Metarange
from tarn.core.listing.run import HEAD
from tarn.core.listing.run import Run as ListingRun
from tarn.rpc.process.system import SystemClock
from tarn_spark.collection.columns import listed_batch

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


def addresses(count: int, now_us: int) -> np.ndarray:
    """Returns the addresses of blocks of 30 days, in the order of time."""
    keys = np.random.default_rng(1).integers(0, 256, (count, 16), np.uint8)
    span_ms = 30 * DAY_US // 1000
    times = now_us // 1000 - span_ms - 2 * DAY_US // 1000 + np.arange(count) * span_ms // count
    keys[:, :6] = times.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 2:]
    return keys


async def commit(store: BlockStore, namespace: str, keys: np.ndarray) -> ListedRoots:
    """Writes the listing of one commit whose objects have these addresses."""
    infos = []
    for number, start in enumerate(range(0, len(keys), RANGE_ROWS)):
        run = listing(number, keys[start : start + RANGE_ROWS])
        info = describe_range(run)
        await store.put(
            BlockKey(namespace, range_path(info.range_id)), encode_range(run).to_pybytes()
        )
        infos.append(info)
    made = Metarange(tuple(infos))
    body = encode_metarange(made).to_pybytes()
    await store.put(BlockKey(namespace, metarange_path(made.metarange_id)), body)
    return ListedRoots(made.metarange_id)


def listing(number: int, keys: np.ndarray) -> ListingRun:
    """Returns the rows of a range."""
    heads = np.zeros(len(keys), HEAD)
    heads["version"], heads["size"] = VERSION, 1000
    for name in ("address", "md5", "identity"):
        heads[name] = np.ascontiguousarray(keys).view("V16").ravel().astype(heads.dtype[name])
    ends = np.arange(len(keys) + 1, dtype=np.int32) * HEAD.itemsize
    values = pa.Array.from_buffers(
        pa.binary(), len(keys), [None, pa.py_buffer(ends), pa.py_buffer(heads)]
    )
    paths = [f"table/{number:06}/part-{place:08}.parquet" for place in range(len(keys))]
    return ListingRun(pa.array(paths, pa.string()), values)


async def filled(count: int, live: float) -> tuple[ListedStore, ListedRoots]:
    """Returns a store with `count` blocks of data and one commit of a share of them."""
    clock = SystemClock()
    keys = addresses(count, clock.now_us())
    store = ListedStore(keys, clock.now_us() - 2 * DAY_US)
    is_live = np.random.default_rng(2).random(count) < live
    return store, await commit(store, NAMESPACE, keys[is_live])


async def run(count: int, live: float) -> None:
    """Fills a store, marks it, and prints the figures."""
    store, roots = await filled(count, live)
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake("lake", NAMESPACE, store, clock, Path(folder))
        began, began_cpu = time.monotonic(), time.process_time()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        manifest = await mark(
            lake, CollectionRun("a" * 32, "b" * 32, clock.now_us()), roots, CollectionProgress()
        )
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
    """Marks a synthetic lake with Spark on two cores, and prints the figures."""
    # A wheel without Spark runs the other case.
    from pyspark.sql import functions as f

    from tarn_spark.collection.actions import SparkActions
    from tarn_spark.collection.engine import write_quarantine
    from tarn_spark.collection.frames import Frames
    from tarn_spark.collection.session import session_builder

    clock = SystemClock()
    place = BlockPlace.of(load(None, {"TARN_BLOCKSTORE_LOCAL_PATH": str(folder / "blocks")}))
    store = await place.open(clock)
    keys = addresses(count, clock.now_us())
    is_live = np.random.default_rng(2).random(count) < live
    roots = await commit(store, NAMESPACE_ON_DISK, keys[is_live])
    used = int(is_live.sum())
    write_listing(keys, folder / "listed")
    builder = session_builder("local[2]").config("spark.driver.memory", "4g")
    spark = builder.config("spark.local.dir", str(folder / "spark")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with ExitStack() as stack:
        progress = CollectionProgress()
        actions = SparkActions(spark, progress)
        frames = Frames(spark, actions, place, NAMESPACE_ON_DISK, stack)
        listed = spark.read.parquet(str(folder / "listed"))
        taken: dict[str, float] = {}

        async def timed(step: str, work: Awaitable[T]) -> T:
            began, began_cpu = time.monotonic(), processes_cpu()
            found = await work
            taken[step] = time.monotonic() - began
            cpu = processes_cpu() - began_cpu
            print(f"{step}: {taken[step]:.1f} s, {cpu:.1f} s of CPU", flush=True)
            return found

        def scan() -> object:
            hashed = listed.select(f.xxhash64("kind", "key").alias("hash"))
            return hashed.agg(f.sum(f.col("hash") % 7)).collect()

        for _ in range(2):  # the first pass compiles
            await timed("one pass over the listing", actions.run("scan", scan))
        writing = write_roots(roots, store, NAMESPACE_ON_DISK, "a" * 32, "b" * 32, progress)
        parts = await timed("write the roots", writing)
        opening = frames.references(parts, roots)
        references, counts, _ = await timed("open listings and ranges", opening)
        about = count + sum(counts.values())
        comparing = frames.unreferenced(listed, references, about)
        found, tallies = await timed("compare", comparing)
        candidates = sum(tally.count for tally in tallies.values())
        quarantine = write_quarantine(frames, actions, found, candidates, "a" * 32, dry_run=False)
        files = await timed("write the quarantine", quarantine)
    spark.stop()
    await store.close()
    assert counts[BlockKind.DATA] == used
    assert candidates == sum(part.count for part in files) == count - used
    scanned = taken.pop("one pass over the listing")
    total = sum(taken.values())
    print(
        f"{count} blocks listed, {used} in use, {candidates} candidates in {len(files)} files: "
        f"{total:.1f} s, {total / scanned:.1f} times one pass"
    )


def write_listing(keys: np.ndarray, folder: Path) -> None:
    """Writes the listing of the bucket as Parquet files."""
    folder.mkdir()
    kind = BlockKind.DATA
    for number, piece in enumerate(np.array_split(keys, 16)):
        rows = np.zeros(len(piece), kind.listed_dtype)
        rows["key"], rows["size"] = piece, 1000
        table = pa.Table.from_batches([listed_batch(kind, rows)])
        pq.write_table(table, folder / f"{number}.parquet")


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
