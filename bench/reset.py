"""Benchmark of resets, over the embedded store and the local block store. Prints a table. No asserts.

python -m bench.reset --rows 100000 --rounds 5

Each round stages rows below `raw/` and beside it, and measures the reset alone.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bench.lake import MAIN, opened_parts

from tarn.core.entry import Entry, pack
from tarn.core.listing.spans import PathSpan
from tarn.kv.keys import path_key
from tarn.kv.port import Group, Kv
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.records.branches import BranchName

AT_ONCE = 5_000


class Lake:
    """A repository with one branch."""

    def __init__(self, graveler: Graveler, kv: Kv, name: BranchName) -> None:
        self.graveler, self.kv, self.name = graveler, kv, name

    async def stage(self, folder: str, rows: int, size: int) -> None:
        """Stages objects below a folder, directly in the token: the writes are not what is measured."""
        branch = (await self.graveler.branches.fresh(self.name)).branch
        keys = self.graveler.repositories.keys_of(self.name.repository)
        token = keys.token(MAIN, branch.staging)
        for start in range(0, rows, AT_ONCE):
            groups = []
            for number in range(start, min(rows, start + AT_ONCE)):
                key = path_key(f"{folder}/part-{number:09}.parquet")
                md5 = (number * 1000 + size).to_bytes(16, "big")
                groups.append(Group(key, ((key, pack(Entry(size, 0, md5, md5))),)))
            await self.kv.set_many(token, groups)

    async def commit(self) -> None:
        await self.graveler.committing.commit(self.name, CommitRequest("ann", "rows"))

    async def reset(self, prefix: str) -> None:
        await self.graveler.part_resets.reset(self.name, PathSpan.of_prefix(prefix))

    async def reset_all(self) -> None:
        await self.graveler.moves.reset(self.name)


async def timed(
    what: str,
    goal: str,
    rounds: int,
    prepare: Callable[[], Awaitable[None]],
    work: Callable[[], Awaitable[None]],
) -> None:
    """Prints the best and the median time of some rounds in milliseconds."""
    took = []
    for _ in range(rounds):
        await prepare()
        began = time.perf_counter()
        await work()
        took.append((time.perf_counter() - began) * 1e3)
    took.sort()
    print(f"{what:64} {took[0]:>9.1f} {took[len(took) // 2]:>9.1f} ms  {goal}", flush=True)


@asynccontextmanager
async def open_lake(folder: Path) -> AsyncIterator[Lake]:
    """Makes a repository in an empty folder."""
    async with opened_parts(folder) as parts:
        yield Lake(*parts)


async def run(folder: Path, rows: int, rounds: int) -> None:
    async with open_lake(folder) as lake:
        await measure(lake, rows, rounds)


async def measure(lake: Lake, rows: int, rounds: int) -> None:
    async def again(below: int, beside: int) -> None:
        await lake.reset_all()
        await lake.stage("raw", below, 2)
        await lake.stage("rest", beside, 2)

    async def folded() -> None:
        """All rows are in the compacted listing: only the commit's content can bring the prefix back."""
        await again(rows, 0)
        await lake.stage("tmp", 1, 1)
        await lake.reset("tmp")

    await lake.stage("raw", rows, 1)
    await lake.stage("rest", rows, 1)
    await lake.commit()
    cases: tuple[tuple[str, str, Callable[[], Awaitable[None]]], ...] = (
        (f"reset of a prefix of {rows:,} staged rows", "0.3 s", lambda: again(rows, 0)),
        (f"the same, beside {rows // 100:,} others", "", lambda: again(rows, rows // 100)),
        (f"the same, beside {rows:,} others, which are folded", "", lambda: again(rows, rows)),
        ("reset of a prefix of one row, beside nothing", "", lambda: again(1, 0)),
        (f"reset of a prefix of {rows:,} rows of the compacted listing", "", folded),
    )
    for what, goal, prepare in cases:
        await timed(what, goal, rounds, prepare, lambda: lake.reset("raw/"))
    await timed(
        f"reset of all of {rows:,} staged rows", "", rounds, lambda: again(rows, 0), lake.reset_all
    )


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="staged rows below the prefix")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), given.rows, given.rounds))


if __name__ == "__main__":
    main()
