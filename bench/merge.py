"""Benchmark of merges, reverts, previews, differences and merge bases, on the local block store. Prints a table.
No asserts.

python -m bench.merge --rows 1000000 --rounds 5 --only 0,2,7

A cherry-pick is the merge of the same three listings: base and source are the parent and the commit. A revert has the
commit as its base and the parent as its source; its destination is built on the commit. The difference and the counts
by folder are those from base to source, page by page, as `tarn diff A...B` reads them.

Another process builds the listings, and each case has a process of its own, so the peak memory is that of the case. It
counts the ranges that are mapped from the cache; memory `of its own` does not. Each round writes its result anew. `lag`
is the longest delay of a timer of 1 ms on the event loop while the work ran: how long other requests of the process
would have waited.

A merge that changes a million entries of two million: python -m bench.merge --rows 2000000 --rounds 1 --only 6
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from bench.commit import BATCH_ROWS, CORES, staged

from tarn.block.committed import Committed
from tarn.block.local import open_local
from tarn.block.merging import MergeResult, MergeSides
from tarn.block.port import BlockStore
from tarn.block.rangecache import RangeCache
from tarn.block.rangefile import metarange_path, range_path
from tarn.core.commit import Commit
from tarn.core.ids import CommitId, MetarangeId
from tarn.core.listing.virtual import VirtualBase
from tarn.rpc.process.system import SystemClock
from tarn_graveler.graph.merge_base import merge_bases

NAMESPACE = "local://bench"
CHANGES = 10_000
DIFF_PAGE = 5000
"""The greatest page of a difference."""
TICK_SECONDS = 0.001
PEER_GOAL = "40 ms"
"""The figure of lakeFS for a merge of 10,000 changes in 1,000,000 entries."""


@dataclass(frozen=True)
class Case:
    """Keys that each side puts; seeds decide the new entries. In a revert, `source` are those of the commit."""

    what: str
    source: np.ndarray
    dest: np.ndarray
    goal: str = PEER_GOAL
    is_revert: bool = False


def cases(keys: np.ndarray) -> list[Case]:
    first, last = keys[: len(keys) // 2], keys[len(keys) // 2 :][:CHANGES]
    step = len(keys) // CHANGES
    return [
        Case("10,000 adjacent, dest changed elsewhere", first[:CHANGES], last),
        Case("10,000 adjacent, dest between them", first[:CHANGES], first[:CHANGES] + 5),
        Case("10,000 updates everywhere, dest adjacent", keys[::step], last + 5),
        Case("10,000 inserts everywhere, dest adjacent", keys[::step] + 1, last + 5),
        Case("10,000 conflicts", first[:CHANGES], first[:CHANGES]),
        Case("10,000 updates everywhere, dest everywhere", keys[::step], keys[1::step], ""),
        Case("each side changes its half of all", keys[::2], keys[1::2], ""),
        Case("revert of 10,000 adjacent, dest elsewhere", first[:CHANGES], last, is_revert=True),
        Case("revert of 10,000 updates everywhere", keys[::step], last + 5, is_revert=True),
    ]


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[tuple[Committed, BlockStore]]:
    store = await open_local(directory / "blocks", clock=SystemClock())
    with ThreadPoolExecutor(2 * CORES) as executor:
        cache = RangeCache(directory / "cache", executor=executor)
        yield Committed(store, cache, executor=executor), store
        cache.close()
    await store.close()


async def build(rows: int, directory: Path, only: Sequence[int]) -> dict[int, MergeSides]:
    """Builds the listings of some cases."""
    keys = np.arange(rows, dtype=np.int64) * 10
    made = {}
    async with opened(directory) as (committed, _):

        async def add(base: MetarangeId | None, put: np.ndarray, seed: int) -> MetarangeId:
            return (await committed.build(NAMESPACE, base, [stream(put, seed)])).metarange_id

        base = await add(None, keys, 1)
        for number in only:
            case = cases(keys)[number]
            source = await add(base, case.source, 2)
            if case.is_revert:
                made[number] = MergeSides(source, base, await add(source, case.dest, 3))
            else:
                made[number] = MergeSides(base, source, await add(base, case.dest, 3))
    return made


async def stream(keys: np.ndarray, seed: int) -> AsyncIterator[pa.RecordBatch]:
    for at in range(0, len(keys), BATCH_ROWS):
        for batch in staged(keys[at : at + BATCH_ROWS], seed + at):
            yield batch


async def measure(
    what: str,
    goal: str,
    rounds: int,
    work: Callable[[], Awaitable[object]],
    undo: Callable[[], Awaitable[None]] | None = None,
) -> None:
    await work()
    seconds, busy, lags, memory = [], [], [], []
    for _ in range(rounds):
        if undo is not None:
            await undo()
        began, cpu = time.perf_counter(), time.process_time()
        lag, anonymous = await watched(work)
        lags.append(lag)
        memory.append(anonymous)
        seconds.append(time.perf_counter() - began)
        busy.append(time.process_time() - cpu)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    median = sorted(seconds)[rounds // 2]
    print(
        f"{what:46} {min(seconds) * 1e3:>10.3f} {median * 1e3:>10.3f} {min(busy) * 1e3:>10.3f} ms"
        f"  {goal:>10}  peak {rss:,.0f} MiB, "
        f"of its own {max(memory):,.0f} MiB, lag {max(lags) * 1e3:.1f} ms",
        flush=True,
    )


async def watched(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Does the work; returns by how many seconds a timer of the event loop was late at most, and the memory.

    The memory is the greatest amount of the process' own, in MiB, without mapped files; sampled by the timer.
    """
    longest = most = 0.0

    async def tick() -> None:
        nonlocal longest, most
        while True:
            due = time.perf_counter() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            longest = max(longest, time.perf_counter() - due)
            most = max(most, own_memory())

    async with asyncio.TaskGroup() as group:
        ticker = group.create_task(tick())
        await work()
        ticker.cancel()
    return longest, most


def own_memory() -> float:
    """Returns the anonymous memory of this process in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


async def run_case(case: Case, rounds: int, directory: Path, sides: MergeSides) -> None:
    async with opened(directory) as (committed, store):
        result = await committed.merge(NAMESPACE, sides)
        print(
            f"{case.what}: {result.ranges_written} ranges written, "
            f"{result.ranges_reused} reused, {result.conflict_count} conflicts"
        )

        async def merge() -> None:
            await committed.merge(NAMESPACE, sides)

        async def undo() -> None:
            await remove(committed, store, sides, result)

        async def preview() -> None:
            await committed.preview_merge(NAMESPACE, sides)

        async def diff() -> None:
            after: str | None = ""
            while after is not None:
                page = await committed.differences.page(
                    NAMESPACE, _base_of(sides), _source_of(sides), after=after, limit=DIFF_PAGE
                )
                after = page.next_after

        async def count() -> None:
            after: str | None = ""
            while after is not None:
                found = await committed.differences.folders(
                    NAMESPACE, _base_of(sides), _source_of(sides), delimiter="/", after=after
                )
                after = found.next_after

        name = "revert" if case.is_revert else "merge, cherry-pick"
        await measure(f"  {name}", case.goal, rounds, merge, undo)
        await measure("  preview", "", rounds, preview)
        await measure("  difference from the base", "", rounds, diff)
        await measure("  the same counted by folder", "", rounds, count)


def _base_of(sides: MergeSides) -> MetarangeId | None:
    assert not isinstance(sides.base, VirtualBase), "every case has one base"
    return sides.base


def _source_of(sides: MergeSides) -> MetarangeId:
    assert sides.source is not None, "every case has a source"
    return sides.source


async def remove(
    committed: Committed, store: BlockStore, sides: MergeSides, result: MergeResult
) -> None:
    """Removes the result of a merge, so that it must be written again."""
    if result.metarange_id is None:
        return
    old: set[str] = set()
    for side in (_base_of(sides), sides.source, sides.dest):
        assert side is not None
        old |= {info.range_id for info in (await committed.metarange(NAMESPACE, side)).ranges}
    made = (await committed.metarange(NAMESPACE, result.metarange_id)).ranges
    paths = [range_path(info.range_id) for info in made if info.range_id not in old]
    paths.append(metarange_path(result.metarange_id))
    for at in range(0, len(paths), 100):
        await store.delete_many(NAMESPACE, paths[at : at + 100])


async def histories(rounds: int, count: int = 100_000) -> None:
    """Merge bases in memory: the cost of the search without that of reading commits."""
    ids = [CommitId(f"{number:064x}") for number in range(count + 2)]
    commits = {
        commit_id: Commit(tuple(ids[max(0, at - 1) : at]), MetarangeId(""), "", "", at, at)
        for at, commit_id in enumerate(ids[:-1])
    }
    commits[ids[-1]] = Commit((ids[0],), MetarangeId(""), "", "", 0, 1)

    async def read(commit_ids: Sequence[CommitId]) -> list[Commit]:
        return [commits[commit_id] for commit_id in commit_ids]

    async def search() -> None:
        await merge_bases(read, [ids[-2]], [ids[-1]], limit=32)

    await measure(f"merge base {count:,} commits away", "", rounds, search)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="numbers of cases, from 0; default: all")
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    count = len(cases(np.arange(100_000, dtype=np.int64)))
    only = [int(each) for each in options.only.split(",") if each] or list(range(count))
    if options.case is not None:
        case = cases(np.arange(options.rows, dtype=np.int64) * 10)[options.case]
        sides = MergeSides(**json.loads(sys.stdin.read()))
        asyncio.run(run_case(case, options.rounds, options.directory, sides))
    elif options.directory is not None:
        built = asyncio.run(build(options.rows, options.directory, only))
        print(json.dumps({number: asdict(sides) for number, sides in built.items()}))
    else:
        run_all(options.rows, options.rounds, only)


def run_all(rows: int, rounds: int, only: Sequence[int]) -> None:
    directory = Path(tempfile.mkdtemp(prefix="tarn-bench-"))
    command = [sys.executable, "-m", "bench.merge", f"--rows={rows}", f"--directory={directory}"]
    command += [f"--rounds={rounds}", f"--only={','.join(map(str, only))}"]
    try:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        print(f"{'':46} {'best':>10} {'median':>10} {'CPU':>10}     {'goal':>10}", flush=True)
        for number, sides in json.loads(done.stdout).items():
            line = json.dumps(sides).encode()
            subprocess.run([*command, f"--case={number}"], check=True, input=line)
        asyncio.run(histories(rounds))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
