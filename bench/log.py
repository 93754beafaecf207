"""Benchmark of the log over 10,000 commits, on the embedded store and local blocks. Prints a table. No asserts.

python -m bench.log --commits 10000

One process makes the history through graveler: each commit changes three of 2,000 objects in 100 folders. Each question
is asked by a new process, so nothing is cached but the files of the system: cold. `warm` is the same question again.
"without rows" is a history of commits whose rows were removed, of which one page is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tarn.aio.task_set import TaskSet
from tarn.block.local import open_local
from tarn.core.commit import Commit
from tarn.core.entry import Entry, pack
from tarn.core.ids import BranchId, RepositoryId
from tarn.core.listing.changed_paths import PathQuery
from tarn.kv.embedded import open_embedded
from tarn.kv.records import Repository
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_graveler.assembly import Graveler, GravelerSettings, assemble
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.config import open_committed
from tarn_graveler.graph.walk import Span
from tarn_graveler.records.branches import BranchName
from tarn_graveler.views.log import LogFilter

MAIN = BranchId("main")
GOAL_MS = 2_000
QUESTIONS: dict[str, PathQuery | None] = {
    "all commits": None,
    "a path that 15 commits changed": PathQuery(("d07/0007.parquet",), ()),
    "a path that no commit changed": PathQuery(("d07/none",), ()),
    "a folder that 300 commits changed": PathQuery((), ("d07/",)),
    "a prefix of ten folders": PathQuery((), ("d0",)),
}


def path_of(number: int) -> str:
    return f"d{number % 100:02}/{number % 2000:04}.parquet"


@asynccontextmanager
async def opened(directory: Path, cache: str) -> AsyncIterator[Graveler]:
    clock = SystemClock()
    ids = SystemIds(clock)
    kv = await open_embedded(directory / "kv.sqlite", durability="os")
    blocks = await open_local(directory / "blocks", clock=clock)
    tasks = TaskSet()
    async with open_committed(blocks, directory / cache) as committed:
        yield assemble(
            settings=GravelerSettings("bench"),
            kv=kv,
            blocks=blocks,
            committed=committed,
            clock=clock,
            ids=ids,
            tasks=tasks,
        )
        await asyncio.sleep(0.1)
        await tasks.close()
    await blocks.close()
    await kv.close()


async def build(directory: Path, commits: int) -> None:
    async with opened(directory, "cache") as graveler:
        reservation = await graveler.repositories.reserve(RepositoryId("lake"), "", MAIN)
        repository = reservation.repository
        built = await graveler.committed.build(repository.storage_namespace, None, [])
        first = await graveler.commits.add(
            repository, Commit((), built.metarange_id, "a", "", 0, 0)
        )
        main = BranchName(repository, MAIN)
        await graveler.branches.create(main, first)
        await graveler.repositories.publish(reservation)
        for number in range(commits):
            at = number * 3
            changed = range(2000) if not number else range(at, at + 3)
            for each in changed:
                packed = pack(Entry(number, 0, bytes(16), each.to_bytes(16, "big")))
                await graveler.staging.stage(main, path_of(each), packed)
            await graveler.committing.commit(main, CommitRequest("ann", f"commit {number}"))


async def found(graveler: Graveler, repository: Repository, paths: PathQuery | None) -> int:
    head = (await graveler.branches.fresh(BranchName(repository, MAIN))).branch.commit_id
    span, after, count = Span.of(head), None, 0
    while True:
        page = await graveler.history.page(
            repository, span, 1000, after=after, wanted=LogFilter(paths=paths)
        )
        count += len(page.commits)
        if page.next is None:
            return count
        span, after = Span(page.next.frontier, 0, first_parent=False), page.next.after


async def ask(directory: Path, what: str) -> None:
    async with opened(directory, "cache-of-the-question") as graveler:
        repository = await graveler.repositories.get("lake")
        for kind in ("cold", "warm"):
            began, cpu = time.perf_counter(), time.process_time()
            count = await found(graveler, repository, QUESTIONS[what])
            seconds, busy = time.perf_counter() - began, time.process_time() - cpu
            print(
                f"{what:36} {kind:6} {count:>7,} commits {seconds * 1e3:>9,.0f} ms, CPU {busy * 1e3:>7,.0f} ms"
                + (f"   goal {GOAL_MS:,} ms" if kind == "cold" and QUESTIONS[what] else ""),
                flush=True,
            )


async def ask_without_rows(directory: Path) -> None:
    async with opened(directory, "cache-of-the-question") as graveler:
        repository = await graveler.repositories.get("lake")
        rows = graveler.repositories.keys_of(repository).changed
        head = (await graveler.branches.fresh(BranchName(repository, MAIN))).branch.commit_id
        kv = graveler.repositories.kv
        await kv.drop_partition(rows)
        began = time.perf_counter()
        await graveler.history.page(
            repository, Span.of(head), 1000, wanted=LogFilter(paths=PathQuery(("d07/none",), ()))
        )
        print(f"64 commits without rows, compared: {(time.perf_counter() - began) * 1e3:,.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask == "-":
        asyncio.run(ask_without_rows(options.directory))
    elif options.ask:
        asyncio.run(ask(options.directory, options.ask))
    elif options.directory is not None:
        asyncio.run(build(options.directory, options.commits))
    else:
        run_all(options.commits)


def run_all(commits: int) -> None:
    directory = Path(tempfile.mkdtemp(prefix="tarn-bench-"))
    command = [
        sys.executable,
        "-m",
        "bench.log",
        f"--commits={commits}",
        f"--directory={directory}",
    ]
    try:
        began = time.perf_counter()
        subprocess.run(command, check=True)
        print(f"{commits:,} commits made in {time.perf_counter() - began:,.0f} s", flush=True)
        for what in [*QUESTIONS, "-"]:
            subprocess.run([*command, f"--ask={what}"], check=True)
            shutil.rmtree(directory / "cache-of-the-question", ignore_errors=True)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
