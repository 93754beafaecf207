"""Benchmark of committed metadata: builds, differences, lookups and pages. Prints a table. No asserts.

python -m bench.commit --rows 1000000 --rounds 3
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.block.committed import BuildResult, Committed
from tarn.block.mem import MemBlockStore
from tarn.block.rangecache import RangeCache
from tarn.core.entry import Entry, pack
from tarn.core.ids import MetarangeId
from tarn.core.listing.run import HEAD, RUN_SCHEMA
from tarn.rpc.process.system import SystemClock

NAMESPACE = "mem://bench"
BATCH_ROWS = 65_536
CORES = 2


def staged(keys: np.ndarray, seed: int, folder: str = "date=2026-01-01") -> list[pa.RecordBatch]:
    """Staged rows of numbered keys: random addresses that are made now, random hashes, one content type."""
    random = np.random.default_rng(seed)
    made = np.frombuffer((time.time_ns() // 1_000_000).to_bytes(6, "big"), "u1")
    tail = pack(Entry(0, 0, bytes(16), bytes(16), content_type="application/octet-stream"))[66:]
    batches = []
    for at in range(0, len(keys), BATCH_ROWS):
        numbers = keys[at : at + BATCH_ROWS]
        digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 9, "0")
        paths = pc.binary_join_element_wise(f"lake/events/{folder}/part-", digits, ".parquet", "")
        heads = np.zeros(len(numbers), HEAD)
        heads["version"], heads["size"], heads["mtime"] = 1, numbers, 1_790_000_000_000_000
        for name in ("md5", "identity"):
            heads[name] = np.frombuffer(random.bytes(16 * len(numbers)), "V16")
        addresses = np.frombuffer(bytearray(random.bytes(16 * len(numbers))), "u1").reshape(-1, 16)
        addresses[:, :6] = made  # the time of an address; an old one could not be staged (rule 11)
        heads["address"] = addresses.view("V16").reshape(-1)
        raw = heads.view("u1").reshape(len(numbers), HEAD.itemsize)
        body = np.hstack([raw, np.tile(np.frombuffer(tail, "u1"), (len(numbers), 1))])
        ends = pa.py_buffer(np.arange(0, body.size + 1, body.shape[1], dtype=np.int32))
        values = pa.BinaryArray.from_buffers(
            pa.binary(), len(numbers), [None, ends, pa.py_buffer(body)]
        )
        batches.append(pa.record_batch([paths, values], schema=RUN_SCHEMA))
    return batches


async def stream(batches: list[pa.RecordBatch]) -> AsyncIterator[pa.RecordBatch]:
    for batch in batches:
        yield batch


class Bench:
    """Runs one operation several times and prints the median."""

    def __init__(self, committed: Committed, rounds: int) -> None:
        self.committed = committed
        self._rounds = rounds

    async def time(
        self, what: str, goal: str, operation: Callable[[], Awaitable[object]], per: int = 1
    ) -> None:
        seconds = []
        busy = time.process_time()
        for _ in range(self._rounds):
            began = time.perf_counter()
            await operation()
            seconds.append((time.perf_counter() - began) / per)
        cpu = (time.process_time() - busy) / self._rounds / per
        best, median = min(seconds), sorted(seconds)[len(seconds) // 2]
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{what:46} {best * 1e3:>10.3f} {median * 1e3:>10.3f} {cpu * 1e3:>10.3f} ms"
            f"  {goal:>10}  peak {rss:,.0f} MiB"
        )

    async def build(self, base: MetarangeId | None, batches: list[pa.RecordBatch]) -> BuildResult:
        return await self.committed.build(NAMESPACE, base, [stream(batches)])

    async def differ(self, left: MetarangeId, right: MetarangeId) -> None:
        """Reads all pages of a difference, with the page size that clients use to read everything."""
        after: str | None = ""
        while after is not None:
            page = await self.committed.differences.page(
                NAMESPACE, left, right, after=after, limit=5000
            )
            after = page.next_after


async def run(rows: int, rounds: int, directory: Path) -> None:
    keys = np.arange(rows, dtype=np.int64) * 10
    everything = staged(keys, 1)
    new = staged(np.arange(100_000, dtype=np.int64), 2, folder="date=2026-01-02")
    spread = staged(keys[:: rows // 100_000] + 1, 3)
    adjacent = staged(keys[rows // 2 : rows // 2 + 10_000], 4)
    with ThreadPoolExecutor(2 * CORES) as executor:
        cache = RangeCache(directory, executor=executor)

        def fresh() -> Bench:
            # Each build writes to a new store: a put of an existing file costs nothing.
            return Bench(Committed(MemBlockStore(SystemClock()), cache, executor=executor), rounds)

        bench = fresh()
        await bench.time(
            f"build {rows:,} staged on nothing", "700 ms", lambda: fresh().build(None, everything)
        )
        base = (await bench.build(None, everything)).metarange_id
        await bench.differ((await bench.build(None, [])).metarange_id, base)
        for what, goal, changes in (
            ("build 100,000 new beside them", "120 ms", new),
            ("build 100,000 new among them, all ranges", "", spread),
            ("build 10,000 adjacent updates", "50 ms", adjacent),
        ):
            await bench.time(what, goal, partial(bench.build, base, changes))
        for what, goal, changes in (
            ("diff of 10,000 adjacent updates", "60 ms", adjacent),
            ("diff of 100,000 new among them", "", spread),
        ):
            right = (await bench.build(base, changes)).metarange_id
            await bench.time(what, goal, partial(bench.differ, base, right))
        await reads(bench, base, keys)
        cache.close()


async def reads(bench: Bench, base: MetarangeId, keys: np.ndarray) -> None:
    paths = [
        f"lake/events/date=2026-01-01/part-{number:09}.parquet"
        for number in np.random.default_rng(5).choice(keys, 2000)
    ]
    committed = bench.committed

    async def look_up() -> None:
        for path in paths:
            await committed.lookup(NAMESPACE, base, path)

    async def look_up_at_once() -> None:
        for path in paths:
            committed.lookup_cached(NAMESPACE, base, path)

    async def pages() -> None:
        for path in paths[:100]:
            await committed.page(NAMESPACE, base, path, 1000)

    async def seeks() -> None:
        for path in paths:
            await committed.page(NAMESPACE, base, path, 1)

    await bench.time("lookup", "0.010 ms", look_up, len(paths))
    await bench.time("lookup_cached", "0.010 ms", look_up_at_once, len(paths))
    await bench.time("page of 1,000", "0.500 ms", pages, 100)
    await bench.time("page of 1 (a seek)", "", seeks, len(paths))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="tarn-bench-"))
    try:
        print(f"{'':46} {'best':>10} {'median':>10} {'CPU':>10}     {'goal':>10}")
        asyncio.run(run(options.rows, options.rounds, directory))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
