"""A purge that is interrupted, or whose store does not delete, is not at its end, and is resumed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from dumped_lake import commit
from graveler_service import reason_of
from purge_lab import PurgeLab, purge_lab
from tests.support.clock import SeededIds

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.collection.purging import is_due
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import physical_path


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[PurgeLab]:
    async with purge_lab(tmp_path) as made:
        yield made


class MortalStore(MemBlockStore):
    """The blocks of another store; the process ends at one of its calls, before or after the call took effect."""

    def __init__(self, blocks: MemBlockStore, dies_at: int, *, dies_after: bool) -> None:
        self.__dict__.update(blocks.__dict__)
        self.calls, self.dies_at, self.dies_after = 0, dies_at, dies_after

    async def _mortal(self, work: Callable[[], Awaitable[None]]) -> None:
        self.calls += 1
        if self.calls == self.dies_at and not self.dies_after:
            raise KeyboardInterrupt
        await work()
        if self.calls == self.dies_at:
            raise KeyboardInterrupt

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        await self._mortal(lambda: MemBlockStore.put(self, key, body))

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        await self._mortal(lambda: MemBlockStore.delete_many(self, namespace, paths))


@pytest.mark.parametrize("dies_after", [False, True])
@pytest.mark.parametrize("dies_at", [1, 2, 3, 4])
async def test_an_interrupted_purge_is_resumed(
    lab: PurgeLab, dies_at: int, dies_after: bool
) -> None:
    await commit(lab.service, "main", "a", 1)
    await lab.put(physical_path(SeededIds(lab.service.clock, seed=4).uuid7()))
    await lab.delete()
    await lab.pass_days(8)
    mortal = MortalStore(lab.service.replicas.blocks, dies_at, dies_after=dies_after)
    with pytest.raises(KeyboardInterrupt):
        await lab.purge(mortal)
    assert (await lab.purge(attempt="b" * 32)).is_complete
    assert await lab.paths() == set()


class StubbornStore(MortalStore):
    """Does not delete one block."""

    stuck = ""

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        if self.stuck in paths:
            raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, "the object is locked")
        await MemBlockStore.delete_many(self, namespace, paths)


async def test_a_block_that_stays_keeps_the_purge_from_its_end(lab: PurgeLab) -> None:
    ids = SeededIds(lab.service.clock, seed=4)
    stuck = await lab.put(physical_path(ids.uuid7()), 9)
    await lab.put(physical_path(ids.uuid7()))
    await lab.delete()
    await lab.pass_days(8)
    stubborn = StubbornStore(lab.service.replicas.blocks, 0, dies_after=False)
    stubborn.stuck = stuck
    report = await lab.purge(stubborn)
    assert not report.is_complete
    assert (report.failed.count, report.failed.size_bytes) == (1, 9)
    assert "locked" in report.error
    assert await lab.paths() == {stuck}, "one block does not keep the others"
    assert is_due(await lab.doomed(), lab.service.clock.now_us())
    assert (await lab.purge(attempt="b" * 32)).is_complete
    assert (await lab.row()).purged_count == report.deleted.count + 1


async def test_a_store_that_lies_about_deletions_is_found_by_the_second_look(lab: PurgeLab) -> None:
    class Lying(MortalStore):
        async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
            pass

    await lab.delete()
    await lab.pass_days(8)
    report = await lab.purge(Lying(lab.service.replicas.blocks, 0, dies_after=False))
    assert report.left.count > 0
    assert not report.is_complete
    assert not (await lab.row()).purge_end_us


async def test_a_purge_asks_again_before_it_goes_on(lab: PurgeLab) -> None:
    """The store of the metadata was replaced by a backup, which does not know of the deletion."""

    class Slow(MortalStore):
        async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
            clock.advance(61)
            row = await lab.row()
            await lab.set_row(replace(row, doom_time_us=0, purge_after_us=0, purge_begin_us=0))
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "try again")

    clock = lab.service.clock
    before = await lab.paths()
    await lab.delete()
    await lab.pass_days(8)
    store = Slow(lab.service.replicas.blocks, 0, dies_after=False)
    assert await reason_of(lab.purge(store)) is Reason.NAMESPACE_NOT_DOOMED
    assert await lab.paths() == before
