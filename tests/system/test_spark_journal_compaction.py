"""The nightly job in Spark: it writes the rows that one process writes, and dies without harm."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from journals import State, random_events, random_journal, state_of
from spark_jobs import driver
from spark_lakes import SPARK_HERE, local_place
from tests.support.clock import ManualClock, SeededIds

from tarn.block.port import BlockKey, BlockStore
from tarn.journal import writing
from tarn.journal.accounts import Accounts
from tarn.journal.compacting import Compacted, CompactionRows, InProcess, compact
from tarn.journal.compactions import newest_compaction
from tarn.journal.epochs import Epoch, newest_epoch
from tarn.journal.events import EventRow, rows_of
from tarn.journal.names import FOLDER
from tarn.journal.reading import EpochReader
from tarn.journal.replay import Replay
from tarn_spark.collection.executor import close_stores
from tarn_spark.journal.compaction import SparkCompaction

LAKE = "local://lake"
ROOT = Path(__file__).parents[2]

pytestmark = SPARK_HERE


async def read(blocks: BlockStore, folder: Path) -> tuple[State, list[EventRow], list[str]]:
    """Returns the state, the events of the newest compaction, and what is missing."""
    epoch = await newest_epoch(blocks, LAKE)
    assert epoch is not None
    accounts = Accounts(epoch.number, epoch.begin_time_us)
    reader = EpochReader(blocks, LAKE, epoch, accounts)
    replayed = Replay(folder / "runs")
    events = []
    async for table in reader.base():
        events += rows_of(table)
        for batch in table.to_batches():
            replayed.add(batch)
    async for table in reader.passes():
        for batch in table.to_batches():
            replayed.add(batch)
    state = state_of(replayed.results())
    replayed.close()
    return state, events, list(accounts.report().lines())


async def test_spark_writes_the_rows_that_one_process_writes(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "FILE_ROWS", 20)
    found: list[tuple[State, list[EventRow], list[str]]] = []
    done: list[Compacted | None] = []
    clock = ManualClock()
    for name in ("spark", "here"):
        place = local_place(tmp_path / name)
        blocks = await place.open(clock)
        rng = random.Random(3)
        _, paths = await random_journal(blocks, LAKE, rng, random_events(rng))
        await blocks.delete_many(LAKE, paths[1:2])
        body = await blocks.read(BlockKey(LAKE, paths[2]))
        await blocks.delete_many(LAKE, paths[2:3])
        await blocks.put(BlockKey(LAKE, paths[2]), body[:-9] + bytes(9))
        before, _, missing = await read(blocks, tmp_path / f"{name}-before")

        def rows(
            epoch: Epoch, place: Any = place, blocks: Any = blocks, name: str = name
        ) -> CompactionRows:
            if name == "spark":
                return SparkCompaction(spark, place, LAKE, epoch)
            return InProcess(blocks, LAKE, epoch, SeededIds(clock), tmp_path / "sorting")

        # In this process the files hold 20 rows, in the executors what they hold in production.
        done.append(await compact(blocks, LAKE, rows, clock, keep_us=0))
        found.append(await read(blocks, tmp_path / f"{name}-after"))
        assert found[-1][0] == before
        assert {*found[-1][2]} <= {*missing}
        epoch = await newest_epoch(blocks, LAKE)
        assert epoch is not None
        made = await newest_compaction(blocks, LAKE, epoch)
        assert made is not None
        assert [each.first for each in made.files] == sorted(each.first for each in made.files)
        await blocks.close()
    close_stores()
    assert found[0] == found[1]
    assert len(found[0][1]) > 20
    assert done[0] is not None
    assert done[1] is not None
    assert (done[0].rows, done[0].tokens) == (done[1].rows, done[1].tokens)


async def files_of(blocks: BlockStore, folder: str) -> list[str]:
    found = await blocks.list_page(LAKE, FOLDER, "", 10_000)
    return [each.path for each in found if f"/{folder}/" in each.path]


async def test_a_job_that_is_killed_is_repeated(tmp_path: Path) -> None:
    """It is killed, with its executors, when the first file of its compaction is in the bucket."""
    root = tmp_path / "blocks"
    place = local_place(root)
    blocks = await place.open(ManualClock())
    rng = random.Random(5)
    await random_journal(blocks, LAKE, rng, random_events(rng))
    before, _, missing = await read(blocks, tmp_path / "before")
    command = driver("spark_compaction", str(root), LAKE)
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        killed = await asyncio.create_subprocess_exec(
            *command, "--wait", env=variables, start_new_session=True
        )
        try:
            async with asyncio.timeout(500):
                while not await files_of(blocks, "compacted"):
                    assert killed.returncode is None
                    await asyncio.sleep(0.2)
        finally:
            os.killpg(killed.pid, signal.SIGKILL)
            await killed.wait()
        left = await files_of(blocks, "compacted")
        assert left
        assert await files_of(blocks, "compactions") == []
        assert (await read(blocks, tmp_path / "killed"))[::2] == (before, missing)
        again = await asyncio.create_subprocess_exec(*command, env=variables)
        assert await again.wait() == 0
        assert len(await files_of(blocks, "compactions")) == 1
        assert {*left} < {*await files_of(blocks, "compacted")}
        assert (await read(blocks, tmp_path / "repeated"))[::2] == (before, missing)
    finally:
        await blocks.close()
