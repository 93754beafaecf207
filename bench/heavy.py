"""PUTs beside builds of the heavy processes: `python -m bench.heavy [--rounds N] [--seconds S]`.

A node serves PUTs of 1 KiB over four connections, in short windows: without a build, beside builds of a heavy process
for commits, and beside builds of one for compactions, in turns of random order. The builds are done again and again by
processes of the benchmark, over the node's own staged rows; nothing is published, and their files are removed after
each build, so that every build writes them. So each window is as good as a compaction of its length, and many of them
fit into a minute.

Figures of a shared machine drift; only the ratios of one run count, and p90 is steadier than p99.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import uvloop
from bench.load.cases.objects import BODY, REPOSITORY, make_repository
from bench.load.client import Load, Measured
from bench.load.node import Form, Node, running
from bench.load.seeding import seeder
from bench.load.trial import pooled

from tarn.config import load, variables_of
from tarn.core.ids import BranchId
from tarn.rpc.process.system import SystemClock
from tarn_graveler.branch.building import BuildOrder
from tarn_graveler.heavy.priority import Priority
from tarn_graveler.heavy.worker import HeavyProcess, WorkerLimits, start_process
from tarn_graveler.records.branches import BranchName

BRANCH = "staged"
QUANTILES = (0.5, 0.9, 0.95, 0.98, 0.99)
PUTS_PER_SECOND = 5000


@dataclass
class Windows:
    """The measurements beside one kind of builds."""

    runs: list[Measured] = field(default_factory=list)
    builds: int = 0


async def staged_order(node: Node, folder: Path, rows: int) -> BuildOrder:
    """Stages rows on a branch of the node, and returns the order of the build of a compaction of them."""
    async with seeder(node, folder) as seed:
        graveler = seed.graveler
        repository = await graveler.repositories.get(REPOSITORY)
        await seed.client.create_branch(seed.connection.call(), REPOSITORY, BRANCH, "main")
        await seed.stage(repository, BRANCH, np.arange(rows, dtype=np.int64))
        name = BranchName(repository, BranchId(BRANCH))
        record = (await graveler.branches.fresh(name)).branch
        commit = await graveler.commits.get(repository, record.commit_id)
        token = graveler.layers.partition(name, record.staging)
        namespace = repository.storage_namespace
        return BuildOrder(namespace, commit.metarange_id, (token,), is_background=True)


@asynccontextmanager
async def builders(node: Node, folder: Path) -> AsyncIterator[dict[Priority, HeavyProcess]]:
    """Starts a heavy process of each priority on the node's stores."""
    variables = {"TARN_DATA_DIR": str(node.data), "TARN_DURABILITY": node.form.durability}
    config = load(None, {"HOME": str(folder), **variables})
    async with AsyncExitStack() as stack:
        children = {}
        for priority in Priority:
            child = await start_process(
                variables_of(config), SystemClock(), WorkerLimits(), priority
            )
            stack.push_async_callback(child.close)
            children[priority] = child
        yield children


async def keep_building(
    child: HeavyProcess, order: BuildOrder, data: Path, windows: Windows
) -> None:
    """Builds until it is cancelled."""
    while True:
        done = await child.build(order)
        windows.builds += 1
        names = {Path(path).name for path in done.made}
        stems = {Path(path).stem for path in done.made}
        for path in [*(data / "blocks").rglob("_tarn/*/*"), *(data / "cache").rglob("*")]:
            # The file of the same range in the cache has another ending.
            if path.name in names or path.name.partition(".")[0] in stems:
                path.unlink(missing_ok=True)


async def measure(
    node: Node, order: BuildOrder, folder: Path, rounds: int, seconds: float
) -> dict[Priority | None, Windows]:
    """Returns the measurements without a build (None) and beside builds of each priority."""
    found: dict[Priority | None, Windows] = {each: Windows() for each in (None, *Priority)}
    sent = 0
    async with builders(node, folder) as children:
        for child in children.values():  # imports and first allocations are no part of it
            await child.build(order)
        for _ in range(rounds):
            turns = list(found)
            random.shuffle(turns)
            for turn in turns:
                count = int(PUTS_PER_SECOND * seconds)
                root = f"/{REPOSITORY}/main/put"
                requests = [
                    node.signer.request("PUT", f"{root}/{number}", body=BODY)
                    for number in range(sent, sent + count)
                ]
                sent += count
                building = None
                if turn is not None:
                    child, windows = children[turn], found[turn]
                    work = keep_building(child, order, node.data, windows)
                    building = asyncio.ensure_future(work)
                    await asyncio.sleep(0.2)
                run = Load(node.address, requests, 4, seconds).run
                found[turn].runs.append(await asyncio.to_thread(run))
                if building is not None:
                    building.cancel()
                    await asyncio.wait([building])
    return found


def show(found: dict[Priority | None, Windows]) -> None:
    """Prints latencies, and their ratios to those without a build."""
    alone = pooled(found[None].runs)
    print(f"{'PUT beside':24}{'per s':>7}", *(f"{f'p{q * 100:.0f}':>14}" for q in QUANTILES))
    for turn, windows in found.items():
        runs: Sequence[Measured] = windows.runs
        whole = pooled(runs)
        what = "nothing" if turn is None else f"{windows.builds} builds, {turn.value}"
        cells = [
            f"{whole.quantile_ms(q):5.2f} ms {whole.quantile_ms(q) / alone.quantile_ms(q):4.2f}x"
            for q in QUANTILES
        ]
        print(f"{what:24}{whole.per_second:7.0f}", *(f"{cell:>14}" for cell in cells))
        if whole.failures:
            print(f"failures: {dict(whole.failures)}: {whole.first_failure}")


async def run(chosen: argparse.Namespace, folder: Path) -> None:
    """Measures, and prints."""
    with running(folder, Form("os", compactor=False)) as node:
        await asyncio.to_thread(make_repository, node)
        order = await staged_order(node, folder / "cache", chosen.rows)
        show(await measure(node, order, folder, chosen.rounds, chosen.seconds))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0)
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(run(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    main()
