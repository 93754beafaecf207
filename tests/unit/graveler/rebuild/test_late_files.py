"""A forgotten process of the lost store writes files while the rebuild works. The rebuild notices, or reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rebuild_lab import RebuildLab, rebuild_lab
from tests.support.clock import SeededIds

from tarn.block.port import BlockKey
from tarn.core.errors import Kind, TarnError
from tarn.journal.compacting import InProcess, compact
from tarn.journal.epochs import Epoch, EpochCause, begin_epoch, newest_epoch, next_epoch
from tarn.journal.events import table_of
from tarn.journal.names import EPOCHS
from tarn.journal.source import find_source
from tarn.journal.writing import JournalWriter
from tarn.kv.mem import MemKv


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[RebuildLab]:
    async with rebuild_lab(tmp_path) as made:
        await made.lake.put("a", 1)
        await made.lake.commit("first")
        await made.lake.put("b", 2)
        await made.drain()
        yield made


class Beside:
    """The bucket as the rebuild sees it; something happens before it writes the epoch of a namespace."""

    def __init__(self, blocks: Any, namespace: str, call: Callable[[], Awaitable[object]]) -> None:
        self._blocks = blocks
        self._namespace = namespace
        self._calls = [call]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blocks, name)

    async def put(self, key: BlockKey, body: bytes) -> None:
        if EPOCHS in key.path and key.namespace == self._namespace and self._calls:
            await self._calls.pop()()
        await self._blocks.put(key, body)


async def test_a_file_that_lands_before_the_epoch_of_the_rebuild_is_noticed(
    lab: RebuildLab,
) -> None:
    """Its store may delete a block, because its epoch was the newest one. The next rebuild has the file."""
    drain, repository = lab.lake.graveler.drain, lab.lake.repository
    assert drain is not None

    async def delete() -> None:
        await lab.lake.put("b", 3)
        await drain.before_deletion(repository, lab.lake.clock.monotonic())

    beside = Beside(lab.replicas.blocks, repository.storage_namespace, delete)
    with pytest.raises(TarnError, match="got other files in epoch 1 since") as raised:
        await lab.rebuild(blocks=beside)
    assert raised.value.kind is Kind.FAILED_PRECONDITION
    with pytest.raises(TarnError, match="another store"):
        await drain.before_deletion(repository, lab.lake.clock.monotonic() + 1)
    before = await lab.shown(lab.lake.graveler, repository)
    lab.target = MemKv()
    assert (await lab.rebuild()).is_whole
    async with lab.rebuilt() as (graveler, rebuilt):
        assert await lab.shown(graveler, rebuilt) == before


async def test_one_repository_is_not_added_when_files_land_meanwhile(lab: RebuildLab) -> None:
    async def write() -> None:
        await lab.lake.put("b", 3)
        await lab.drain()

    beside = Beside(lab.replicas.blocks, lab.lake.repository.storage_namespace, write)
    with pytest.raises(TarnError, match="got other files in epoch 1 since"):
        await lab.add(blocks=beside)
    assert not await lab.is_added()
    assert (await lab.add()).problems == []
    assert await lab.is_added()


async def test_a_rebuilt_store_that_was_used_is_read_behind_a_dead_rebuild(lab: RebuildLab) -> None:
    """Its epoch is neither the newest one, nor the parent of that."""
    blocks, namespace = lab.replicas.blocks, lab.lake.repository.storage_namespace
    await lab.rebuild()
    first = await find_source(blocks, namespace)
    assert (first.epoch.number, first.newest.number) == (1, 2)
    late = next_epoch(first.epoch, "d" * 32, EpochCause.REBUILD, 1, newest=2)
    async with lab.rebuilt() as (graveler, _):
        await lab.drain(graveler)
        writer = JournalWriter(blocks, namespace, first.newest, "e" * 32)
        await writer.write(1, table_of([]), [], is_full=True)
    await begin_epoch(blocks, namespace, late)  # it read epoch 1 before that file landed, and died
    found = await find_source(blocks, namespace)
    assert (found.epoch.number, found.newest.number) == (2, 3)


async def test_a_compacted_epoch_of_a_rebuild_was_used(lab: RebuildLab) -> None:
    """A compaction has replaced all of its passes: the epoch before it lacks what they hold."""
    blocks, namespace = lab.replicas.blocks, lab.lake.repository.storage_namespace
    clock = lab.lake.clock
    await lab.rebuild()
    async with lab.rebuilt() as (graveler, repository):
        await replace(lab.lake, graveler=graveler, repository=repository).put("newer", 9)
        await lab.drain(graveler)
    clock.advance(2 * 86_400)

    def rows(epoch: Epoch) -> InProcess:
        return InProcess(blocks, namespace, epoch, SeededIds(clock, seed=1), lab.folder / "runs")

    done = await compact(blocks, namespace, rows, clock, keep_us=0)
    assert done is not None
    assert done.replaced > 1, "not only the base"
    found = await find_source(blocks, namespace)
    assert found.epoch == found.newest == await newest_epoch(blocks, namespace)
    lab.target = MemKv()
    assert (await lab.rebuild()).is_whole
    async with lab.rebuilt() as (graveler, repository):
        assert "newer" in (await lab.shown(graveler, repository))["main"]
