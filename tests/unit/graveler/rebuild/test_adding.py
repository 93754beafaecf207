"""One rebuilt repository comes into a store that is in use: complete, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rebuild_lab import Died, Life, Mortal, RebuildLab, rebuild_lab

from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId
from tarn.journal.epochs import EpochCause, newest_epoch


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[RebuildLab]:
    async with rebuild_lab(tmp_path) as made:
        await made.lake.put("a", 1)
        await made.lake.commit("first")
        await made.lake.put("b", 2)
        await made.lake.delete("a")
        await made.drain()
        yield made


async def listings(lab: RebuildLab) -> dict[str, object]:
    """What the rebuilt repository shows, without its records: it is another instance."""
    async with lab.rebuilt() as (graveler, repository):
        shown = await lab.shown(graveler, repository)
        assert graveler.drain is not None
        await lab.drain(graveler)
        assert graveler.drain.progress.failed_passes == 0
        del shown["records"]
        return shown


async def test_a_repository_is_added_beside_others(lab: RebuildLab) -> None:
    """Its journal goes on in a new epoch, which the running drain continues."""
    wanted = await lab.shown(lab.lake.graveler, lab.lake.repository)
    del wanted["records"]
    report = await lab.add()
    assert (report.branches, report.problems) == (1, [])
    assert await listings(lab) == wanted
    epoch = await newest_epoch(lab.replicas.blocks, lab.lake.repository.storage_namespace)
    assert epoch is not None
    assert epoch.cause is EpochCause.REBUILD


async def test_a_name_that_is_taken_is_refused(lab: RebuildLab) -> None:
    await lab.add()
    with pytest.raises(TarnError) as caught:
        await lab.add()
    assert caught.value.reason is Reason.REPOSITORY_EXISTS


async def test_without_its_default_branch_nothing_is_added(lab: RebuildLab) -> None:
    """The name is free afterwards."""
    with pytest.raises(TarnError) as caught:
        await lab.add(default=BranchId("trunk"))
    assert caught.value.reason is Reason.BRANCH_NOT_FOUND
    await lab.add()


@pytest.mark.timeout(600)
async def test_an_attempt_may_die_at_each_write(lab: RebuildLab) -> None:
    """Users see nothing of it, or all; the next attempt adds all."""
    wanted = await lab.shown(lab.lake.graveler, lab.lake.repository)
    del wanted["records"]
    moment = deaths = 0
    while True:
        moment += 1
        lab.new_target()
        life = Life(moment)
        try:
            await lab.add(Mortal(lab.target, life), blocks=Mortal(lab.replicas.blocks, life))
        except Died:
            deaths += 1
        else:
            break
        lab.replicas.clock.advance(120)
        if not await lab.is_added():  # it died after its last write
            await lab.add()
        assert await listings(lab) == wanted, f"moment {moment}"
    assert deaths > 20
