"""A collector that was given the block store of another installation says so, and reports no lost data."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from collector_lab import NO_LIMITS, CollectorLab, collector_lab
from erasure_lab import eraser_of, history

from tarn.block.mem import MemBlockStore
from tarn.collection.collector import Collector
from tarn.collection.expiry_preview import preview_expiry
from tarn.collection.progress import CollectionProgress
from tarn.core.errors import Kind, Reason, TarnError


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[CollectorLab]:
    async with collector_lab(tmp_path) as lab:
        yield lab


def misled(lab: CollectorLab) -> Collector:
    """The collector, with an empty store in place of that of the installation."""
    return replace(lab.collector, blocks=MemBlockStore(lab.service.clock))


async def preview(lab: CollectorLab) -> object:
    collector = misled(lab)
    now_us = lab.service.clock.now_us()
    return await preview_expiry(
        collector.client, collector.call, "lake", collector.blocks, now_us, CollectionProgress()
    )


STEPS: dict[str, Callable[[CollectorLab], Awaitable[object]]] = {
    "mark": lambda lab: misled(lab).mark("lake"),
    "dry run": lambda lab: misled(lab).mark("lake", dry_run=True),
    "sweep": lambda lab: misled(lab).sweep("lake", NO_LIMITS),
    "erase plan": lambda lab: replace(eraser_of(lab), collector=misled(lab)).plan("lake", "u/**"),
    "erase run": lambda lab: replace(eraser_of(lab), collector=misled(lab)).run("lake", "a" * 32),
    "erase repair": lambda lab: replace(eraser_of(lab), collector=misled(lab)).repair("lake"),
    "preview": preview,
}


@pytest.mark.parametrize("step", STEPS)
async def test_the_store_of_another_installation_is_named(lab: CollectorLab, step: str) -> None:
    await history(lab)
    await lab.pass_days(2)
    if step == "sweep":
        await lab.collector.mark("lake")
        await lab.pass_days(1)
    with pytest.raises(TarnError) as caught:
        await STEPS[step](lab)
    assert (caught.value.kind, caught.value.reason) == (
        Kind.FAILED_PRECONDITION,
        Reason.BLOCK_NOT_FOUND,
    )
    assert "another installation" in caught.value.message
    assert (await lab.collector.record("lake")).run_id == "", "the run has ended"


async def test_blocks_that_are_lost_in_the_right_store_are_still_reported(
    lab: CollectorLab,
) -> None:
    await history(lab)
    await lab.pass_days(2)
    blocks = lab.collector.blocks
    lost = [each.path for each in await blocks.list_page(lab.namespace, "_tarn/ranges/", "", 100)]
    assert lost
    await blocks.delete_many(lab.namespace, lost)
    with pytest.raises(TarnError) as caught:
        await lab.collector.mark("lake")
    assert caught.value.kind is Kind.CORRUPT
