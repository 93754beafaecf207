"""Spark makes the same of a journal as one process does, with the same report: of random journals, with damage."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from journals import State, branch_record, model, record, row, state_of
from spark_lakes import SPARK_HERE, local_place
from tests.support.clock import ManualClock

from tarn.block.port import BlockKey, BlockStore
from tarn.core.errors import Kind, TarnError
from tarn.journal import writing
from tarn.journal.accounts import Accounts, Report
from tarn.journal.epochs import Epoch, EpochCause, next_epoch
from tarn.journal.events import EventRow, table_of
from tarn.journal.names import base_path
from tarn.journal.reading import EpochReader
from tarn.journal.replay import Replay
from tarn.journal.writing import BranchPass, JournalWriter, write_base
from tarn_spark.collection.executor import close_stores
from tarn_spark.journal.rebuild import spark_rebuild

LAKE = "local://lake"
HOUR = 3_600_000_000
TOKENS = [f"t{at}" for at in range(5)]
PAYLOADS = [b"", b"p", b"q", b"\x7f", b"\xff" * 40]

pytestmark = SPARK_HERE


def events_of(rng: random.Random) -> list[EventRow]:
    """Events whose orders collide, of branches whose names and paths are beginnings of each other."""
    events = []
    for _ in range(rng.randint(0, 150)):
        branch, order = rng.choice(("main", "mai", "z")), rng.randint(0, 4)
        if rng.random() < 0.85:
            path = rng.choice(("a", "a\0b", "b", "é", "key/with/slash"))
            token = rng.choice(TOKENS)
            events.append(row(path, rng.choice(PAYLOADS), order, token=token, branch=branch))
        elif rng.random() < 0.3:
            key = rng.choice(("tags/v1", "settings"))
            events.append(record(key, rng.choice(PAYLOADS), order))
        else:
            tokens = rng.sample(TOKENS, rng.randint(1, 4))
            payload = branch_record(tokens, pending=rng.random() < 0.1)
            payload = b"" if rng.random() < 0.1 else payload
            events.append(record(f"branches/{branch}", payload, order))
    return events


async def journal_of(
    blocks: BlockStore, rng: random.Random, events: list[EventRow]
) -> tuple[Epoch, list[str]]:
    """Writes the events as a base and the passes of two holders, with repetitions; returns the paths of the passes."""
    epoch = next_epoch(None, "e" * 32, EpochCause.ENABLED, HOUR)

    async def base() -> Any:
        yield table_of(events[::3])

    files = await write_base(blocks, LAKE, epoch.folder, base())
    epoch = msgspec.structs.replace(epoch, base=files)
    writers = [JournalWriter(blocks, LAKE, epoch, each * 32) for each in "ab"]
    left = [each for at, each in enumerate(events) if at % 3]
    left += rng.sample(left, len(left) // 2)
    rng.shuffle(left)
    paths = []
    for at in range(0, len(left), 12):
        some = left[at : at + 12]
        names = sorted({each.branch for each in some if each.branch})
        branches = [
            BranchPass(n, 0, sorted({e.token for e in some if e.branch == n and e.token}))
            for n in names
        ]
        when = (2 + at) * HOUR
        paths += await rng.choice(writers).write(when, table_of(some), branches, is_full=False)
    return epoch, paths


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
        events = events_of(rng)
        epoch, paths = await journal_of(blocks, rng, events)
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
        epoch, _ = await journal_of(blocks, random.Random(1), events_of(random.Random(1)))
        await blocks.delete_many(LAKE, [base_path(epoch.folder, 1)])
        with pytest.raises(TarnError, match="base/0000000001") as caught:
            await by_spark(spark, place, blocks, epoch)
        assert caught.value.kind is Kind.CORRUPT
    finally:
        await blocks.close()
        close_stores()
