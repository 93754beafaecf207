"""The cost of online deletion for a write and a copy: `python -m bench.online [--rounds N]`.

Two replicas over one embedded store, without and with online deletion, take turns of 50 writes, deletes and lookups for
copies, each one after the other. Prints the CPU time of one, and the median of the differences of all pairs.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from tarn.aio.task_set import TaskSet
from tarn.block.opening import open_blocks
from tarn.config import load
from tarn.core.commit import Commit
from tarn.core.entry import Entry, pack
from tarn.core.ids import BranchId, RepositoryId
from tarn.kv.opening import open_kv
from tarn.kv.records import Repository
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_graveler.assembly import Graveler, GravelerSettings, assemble
from tarn_graveler.collection.online_deletion import OnlineSettings
from tarn_graveler.config import open_committed_of
from tarn_graveler.records.branches import BranchName

MAIN = BranchId("main")
TURN = 50


async def made(graveler: Graveler) -> Repository:
    """Creates the repository."""
    reserved = await graveler.repositories.reserve(RepositoryId("lake"), "", MAIN)
    built = await graveler.committed.build(reserved.repository.storage_namespace, None, [])
    commit = Commit((), built.metarange_id, "ann", "", 0, 0, ())
    head = await graveler.commits.add(reserved.repository, commit)
    await graveler.branches.create(BranchName(reserved.repository, MAIN), head)
    await graveler.repositories.publish(reserved)
    return reserved.repository


async def turn(work: Callable[[int], Awaitable[object]]) -> float:
    """Returns the CPU time of one call in microseconds."""
    began = time.process_time()
    for number in range(TURN):
        await work(number)
    return (time.process_time() - began) / TURN * 1e6


async def run(folder: Path, rounds: int) -> None:
    """Measures, and prints."""
    config = load(None, {"HOME": str(folder), "TARN_DATA_DIR": str(folder / "data")})
    clock, tasks = SystemClock(), TaskSet()
    ids = SystemIds(clock)
    async with AsyncExitStack() as stack:
        kv = await open_kv(config, clock, ids)
        stack.push_async_callback(kv.close)
        blocks = await open_blocks(config, clock)
        stack.push_async_callback(blocks.close)
        committed = await stack.enter_async_context(open_committed_of(config, blocks))
        stack.push_async_callback(tasks.close)
        replicas = [
            assemble(
                settings=GravelerSettings("bench", online=OnlineSettings(is_enabled=is_enabled)),
                kv=kv,
                blocks=blocks,
                committed=committed,
                clock=clock,
                ids=ids,
                tasks=tasks,
            )
            for is_enabled in (False, True)
        ]
        repository = await made(replicas[0])
        name = BranchName(repository, MAIN)
        figures: dict[str, list[tuple[float, ...]]] = {"put": [], "copy source": [], "delete": []}
        for number in range(rounds):
            both = [(n, replicas[n]) for n in ((0, 1) if number % 2 else (1, 0))]
            for (kind, pairs), (n, graveler) in itertools.product(figures.items(), both):

                async def put(at: int, graveler: Graveler = graveler, n: int = n) -> None:
                    packed = pack(Entry(1, 0, ids.uuid7(), bytes(16)))
                    await graveler.staging.stage(name, f"{n}/{at}", packed, is_new=True)

                async def copy(at: int, graveler: Graveler = graveler, n: int = n) -> None:
                    await graveler.copy_sources.find(repository, "main", f"{n}/{at}")

                async def delete(at: int, graveler: Graveler = graveler, n: int = n) -> None:
                    await graveler.staging.unstage(name, [f"{n}/{at}"])

                work = {"put": put, "copy source": copy, "delete": delete}[kind]
                took = await turn(work)
                if n == both[0][0]:
                    pairs.append((took,))
                else:
                    pairs[-1] = (*pairs[-1], took) if n else (took, *pairs[-1])
        for kind, pairs in figures.items():
            off, on = (statistics.median(column) for column in zip(*pairs, strict=True))
            by = statistics.median(b - a for a, b in pairs)
            print(f"{kind:12} {off:7.1f} µs off {on:7.1f} µs on, {by:+6.1f} µs ({by / off:+.1%})")


def main() -> None:
    """Reads the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="pairs of turns")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), given.rounds))


if __name__ == "__main__":
    main()
