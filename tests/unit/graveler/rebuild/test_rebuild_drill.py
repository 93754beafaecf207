"""The drill: load, the store is lost at a random moment, rebuild, checker; and again over the rebuilt store.

`REBUILD_DRILLS=200 python -m pytest tests/unit/graveler/rebuild/test_rebuild_drill.py` plays more of them
(`make rebuild-drill`).
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest
from lake import MAIN, Lake, entry
from rebuild_lab import RebuildLab, rebuild_lab

from tarn.core.entry import unpack
from tarn.core.errors import TarnError
from tarn.core.ids import BranchId, TagId
from tarn.kv.mem import MemKv
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.records.branches import BranchName

DRILLS: Final = int(os.environ.get("REBUILD_DRILLS", "3"))
_BRANCHES: Final = (MAIN, BranchId("dev"))
_PATHS: Final = 4
_LIVES: Final = 2


@dataclass
class Writes:
    """The writes of one path by one writer: growing numbers; an odd one is a deletion.

    Attributes:
        begun: numbers.
        acknowledged: time of the acknowledgement, microseconds, and number.
    """

    begun: list[int] = field(default_factory=list)
    acknowledged: list[tuple[int, int]] = field(default_factory=list)


class Load:
    """Clients of a lake, and the checker of what they were told."""

    def __init__(self, seed: int, lab: RebuildLab) -> None:
        self.rng = random.Random(seed)
        self.lab = lab
        self.writes: dict[tuple[BranchId, str], Writes] = {}
        self.tags: dict[str, int] = {}
        self.number = self.names = self.left = 0

    async def play(self, lake: Lake, operations: int) -> None:
        """Runs all clients until so many operations were made, then the process is gone, wherever they are."""
        self.left = operations
        works = [self._write(lake, branch, number) for branch in _BRANCHES for number in range(2)]
        works += [self._churn(lake), self._drain(lake)]
        tasks = [asyncio.ensure_future(work) for work in works]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in done:
            task.result()

    def _steps(self) -> bool:
        self.lab.replicas.clock.advance(self.rng.choice((0.01, 0.5, 3.0)))
        self.left -= 1
        return self.left > 0

    async def _write(self, lake: Lake, branch: BranchId, client: int) -> None:
        while self._steps():
            path = f"{branch}/{client}/{self.rng.randrange(_PATHS)}"
            found = self.writes.setdefault((branch, path), Writes())
            self.number += 2
            is_deletion = self.rng.random() < 0.3
            number = self.number + is_deletion
            found.begun.append(number)
            name = BranchName(lake.repository, branch)
            with suppress(TarnError):
                if is_deletion:
                    (error,) = await lake.graveler.staging.unstage(name, [path])
                    if error is not None:
                        continue
                else:
                    await lake.graveler.staging.stage(name, path, entry(number))
                found.acknowledged.append((lake.clock.now_us(), number))

    async def _churn(self, lake: Lake) -> None:
        while self._steps():
            name = BranchName(lake.repository, self.rng.choice(_BRANCHES))
            work = self.rng.choice((self._commit, self._compact, self._tag, self._branch))
            with suppress(TarnError):
                await work(lake, name)

    async def _commit(self, lake: Lake, name: BranchName) -> None:
        await lake.graveler.committing.commit(name, CommitRequest("ann", "in the drill"))

    async def _compact(self, lake: Lake, name: BranchName) -> None:
        await lake.graveler.compacting.compact(name)

    async def _tag(self, lake: Lake, name: BranchName) -> None:
        self.names += 1
        tag = f"t{self.names}"
        head = (await lake.graveler.branches.fresh(name)).branch.commit_id
        await lake.graveler.tags.create(lake.repository, TagId(tag), head)
        self.tags[tag] = lake.clock.now_us()

    async def _branch(self, lake: Lake, name: BranchName) -> None:
        self.names += 1
        made = replace(name, branch_id=BranchId(f"b{self.names}"))
        head = (await lake.graveler.branches.fresh(name)).branch.commit_id
        await lake.graveler.branches.create(made, head)
        await lake.graveler.staging.stage(made, "in it", entry(2))

    async def _drain(self, lake: Lake) -> None:
        assert lake.graveler.drain is not None
        while self._steps():
            await lake.graveler.drain.round()

    async def problems(self, lake: Lake, until_us: int) -> list[str]:
        """Compares a rebuilt lake with what was acknowledged up to a time. What it has now counts from then on."""
        found = []
        for (branch, path), writes in self.writes.items():
            least = max((n for at, n in writes.acknowledged if at < until_us), default=0)
            possible = {n for n in writes.begun if n >= least}
            now = await self._now(lake, branch, path)
            is_right = now in possible if now else (not least or any(n % 2 for n in possible))
            if not is_right:
                found.append(f"{branch}: {path} has {now}; {least} was acknowledged before")
            kept = [] if now is None else [now]
            writes.begun, writes.acknowledged = kept, [(0, n) for n in kept]
        tags = {name async for name, _ in lake.graveler.iterators.tags(lake.repository)}
        found += [
            f"tag {name} is gone"
            for name, at in self.tags.items()
            if at < until_us and name not in tags
        ]
        self.tags = {name: 0 for name in self.tags if name in tags}
        return found

    async def _now(self, lake: Lake, branch: BranchId, path: str) -> int | None:
        try:
            return unpack(await lake.graveler.reading.lookup(lake.repository, branch, path)).size
        except TarnError as error:
            if error.reason == "ENTRY_NOT_FOUND":
                return None
            raise


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(DRILLS))
async def test_nothing_older_than_the_lag_is_lost(tmp_path: Path, seed: int) -> None:
    """Each path has what was acknowledged before the last drain, or something newer; nothing that was never written."""
    async with rebuild_lab(tmp_path) as lab:
        load, lake = Load(seed, lab), lab.lake
        head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
        await lake.graveler.branches.create(lake.branch(_BRANCHES[1]), head)
        await lab.drain()
        await load.play(lake, load.rng.randrange(20, 120))
        for _ in range(_LIVES):
            lab.target = MemKv()
            report = await lab.rebuild()
            assert report.is_whole, report.as_record()
            (done,) = report.repositories
            assert await lab.fsck() == []
            async with lab.rebuilt() as (graveler, repository):
                lake = replace(lab.lake, graveler=graveler, repository=repository)
                assert await load.problems(lake, done.drained_until_us) == []
                await load.play(lake, load.rng.randrange(20, 80))
