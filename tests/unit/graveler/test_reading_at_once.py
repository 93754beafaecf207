"""A store that reads at once gives the answers of any other store, whatever this process knew before."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from lake import MAIN, Lake, Replicas, create_repository, keep_tokens
from tests.support.faults.gates import GatedKv

from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId
from tarn.kv.mem import MemKv
from tarn.kv.port import ReadsAtOnce, RowName, Versioned

DEV = BranchId("dev")
PATHS = ("a", "b", "c")
_GONE = (Reason.BRANCH_NOT_FOUND, Reason.REF_NOT_FOUND)
"""Of a branch that is gone: the one if this process has read it lately, else the other."""


class Rows(MemKv):
    async def get_together_any(self, rows: Sequence[RowName]) -> list[Versioned | None]:
        return [found for partition, key in rows for found in await self.get_many(partition, [key])]


class AtOnceKv(GatedKv):
    """A store in memory that reads at once."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self._rows = rows
        self.read_at_once: list[int] = []

    def get_at_once(self, rows: Sequence[RowName]) -> list[Versioned | None]:
        self.read_at_once.append(len(rows))
        try:
            self._rows.get_together_any(rows).send(None)
        except StopIteration as done:
            found: list[Versioned | None] = done.value
            return found
        raise AssertionError("a store in memory does not wait")


async def answers(lake: Lake) -> list[object]:
    told: list[object] = []
    for ref in (MAIN, DEV):
        for path in PATHS:
            try:
                told.append(await lake.get(path, ref))
            except TarnError as error:
                told.append(_GONE if error.reason in _GONE else error.reason)
    return told


async def change(rng: random.Random, lake: Lake) -> None:
    branches = lake.graveler.branches
    dev = lake.branch(DEV)
    try:
        match rng.choice(("put", "put", "delete", "commit", "create", "drop", "wait")):
            case "put":
                await lake.put(rng.choice(PATHS), rng.randrange(1, 99), rng.choice((MAIN, DEV)))
            case "delete":
                await lake.delete(rng.choice(PATHS), branch=rng.choice((MAIN, DEV)))
            case "commit":
                await lake.commit(allow_empty=True)
            case "create":
                await branches.create(dev, (await branches.fresh(lake.main)).branch.commit_id)
            case "drop":
                await branches.delete(dev, keep_tokens)
            case _:
                lake.clock.advance(rng.choice((0.5, 3)))
    except TarnError as error:
        if error.reason not in (Reason.BRANCH_NOT_FOUND, Reason.BRANCH_EXISTS):
            raise


@pytest.mark.parametrize("seed", range(6))
async def test_it_answers_as_any_other_store_does(replicas: Replicas, seed: int) -> None:
    rng = random.Random(seed)
    rows = Rows()
    replicas.kv = GatedKv(rows)
    at_once = AtOnceKv(rows)
    assert isinstance(at_once, ReadsAtOnce)
    assert not isinstance(replicas.kv, ReadsAtOnce)
    async with replicas.replica() as graveler:
        lake = Lake(graveler, await create_repository(graveler), replicas.kv, replicas.clock)
        replicas.kv = at_once
        async with replicas.replica() as other:
            quick = replace(lake, graveler=other, kv=at_once)
            for _ in range(40):
                await change(rng, rng.choice((lake, quick)))
                assert await answers(quick) == await answers(lake)
    assert {1, 2} <= set(at_once.read_at_once), "records alone, and beside a row of a path"
