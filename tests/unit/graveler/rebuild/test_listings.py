"""A rebuild opens a store only if its listings are there, and no sweep of the lost store will delete them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rebuild_lab import INSTALLATION, RebuildLab, rebuild_lab

from tarn.block.port import BlockKey
from tarn.collection.block_names import BlockKind, listed_of
from tarn.collection.quarantine import QuarantineWriter, Tally, run_folder
from tarn.core.collection import LIMITS
from tarn.core.errors import Kind, TarnError
from tarn.kv.fence import read_fence
from tarn_graveler.rebuild.listings import require_listings
from tarn_graveler.rebuild.report import RebuildReport

RUN = "a" * 32
KINDS = (BlockKind.RANGE, BlockKind.METARANGE)


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[RebuildLab]:
    async with rebuild_lab(tmp_path) as made:
        await made.lake.put("committed", 1)
        await made.lake.commit("first")
        await made.lake.put("uncommitted", 2)
        await made.drain()
        yield made


async def listed(lab: RebuildLab, kind: BlockKind) -> list[str]:
    blocks, namespace = lab.replicas.blocks, lab.lake.repository.storage_namespace
    return [each.path for each in await blocks.list_page(namespace, kind.prefix, "", 100)]


async def dead_attempt(lab: RebuildLab) -> dict[BlockKind, list[str]]:
    """Rebuilds, and forgets the store; returns the blocks of the listing that the rebuild has built."""
    before = {kind: await listed(lab, kind) for kind in KINDS}
    await lab.rebuild()
    lab.new_target()
    built = {kind: sorted({*await listed(lab, kind)} - {*before[kind]}) for kind in KINDS}
    assert all(built.values())
    return built


async def mark(lab: RebuildLab, doomed: dict[BlockKind, list[str]]) -> None:
    """Writes the quarantine of a mark that came more than a day later."""
    blocks, namespace = lab.replicas.blocks, lab.lake.repository.storage_namespace
    lab.replicas.clock.advance(2 * LIMITS.cutoff_us / 1e6)
    writer = QuarantineWriter(blocks, namespace, RUN, "b" * 32)
    for kind, paths in doomed.items():
        infos = [await blocks.stat(BlockKey(namespace, path)) for path in paths]
        await writer.add(kind, listed_of(kind, infos))
        await writer.flush(kind)
    tallies = {kind.value: Tally() for kind in BlockKind}
    await writer.finish("lake", 1, 2, tallies)


async def waiting(lab: RebuildLab) -> asyncio.Future[RebuildReport]:
    """Begins a rebuild; returns when it waits."""
    task = asyncio.ensure_future(lab.rebuild())
    while not lab.replicas.clock.sleepers:
        assert not task.done(), "it does not wait"
        await asyncio.sleep(0.005)
    return task


async def end(lab: RebuildLab, task: asyncio.Future[RebuildReport]) -> None:
    while not task.done():
        await asyncio.wait([task], timeout=0.005)
        if lab.replicas.clock.sleepers:
            lab.replicas.clock.advance(5)


async def is_closed(lab: RebuildLab) -> bool:
    fence, _ = await read_fence(lab.target, INSTALLATION)
    return fence is not None


async def test_a_rebuild_does_not_wait_for_a_sweep_that_has_marked_other_blocks(
    lab: RebuildLab,
) -> None:
    others = {kind: await listed(lab, kind) for kind in KINDS}
    await dead_attempt(lab)
    await mark(lab, others)
    before_us = lab.replicas.clock.now_us()
    assert (await lab.rebuild()).is_whole
    assert lab.replicas.clock.now_us() == before_us


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_damaged", [False, True])
async def test_a_listing_that_a_sweep_has_marked_is_waited_for(
    lab: RebuildLab, kind: BlockKind, is_damaged: bool
) -> None:
    """A quarantine that cannot be read may name each block."""
    built = await dead_attempt(lab)
    blocks, namespace = lab.replicas.blocks, lab.lake.repository.storage_namespace
    await mark(lab, {kind: built[kind]})
    if is_damaged:
        (part,) = [
            each.path
            for each in await blocks.list_page(namespace, run_folder(RUN), "", 10)
            if each.path.endswith(".parquet")
        ]
        await blocks.delete_many(namespace, [part])
    task = await waiting(lab)
    began_us = lab.replicas.clock.now_us()
    assert await is_closed(lab)
    await end(lab, task)
    assert task.result().is_whole
    assert lab.replicas.clock.now_us() - began_us > LIMITS.batch_us
    assert not await is_closed(lab)
    assert await lab.fsck() == []


async def test_a_listing_that_was_marked_while_its_rebuild_ran_is_made_young(
    lab: RebuildLab,
) -> None:
    """A sweep that looks later spares it. What no sweep has marked is left as it is."""
    built, clock = await dead_attempt(lab), lab.replicas.clock
    blocks, namespace = lab.replicas.blocks, lab.lake.repository.storage_namespace
    await mark(lab, {BlockKind.METARANGE: built[BlockKind.METARANGE]})
    began_us = clock.now_us()
    paths = frozenset(path for some in built.values() for path in some)
    shown: list[tuple[str, int, int]] = []
    work = require_listings(blocks, {namespace: paths}, clock, lambda *each: shown.append(each))
    task = asyncio.ensure_future(work)
    while not clock.sleepers:
        await asyncio.wait([task], timeout=0.001)
    young = {
        kind: [await blocks.stat(BlockKey(namespace, each)) for each in built[kind]]
        for kind in KINDS
    }
    assert all(each.mtime_us >= began_us for each in young[BlockKind.METARANGE])
    assert all(each.mtime_us < began_us for each in young[BlockKind.RANGE])
    while not task.done():
        clock.advance(5)
        await asyncio.wait([task], timeout=0.001)
    await task
    seconds = LIMITS.batch_us // 1_000_000
    minutes = seconds // 60
    what = "waiting for deletions of the lost store"
    assert shown[0] == (f"{what}, {minutes} min left", 0, seconds)
    assert shown[-1] == (f"{what}, 0 min left", seconds, seconds)


async def test_a_repository_is_added_when_no_sweep_deletes_its_listings(lab: RebuildLab) -> None:
    built = await dead_attempt(lab)
    await mark(lab, built)
    began_us = lab.replicas.clock.now_us()
    shown: list[str] = []
    report = await lab.add(show=lambda what, _passed, _total: shown.append(what))
    assert not report.problems
    assert shown[0] == "waiting for deletions of the lost store, 20 min left"
    assert lab.replicas.clock.now_us() - began_us > LIMITS.batch_us
    assert await lab.is_added()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_store_whose_listing_is_deleted_meanwhile_does_not_open(
    lab: RebuildLab, kind: BlockKind
) -> None:
    """The next attempt builds the listing again."""
    built = await dead_attempt(lab)
    blocks, namespace = lab.replicas.blocks, lab.lake.repository.storage_namespace
    await mark(lab, {kind: built[kind]})
    task = await waiting(lab)
    await blocks.delete_many(namespace, built[kind][:1])
    await end(lab, task)
    with pytest.raises(TarnError, match="has deleted listings of this rebuild") as raised:
        task.result()
    assert raised.value.kind is Kind.FAILED_PRECONDITION
    assert await is_closed(lab)
    lab.new_target()
    task = await waiting(lab)
    await end(lab, task)
    assert task.result().is_whole
    assert await lab.fsck() == []
