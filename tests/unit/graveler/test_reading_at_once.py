"""A store that reads at once, and tells of the branch with a write, gives the answers of any other store, whatever this
process knew before."""

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


async def put_until_taken(lake: Lake, path: str, size: int) -> None:
    """Puts an object, again while the outcome is unknown."""
    while True:
        try:
            return await lake.put(path, size)
        except TarnError as error:
            if error.reason is not Reason.OUTCOME_UNKNOWN:
                raise


@pytest.mark.parametrize("seed", range(6))
async def test_no_acknowledged_write_is_lost_beside_seals(replicas: Replicas, seed: int) -> None:
    """Writers on both kinds of stores over the same rows, while commits seal the branch and its tokens are dropped."""
    rng = random.Random(seed)
    rows = MemKv()
    replicas.kv = GatedKv(rows)
    at_once = AtOnceKv(rows)
    async with replicas.replica() as graveler:
        lake = Lake(graveler, await create_repository(graveler), replicas.kv, replicas.clock)
        replicas.kv = at_once
        async with replicas.replica() as other:
            quick = replace(lake, graveler=other, kv=at_once)

            async def write(path: str, by: Lake) -> None:
                for size in range(1, 20):
                    await put_until_taken(by, path, size)
                    assert await lake.get(path) == size
                    for _ in range(rng.randrange(4)):
                        await asyncio.sleep(0)

            async def commits() -> None:
                for number in range(12):
                    await rng.choice((lake, quick)).commit(allow_empty=True)
                    await asyncio.sleep(0)
                    if number % 4 == 3:
                        replicas.clock.advance(0.5)

            async with asyncio.TaskGroup() as tasks:
                for number in range(6):
                    tasks.create_task(write(f"p{number}", (lake, quick)[number % 2]))
                tasks.create_task(commits())
            await lake.commit(allow_empty=True)
            await lake.drop_everything_removed()
            for number in range(6):
                assert await lake.get(f"p{number}", "main@") == 19
    assert at_once.told
