"""Benchmark of compactions, over the embedded store and the local block store. Prints a table. No asserts.

python -m bench.compaction --deletes 100000 --rows 1000000 --rounds 3

Listings: 1,000 objects behind uncommitted deletes, before and after a compaction, and on a branch without uncommitted
changes. Compactions: staged rows are compacted and committed in turn. Both times are those of this process.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.lake import MAIN
from bench.reset import AT_ONCE, Lake, open_lake

from tarn.core.entry import TOMBSTONE
from tarn.core.listing.pages import PageRequest
from tarn.kv.keys import path_key
from tarn.kv.port import Group

LINES = 1_000


class Times:
    """Wall and processor times of one kind of work, in milliseconds."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._wall: list[float] = []
        self._cpu: list[float] = []

    async def add(self, work: Callable[[], Awaitable[object]]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        await work()
        self._wall.append((time.perf_counter() - wall) * 1e3)
        self._cpu.append((time.process_time() - cpu) * 1e3)

    def line(self) -> str:
        wall, cpu = sorted(self._wall), sorted(self._cpu)
        middle = len(wall) // 2
        return (
            f"{self.what:60} {wall[0]:>9.1f} {wall[middle]:>9.1f} ms  CPU {cpu[0]:>9.1f} "
            f"{cpu[middle]:>9.1f} ms"
        )


async def delete(lake: Lake, folder: str, rows: int) -> None:
    """Stages tombstones below a folder, directly in the token."""
    branch = (await lake.graveler.branches.fresh(lake.name)).branch
    keys = lake.graveler.repositories.keys_of(lake.name.repository)
    token = keys.token(MAIN, branch.staging)
    for start in range(0, rows, AT_ONCE):
        names = range(start, min(rows, start + AT_ONCE))
        paths = [path_key(f"{folder}/part-{number:09}.parquet") for number in names]
        await lake.kv.set_many(token, [Group(key, ((key, TOMBSTONE),)) for key in paths])


async def listed(lake: Lake) -> int:
    """Lists the first 1,000 objects, in as many pages as that takes."""
    after, count = "", 0
    while count < LINES:
        request = PageRequest(after=after, limit=LINES - count)
        page = await lake.graveler.reading.page(lake.name.repository, MAIN, request)
        count += len(page.paths)
        if page.next_after is None:
            break
        after = page.next_after
    assert count == LINES
    return count


async def listings(lake: Lake, deletes: int, rounds: int) -> list[Times]:
    """Deleted objects come before the listed ones in byte order."""
    clean, before, after = (
        Times(f"LIST of {LINES:,} {how}")
        for how in (
            "on a clean branch",
            f"behind {deletes:,} uncommitted deletes",
            "after their compaction",
        )
    )
    await lake.stage("kept", 2 * LINES, 1)
    await lake.commit()
    for number in range(rounds + 1):
        await lake.reset_all()
        await listed(lake)  # opens the ranges
        for _ in range(5):
            await clean.add(lambda: listed(lake))
        await lake.stage("gone", deletes, number + 1)
        await delete(lake, "gone", deletes)
        await before.add(lambda: listed(lake))
        await lake.stage("kept", 1, number + 2)  # so that there is a compacted listing
        await lake.graveler.compacting.compact(lake.name)
        await listed(lake)
        for _ in range(5):
            await after.add(lambda: listed(lake))
    return [clean, before, after]


async def builds(lake: Lake, rows: int, rounds: int) -> list[Times]:
    """Commits and compactions of as many new versions of the same objects, over the same commit."""
    commit = Times(f"commit of {rows:,} staged rows")
    compaction = Times(f"compaction of {rows:,} staged rows")
    await lake.stage("many", rows, 1)
    await lake.commit()
    for number in range(rounds):
        await lake.stage("many", rows, 2 * number + 2)
        await commit.add(lake.commit)
        await lake.stage("many", rows, 2 * number + 3)
        await compaction.add(lambda: lake.graveler.compacting.compact(lake.name))
        await lake.commit()
    return [commit, compaction]


async def run(folder: Path, deletes: int, rows: int, rounds: int) -> None:
    print(f"{'':60} {'best':>9} {'median':>9}         {'best':>9} {'median':>9}")
    async with open_lake(folder / "listings") as lake:
        for each in await listings(lake, deletes, rounds):
            print(each.line(), flush=True)
    async with open_lake(folder / "builds") as lake:
        for each in await builds(lake, rows, rounds):
            print(each.line(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--deletes", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), given.deletes, given.rows, given.rounds))


if __name__ == "__main__":
    main()
