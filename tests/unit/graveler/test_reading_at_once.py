"""A store that reads at once gives the answers of any other store, whatever this process knew before."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from lake import MAIN, Lake, Replicas, create_repository, keep_tokens
from tests.support.at_once import AtOnceKv
from tests.support.faults.gates import GatedKv

from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId
from tarn.kv.mem import MemKv
from tarn.kv.port import ReadsAtOnce

DEV = BranchId("dev")
PATHS = ("a", "b", "c")
_GONE = (Reason.BRANCH_NOT_FOUND, Reason.REF_NOT_FOUND)
"""Of a branch that is gone: the one if this process has read it lately, else the other."""


async def answer(lake: Lake, path: str, ref: BranchId) -> object:
    try:
        return await lake.get(path, ref)
    except TarnError as error:
        return _GONE if error.reason in _GONE else error.reason


QUESTIONS = [(path, ref) for ref in (MAIN, DEV) for path in PATHS]


async def answers(lake: Lake) -> list[object]:
    return [await answer(lake, *question) for question in QUESTIONS]


async def answers_together(lake: Lake) -> list[object]:
    async with asyncio.TaskGroup() as tasks:
        told = [tasks.create_task(answer(lake, *question)) for question in QUESTIONS]
    return [each.result() for each in told]


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
    rows = MemKv()
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
                expected = await answers(lake)
                for _ in range(2):  # those of the first time may be read alone
                    assert await answers_together(quick) == expected
                assert await answers(quick) == expected
    sizes = {len(rows) for rows in at_once.reads}
    assert {1, 2} <= sizes, "records alone, and beside a row of a path"
    assert max(sizes) > 2, "look-ups that came together shared a read"
