"""Spark makes the same of a journal as one process does, with the same report: of random journals, with damage."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from journals import State, model, random_events, random_journal, state_of
from spark_lakes import SPARK_HERE, local_place
from tests.support.clock import ManualClock

from tarn.block.port import BlockKey, BlockStore
from tarn.core.errors import Kind, TarnError
from tarn.journal import writing
from tarn.journal.accounts import Accounts, Report
from tarn.journal.epochs import Epoch
from tarn.journal.names import base_path
from tarn.journal.reading import EpochReader
from tarn.journal.replay import Replay
from tarn_spark.collection.executor import close_stores
from tarn_spark.journal.rebuild import spark_rebuild

LAKE = "local://lake"

pytestmark = SPARK_HERE


async def in_one_process(blocks: BlockStore, epoch: Epoch, folder: Path) -> tuple[State, Report]:
    accounts = Accounts(epoch.number, epoch.begin_time_us)
    reader = EpochReader(blocks, LAKE, epoch, accounts)
    replayed = Replay(folder)
    async for table in reader.base():
        for batch in table.to_batches():
            replayed.add(batch)
    async for table in reader.passes():
        for batch in table.to_batches():
            replayed.add(batch)
    state = state_of(replayed.results())
    replayed.close()
    return state, accounts.report()


async def by_spark(
    spark: Any, place: Any, blocks: BlockStore, epoch: Epoch
) -> tuple[State, Report]:
    accounts = Accounts(epoch.number, epoch.begin_time_us)
    reader = EpochReader(blocks, LAKE, epoch, accounts)
    names = await reader.names()
    with ExitStack() as stack:
        made = spark_rebuild(spark, place, LAKE, epoch, names, reader.selector, stack)
        staged: dict[str, dict[str, bytes]] = {}
        for found in made.staged.collect():
            rows = staged.setdefault(found["branch"], {})
            assert found["path"] not in rows
            rows[found["path"]] = bytes(found["payload"])
        paths = [each["path"] for each in made.listing("main").collect()]
        assert paths == sorted(staged.get("main", {}))
    return ({each.key: each.payload for each in made.records}, staged), accounts.report()


@pytest.mark.parametrize("seed", range(2))
async def test_spark_makes_the_same_of_a_journal(
    spark: Any, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(writing, "FILE_ROWS", rng.choice((5, 100)))
    place = local_place(tmp_path / "blocks")
    blocks = await place.open(ManualClock())
    try:
        events = random_events(rng)
        epoch, paths = await random_journal(blocks, LAKE, rng, events)
        found, report = await in_one_process(blocks, epoch, tmp_path / "whole")
        assert found == model(events)
        assert await by_spark(spark, place, blocks, epoch) == (found, report)
        assert list(report.lines()) == []
        # Two files are lost, and one is damaged.
        await blocks.delete_many(LAKE, rng.sample(paths[:-1], 2))
        damaged = BlockKey(LAKE, paths[-1])
        body = await blocks.read(damaged)
        await blocks.delete_many(LAKE, [paths[-1]])
        await blocks.put(damaged, body[:-9] + bytes(9))
        found, report = await in_one_process(blocks, epoch, tmp_path / "damaged")
        assert [path for path, _ in report.damaged] == [paths[-1]]
        assert await by_spark(spark, place, blocks, epoch) == (found, report)
    finally:
        await blocks.close()
        close_stores()


async def test_a_damaged_base_ends_the_job_by_its_name(spark: Any, tmp_path: Path) -> None:
    place = local_place(tmp_path / "blocks")
    blocks = await place.open(ManualClock())
    try:
        epoch, _ = await random_journal(
            blocks, LAKE, random.Random(1), random_events(random.Random(1))
        )
        await blocks.delete_many(LAKE, [base_path(epoch.folder, 1)])
        with pytest.raises(TarnError, match="base/0000000001") as caught:
            await by_spark(spark, place, blocks, epoch)
        assert caught.value.kind is Kind.CORRUPT
    finally:
        await blocks.close()
        close_stores()
