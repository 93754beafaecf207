"""The cost of rule 11 for a write: `python -m bench.address_age [--rounds N]`.

After a row is durable, the age of its address is checked again. One replica over an embedded store does so, and another
one over the same store leaves the second check out, as only this benchmark does. They take turns of 50 writes, each one
after the other. Prints the CPU time of a write, the median of the differences of all pairs, and the time of the check
alone.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from bench.online import MAIN, made, turn

from tarn.aio.task_set import TaskSet
from tarn.block.opening import open_blocks
from tarn.config import load
from tarn.core.collection import CollectionLimits
from tarn.core.entry import Entry, pack
from tarn.kv.opening import open_kv
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_graveler.assembly import Graveler, GravelerSettings, assemble
from tarn_graveler.config import open_committed_of
from tarn_graveler.guards.address_age import AddressAge
from tarn_graveler.records.branches import BranchName

CHECKS = 100_000


class CheckedOnce(AddressAge):
    """Rule 11 without the check that matters."""

    def check(self, packed: bytes, *, written: bool) -> None:
        """Checks before the write only."""
        if not written:
            super().check(packed, written=written)


async def run(folder: Path, rounds: int) -> None:
    """Measures, and prints."""
    config = load(None, {"HOME": str(folder), "TARN_DATA_DIR": str(folder / "data")})
    clock, tasks = SystemClock(), TaskSet()
    ids, limits = SystemIds(clock), CollectionLimits()
    async with AsyncExitStack() as stack:
        kv = await open_kv(config, clock, ids)
        stack.push_async_callback(kv.close)
        blocks = await open_blocks(config, clock)
        stack.push_async_callback(blocks.close)
        committed = await stack.enter_async_context(open_committed_of(config, blocks))
        stack.push_async_callback(tasks.close)

        def replica(age: AddressAge) -> Graveler:
            graveler = assemble(
                settings=GravelerSettings("bench", collection=limits),
                kv=kv,
                blocks=blocks,
                committed=committed,
                clock=clock,
                ids=ids,
                tasks=tasks,
            )
            graveler.staging._age = age  # noqa: SLF001 - production has no such switch
            return graveler

        checks = (CheckedOnce(clock, limits), AddressAge(clock, limits))
        replicas = [replica(age) for age in checks]
        name = BranchName(await made(replicas[0]), MAIN)
        pairs: list[dict[int, float]] = []
        for number in range(rounds):
            took: dict[int, float] = {}
            for which in (0, 1) if number % 2 else (1, 0):

                async def put(at: int, which: int = which) -> None:
                    packed = pack(Entry(1, 0, ids.uuid7(), bytes(16)))
                    await replicas[which].staging.stage(name, f"{which}/{at}", packed, is_new=True)

                took[which] = await turn(put)
            pairs.append(took)
        packed = pack(Entry(1, 0, ids.uuid7(), bytes(16)))
        began = time.process_time()
        for _ in range(CHECKS):
            checks[1].check(packed, written=True)
        alone_us = (time.process_time() - began) / CHECKS * 1e6
    once, twice = (statistics.median(pair[which] for pair in pairs) for which in (0, 1))
    by = statistics.median(pair[1] - pair[0] for pair in pairs)
    print(f"a write: {once:.1f} µs without the second check, {twice:.1f} µs with it, {by:+.1f} µs")
    print(f"ratio {1 + by / once:.3f}; the check alone: {alone_us:.2f} µs, {alone_us / once:.3f}")


def main() -> None:
    """Reads the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="pairs of turns")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), given.rounds))


if __name__ == "__main__":
    main()
