"""Backups in random interleavings: something may happen before each of its reads. Then a restore, and a look."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from backup_lab import BackupLab, backup_lab
from lake import MAIN, Lake

from tarn.core.errors import TarnError
from tarn.core.ids import BranchId, TagId
from tarn.kv.port import Partition
from tarn_graveler.branch.committing import CommitRequest

BRANCHES = (MAIN, BranchId("dev"), BranchId("fix"))
PATHS = [f"p{number}" for number in range(5)]
BEFORE = 20


class History:
    """The operations on a lake, and the values that each path may have in a backup that began at `begin`."""

    def __init__(self, seed: int, lab: BackupLab) -> None:
        self.rng = random.Random(seed)
        self.lab = lab
        self.states: dict[tuple[BranchId, str], list[int | None]] = {}
        self.alive: set[BranchId] = {MAIN}
        self.always: set[BranchId] = set()
        self.commits: list[str] = []
        self.tags: set[str] = set()
        self.number = 0

    async def happens(self) -> None:
        self.lab.lake.clock.advance(self.rng.choice((0.1, 1.0, 30.0, 90.0)))
        works = [self.put] * 3 + [self.commit] * 2
        works += [self.delete, self.compact, self.create, self.remove, self.reset, self.tag]
        work = self.rng.choice([*works, self.clean])
        with suppress(TarnError):
            await work()

    def _branch(self) -> BranchId:
        return self.rng.choice(sorted(self.alive))

    def _note(self, branch: BranchId, path: str, size: int | None) -> None:
        self.states.setdefault((branch, path), [None]).append(size)

    async def put(self) -> None:
        self.number += 1
        branch, path = self._branch(), self.rng.choice(PATHS)
        await self.lab.put(path, self.number, branch)
        self._note(branch, path, self.number)

    async def delete(self) -> None:
        branch, path = self._branch(), self.rng.choice(PATHS)
        assert await self.lab.lake.delete(path, branch=branch) == [None]
        self._note(branch, path, None)

    async def commit(self) -> None:
        name = self.lab.lake.branch(self._branch())
        request = CommitRequest("ann", f"commit {self.number}")
        made = await self.lab.lake.graveler.committing.commit(name, request)
        self.commits.append(made.commit_id)

    async def compact(self) -> None:
        name = self.lab.lake.branch(self._branch())
        await self.lab.lake.graveler.compacting.compact(name, force=True)

    async def create(self) -> None:
        new, source = self.rng.choice(BRANCHES), self._branch()
        if new in self.alive:
            return
        branches = self.lab.lake.graveler.branches
        head = (await branches.fresh(self.lab.lake.branch(source))).branch.commit_id
        await branches.create(self.lab.lake.branch(new), head)
        self.alive.add(new)
        for path in PATHS:
            self._note(new, path, await self.lab.lake.get(path, head))

    async def remove(self) -> None:
        branch = self._branch()
        if branch == MAIN:
            return
        graveler, name = self.lab.lake.graveler, self.lab.lake.branch(branch)
        await graveler.branches.delete(name, partial(graveler.drops.announce, name))
        self.alive.discard(branch)
        self.always.discard(branch)

    async def reset(self) -> None:
        branch = self._branch()
        name = self.lab.lake.branch(branch)
        head = (await self.lab.lake.graveler.branches.fresh(name)).branch.commit_id
        await self.lab.lake.graveler.moves.reset(name)
        for path in PATHS:
            self._note(branch, path, await self.lab.lake.get(path, head))

    async def tag(self) -> None:
        branches = self.lab.lake.graveler.branches
        head = (await branches.fresh(self.lab.lake.branch(self._branch()))).branch.commit_id
        name = f"t{self.number}"
        await self.lab.lake.graveler.tags.create(self.lab.lake.repository, TagId(name), head)
        self.tags.add(name)

    async def clean(self) -> None:
        await self.lab.lake.graveler.cleaner.drop_due()

    def begins(self) -> None:
        """From now on, each state that a path has is one that the backup may hold."""
        self.states = {where: states[-1:] for where, states in self.states.items()}
        self.always = set(self.alive)

    async def problems(self, lake: Lake, commits: list[str], tags: set[str]) -> list[str]:
        """Compares a restored lake with what was promised."""
        found = []
        there = {each.decode() for each, _ in await self._refs(lake, b"branches/")}
        found += [f"branch {each} is gone" for each in self.always if each not in there]
        for branch in BRANCHES:
            for path in PATHS if branch in there else ():
                now = await lake.get(path, branch)
                if now not in self.states.get((branch, path), [None]):
                    found.append(f"{branch}/{path} is {now}, not of {self.states[branch, path]}")
        for commit_id in commits:
            await lake.get("p0", commit_id)
        names = {each.decode() for each, _ in await self._refs(lake, b"tags/")}
        found += [f"tag {each} is gone" for each in tags - names]
        return found

    async def _refs(self, lake: Lake, prefix: bytes) -> list[tuple[bytes, bytes]]:
        keys = lake.graveler.repositories.keys_of(lake.repository)
        rows = await lake.kv.scan(keys.refs, prefix, prefix + b"\xff", 1000)
        return [(key.removeprefix(prefix), value) for key, value in rows]


@pytest.mark.parametrize("seed", range(12))
async def test_a_backup_holds_what_it_promises(tmp_path: Path, seed: int) -> None:
    async with backup_lab(tmp_path) as lab:
        history = History(seed, lab)
        for _ in range(BEFORE):
            await history.happens()
        history.begins()
        commits, tags = list(history.commits), set(history.tags)

        async def hook(_: Partition, __: bytes) -> None:
            for _number in range(history.rng.choice((0, 0, 1, 2))):
                await history.happens()

        await lab.back_up(hook)
        kv = await lab.restored()
        assert await lab.fsck(kv) == [], lab.details
        async with lab.served(kv) as lake:
            assert await history.problems(lake, commits, tags) == []
            await lake.drop_everything_removed()
            assert await history.problems(lake, commits, tags) == []
            with suppress(TarnError):
                await lake.commit("after the restore")
        assert await lab.fsck(kv) == [], lab.details
