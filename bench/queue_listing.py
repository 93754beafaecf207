"""Benchmark of listings of a branch that is a queue: new objects come behind, the oldest are deleted. No asserts.

python -m bench.queue_listing --changes 2000 --rounds 24

The engine alone, over the embedded store and the local block store. Between two rounds as many committed objects are
deleted at the front of a large folder, and in a small folder as many are written behind and deleted in front; others
are overwritten. Every second round compacts the branch. The first listing after it learns what was deleted; the later
ones know it. Prints the processor time of LIST of 1,000 in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench.lake import MAIN
from bench.reset import AT_ONCE, Lake, open_lake

from tarn.core.entry import TOMBSTONE, Entry, pack
from tarn.core.listing.pages import PageRequest
from tarn.kv.keys import path_key
from tarn.kv.port import Group

_LARGE, _SMALL = 400_000, 2_000
_OVERWRITTEN = 900
_LATER = 10
_FOLDERS = ("large", "small")


class Queue:
    """A branch whose objects come and go."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._done = 0
        self._times: dict[str, list[float]] = defaultdict(list)

    async def prepare(self) -> None:
        await self._lake.stage("large", _LARGE, 1)
        await self._lake.stage("small", _SMALL, 1)
        await self._lake.commit()
        for _ in range(2 * _LATER):
            for folder in _FOLDERS:
                await self._listed(folder, "clean")

    async def round(self, changes: int, *, compacts: bool) -> None:
        first, past = self._done, self._done + changes
        await self._write("large", range(first, past), TOMBSTONE)
        await self._write("small", range(first + _SMALL, past + _SMALL), pack(_entry(2)))
        await self._write("small", range(first, past), TOMBSTONE)
        overwritten = range(_LARGE - _OVERWRITTEN, _LARGE)
        await self._write("large", overwritten, pack(_entry(past)))
        self._done = past
        if compacts:
            await self._lake.graveler.compacting.compact(self._lake.name)
        state = "compacted" if compacts else "not compacted"
        for folder in _FOLDERS:
            await self._listed(folder, f"{folder} folder, {state}, first")
            for _ in range(_LATER):
                await self._listed(folder, f"{folder} folder, {state}, later")

    def report(self) -> None:
        print(f"{'LIST of 1,000, CPU in ms':44} {'best':>7} {'median':>7} {'worst':>7}")
        for what, times in self._times.items():
            times.sort()
            print(f"{what:44} {times[0]:>7.2f} {times[len(times) // 2]:>7.2f} {times[-1]:>7.2f}")

    async def _write(self, folder: str, numbers: range, row: bytes) -> None:
        """Writes rows directly into the token: the writes are not what is measured."""
        graveler, name = self._lake.graveler, self._lake.name
        branch = (await graveler.branches.fresh(name)).branch
        token = graveler.repositories.keys_of(name.repository).token(MAIN, branch.staging)
        keys = [path_key(f"{folder}/part-{number:09}.parquet") for number in numbers]
        for start in range(0, len(keys), AT_ONCE):
            groups = [Group(key, ((key, row),)) for key in keys[start : start + AT_ONCE]]
            await self._lake.kv.set_many(token, groups)

    async def _listed(self, folder: str, what: str) -> None:
        request = PageRequest(prefix=f"{folder}/", limit=1_000)
        began = time.process_time()
        page = await self._lake.graveler.reading.page(self._lake.name.repository, MAIN, request)
        self._times[what].append((time.process_time() - began) * 1e3)
        assert len(page.paths) == request.limit


def _entry(number: int) -> Entry:
    return Entry(number, 0, number.to_bytes(16, "big"), number.to_bytes(16, "big"))


async def run(folder: Path, changes: int, rounds: int) -> None:
    async with open_lake(folder) as lake:
        queue = Queue(lake)
        await queue.prepare()
        for number in range(rounds):
            await queue.round(changes, compacts=number % 2 == 1)
        queue.report()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--changes", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=24)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), given.changes, given.rounds))


if __name__ == "__main__":
    main()
