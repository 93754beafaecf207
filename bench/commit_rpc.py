"""Commits by the rpc, on a node with one worker and the embedded store: `python -m bench.commit_rpc [--rounds N]`.

The three goals of docs/design/performance.md, in a minute: a million staged entries on nothing, and 100,000 beside and
10,000 in a million. Staged rows come from the benchmark: the first one by the protocol, and the others straight
into the node's table, as its writers leave them. Each round commits a new branch with rows of its own.

Prints the least and the median of the clock, and the least processor time of the replica and of its heavy process.
`--before TREE` runs a second node with the code in another checkout, in turns, and prints both and the ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from bench.load.cases.objects import REPOSITORY
from bench.load.node import Form, Node, running
from bench.load.seeding import OLD, Seeder, batches, seeder

from tarn.core.ids import BranchId
from tarn.kv.keys import path_key
from tarn.kv.records import Repository
from tarn_graveler.records.branches import BranchName

MILLION = 1_000_000
NEW = "date=2026-01-02"
ROWS_PER_TRANSACTION = 2000
"""A write-ahead log that is copied as often as beside real writers stays as small."""
PACKAGES = ("", "cli", "gen", "jobs", "libs")


@dataclass(frozen=True)
class Change:
    """Rows to stage on a new branch, and the branch that it begins at."""

    what: str
    source: str
    numbers: np.ndarray
    folder: str
    every: int = 1


@dataclass
class Cost:
    """What the commits of one kind took, each in seconds."""

    clock: list[float] = field(default_factory=list)
    replica: list[float] = field(default_factory=list)
    heavy: list[float] = field(default_factory=list)
    peak_mib: float = 0.0


def changes(rows: int) -> list[Change]:
    """The three commits; a million is done every third round."""
    middle = np.arange(rows // 2, rows // 2 + 10_000, dtype=np.int64) * 10
    beside = np.arange(100_000, dtype=np.int64)
    return [
        Change("10,000 adjacent in 1M", "base", middle, OLD),
        Change("100,000 beside 1M", "base", beside, NEW),
        Change("1M on nothing", "main", np.arange(rows, dtype=np.int64), OLD, every=3),
    ]


@dataclass(frozen=True)
class Target:
    """A node, the benchmark's replica of it, and what was measured there."""

    node: Node
    seed: Seeder
    repository: Repository
    costs: dict[str, Cost]

    async def fill(self, branch: str, change: Change) -> None:
        """Creates a branch and stages a change on it."""
        call = self.seed.connection.call()
        await self.seed.client.create_branch(call, REPOSITORY, branch, change.source)
        await self.seed.stage(self.repository, branch, change.numbers[:1], change.folder)
        name = BranchName(self.repository, BranchId(branch))
        record = (await self.seed.graveler.branches.fresh(name)).branch
        token = self.seed.graveler.layers.partition(name, record.staging).name
        await asyncio.to_thread(self._insert, token, change)

    def _insert(self, token: str, change: Change) -> None:
        path = self.node.data / "kv" / "tarn.db"
        connection = sqlite3.connect(path, isolation_level=None, timeout=60)
        connection.execute("PRAGMA synchronous = NORMAL")
        found = connection.execute("SELECT id, kind FROM partitions WHERE name = ?", (token,))
        [(number, kind)] = found
        if kind != 2:
            raise RuntimeError(f"{token} has no plain rows")
        rows = (
            (number, path_key(path), value)
            for batch in batches(change.numbers, change.folder)
            for path, value in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )
        while part := list(itertools.islice(rows, ROWS_PER_TRANSACTION)):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR REPLACE INTO plains VALUES (?, ?, ?)", part)
            connection.execute("COMMIT")
        connection.close()

    async def commit(self, branch: str, change: Change) -> None:
        """Commits a branch, and checks the number of changes."""
        cost = self.costs.setdefault(change.what, Cost())
        workers = self.node.workers()
        workers.forget_peak()
        replica, heavy = cpu_of(self.node)
        began = time.perf_counter()
        call = self.seed.connection.call()
        made = await self.seed.client.create_commit(call, REPOSITORY, branch, "bench")
        cost.clock.append(time.perf_counter() - began)
        if made.added_count + made.changed_count != len(change.numbers):
            raise RuntimeError(f"the commit holds {made.added_count} + {made.changed_count}")
        after = cpu_of(self.node)
        cost.replica.append(after[0] - replica)
        cost.heavy.append(after[1] - heavy)
        cost.peak_mib = max(cost.peak_mib, self.node.workers().peak_rss_mib())


def cpu_of(node: Node) -> tuple[float, float]:
    """Processor time so far of the replica and of its heavy process, in seconds."""
    replica = node.processes.pids
    children = set(node.workers().pids) - set(replica)
    return sum(map(_cpu_s, replica)), sum(map(_cpu_s, children))


def _cpu_s(pid: int) -> float:
    # `clock_getcpuclockid`, which Python lacks: nanoseconds, where /proc has ticks of 10 ms.
    return time.clock_gettime(~pid << 3 | 2)


@asynccontextmanager
async def target(node: Node, folder: Path, rows: int) -> AsyncIterator[Target]:
    """Yields a node with a base of some rows, whose heavy process is warm."""
    async with seeder(node, folder) as seed:
        repository = await seed.repository(REPOSITORY)
        await seed.base(repository, "base", rows)
        made = Target(node, seed, repository, {})
        for number, change in enumerate(changes(rows)[:2]):
            await made.fill(f"warm{number}", change)
            await made.commit(f"warm{number}", change)
        made.costs.clear()
        yield made


async def measure(nodes: dict[str, Node], folder: Path, rounds: int, rows: int) -> None:
    """Commits on all nodes in turns, and prints."""
    async with AsyncExitStack() as stack:
        targets = {}
        for name, node in nodes.items():
            made = target(node, folder / f"cache-{name}", rows)
            targets[name] = await stack.enter_async_context(made)
        for number in range(rounds):
            for change in changes(rows):
                if number % change.every:
                    continue
                turns = list(targets.values())
                for each in turns:
                    await each.fill(f"b{number}-{change.source}-{len(change.numbers)}", change)
                for each in turns if number % 2 else turns[::-1]:
                    await each.commit(f"b{number}-{change.source}-{len(change.numbers)}", change)
        show({name: each.costs for name, each in targets.items()})


def show(found: dict[str, dict[str, Cost]]) -> None:
    """Prints a line for each kind of commit and node."""
    columns = ("clock", "median", "CPU", "replica", "heavy")
    print(f"{'ms':32}", *(f"{column:>9}" for column in columns), f"{'MiB':>6}")
    for what in next(iter(found.values())):
        least = {}
        for name, costs in found.items():
            cost = costs[what]
            both = [sum(pair) for pair in zip(cost.replica, cost.heavy, strict=True)]
            least[name] = min(both)
            seconds = (
                min(cost.clock),
                statistics.median(cost.clock),
                min(both),
                min(cost.replica),
                min(cost.heavy),
            )
            cells = " ".join(f"{each * 1e3:9.1f}" for each in seconds)
            print(f"{what + ', ' + name:32} {cells} {cost.peak_mib:6.0f}")
        if len(least) > 1:
            print(f"{'':32} ratio of processor time: {least['now'] / least['before']:.3f}")


def _path_of(tree: Path) -> str:
    services = sorted(str(each) for each in (tree / "services").iterdir() if each.is_dir())
    return os.pathsep.join([str(tree / part) for part in PACKAGES] + services)


def _forms(before: Path | None) -> Iterator[tuple[str, Form]]:
    plain = Form("os", workers=1, compactor=False)
    if before is not None:
        settings = (("PYTHONPATH", _path_of(before)),)
        yield "before", Form("os", workers=1, compactor=False, settings=settings)
    yield "now", plain


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=MILLION)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier version")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        nodes = {}
        for name, form in _forms(chosen.before):
            place = Path(folder) / name
            place.mkdir()
            nodes[name] = stack.enter_context(running(place, form))
        asyncio.run(measure(nodes, Path(folder), chosen.rounds, chosen.rows))


if __name__ == "__main__":
    main()
