"""Mark and sweep, compared with a brute-force oracle over random namespaces."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pytest
from collected_lake import DAY_US, MARK, CollectedLake
from hypothesis import given, settings
from hypothesis import strategies as st
from random_lakes import random_lake, without_runs

from tarn.block.local import open_local
from tarn.block.port import BlockInfo, BlockKey
from tarn.block.rangefile import metarange_path
from tarn.collection import references
from tarn.collection.block_names import BlockKind
from tarn.collection.limits import Limits
from tarn.collection.outcomes import Outcome, read_report
from tarn.collection.quarantine import read_manifest
from tarn.collection.sweeping import SweepOptions
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import physical_path


@pytest.fixture
def collected(tmp_path: Path) -> CollectedLake:
    return CollectedLake(tmp_path)


@settings(max_examples=25)
@given(st.integers(0, 1 << 32))
async def test_deletes_exactly_what_is_old_and_unreferenced(seed: int) -> None:
    with TemporaryDirectory() as folder:
        lake = CollectedLake(Path(folder))
        live = await random_lake(lake, seed)
        everything = await lake.paths()
        manifest = await lake.mark()
        assert set(await lake.quarantined(manifest)) == everything - live
        assert without_runs(await lake.paths()) == everything, "a mark deletes nothing"
        report = await lake.sweep(manifest)
        assert without_runs(await lake.paths()) == live
        assert report.total(Outcome.DELETED).count == len(everything - live)
        assert report == await read_report(lake.blocks, lake.namespace, MARK)
        assert not report.missing
        assert not lake.lease.is_open


@pytest.mark.parametrize("small_bytes_max", [0, 65536], ids=["files", "rows"])
async def test_collects_a_local_store(tmp_path: Path, small_bytes_max: int) -> None:
    clock = CollectedLake(tmp_path).clock
    async with AsyncExitStack() as stack:
        store = await open_local(tmp_path / "root", clock=clock, small_bytes_max=small_bytes_max)
        stack.push_async_callback(store.close)
        lake = CollectedLake(tmp_path, clock, store=store)
        live, dead = await lake.object(), await lake.object()
        lake.addresses.append(live)
        kept = await lake.listing([[live]])
        lost = await lake.listing([[dead]])
        lake.listings.append(kept)
        # Files have the time of the disk, so the clock of the run goes from the real time on.
        newest_us = max(info.mtime_us for info in await lake.infos())
        lake.clock.advance((newest_us - lake.clock.now_us() + 2 * DAY_US) / 1e6)
        report = await lake.sweep(await lake.mark())
        paths = without_runs(await lake.paths())
        assert physical_path(live) in paths
        assert physical_path(dead) not in paths
        assert metarange_path(kept) in paths
        assert metarange_path(lost) not in paths
        assert report.total(Outcome.DELETED).count == 3


async def test_a_dry_run_writes_nothing(collected: CollectedLake) -> None:
    await random_lake(collected, 7)
    before = await collected.paths()
    manifest = await collected.mark(dry_run=True)
    assert sum(part.count for part in manifest.parts)
    assert await collected.paths() == before


async def test_what_is_referenced_after_the_mark_is_kept(collected: CollectedLake) -> None:
    address = await collected.object()
    listing = await collected.listing([[await collected.object()]])
    collected.clock.advance(2 * 86_400)
    manifest = await collected.mark()
    assert manifest.candidates(BlockKind.DATA).count == 2
    collected.addresses.append(address)
    collected.listings.append(listing)
    before = await collected.paths()
    report = await collected.sweep(manifest)
    assert await collected.paths() >= before
    assert report.total(Outcome.REFERENCED).count == 4
    assert report.total(Outcome.DELETED).count == 0


async def test_what_was_renewed_after_the_mark_is_kept(collected: CollectedLake) -> None:
    listing = await collected.listing([[await collected.object()]])
    (path,) = await collected.paths("_tarn/ranges/")
    collected.clock.advance(2 * 86_400)
    manifest = await collected.mark()
    key = BlockKey(collected.namespace, path)
    body = await collected.blocks.read(key)
    await collected.blocks.delete_many(collected.namespace, [path])
    await collected.blocks.put(key, body)
    report = await collected.sweep(manifest)
    assert await collected.paths("_tarn/ranges/") == {path}
    assert await collected.paths(metarange_path(listing)) == set()
    assert report.outcomes["range"]["renewed"].count == 1


async def test_metaranges_go_before_the_ranges_that_they_name(collected: CollectedLake) -> None:
    listing = await collected.listing([[await collected.object()], [await collected.object()]])
    ranges = {
        path.removeprefix("_tarn/ranges/").removesuffix(".parquet")
        for path in await collected.paths("_tarn/ranges/")
    }
    collected.clock.advance(2 * 86_400)
    await collected.sweep(await collected.mark())
    first, *others = collected.lease.batches
    assert first == [listing]
    assert {block_id for batch in others for block_id in batch} == ranges


@pytest.mark.parametrize("part", ["metarange", "range"])
@pytest.mark.parametrize("is_damaged", [False, True], ids=["missing", "damaged"])
async def test_a_listing_that_cannot_be_read_ends_the_run(
    collected: CollectedLake, part: str, is_damaged: bool
) -> None:
    collected.listings.append(await collected.listing([[await collected.object()]]))
    (path,) = await collected.paths(f"_tarn/{part}s/")
    key = BlockKey(collected.namespace, path)
    body = await collected.blocks.read(key)
    await collected.blocks.delete_many(collected.namespace, [path])
    if is_damaged:
        await collected.blocks.put(key, body[:-9] + bytes(9))
    collected.clock.advance(2 * 86_400)
    with pytest.raises(TarnError) as raised:
        await collected.mark()
    assert raised.value.kind is Kind.CORRUPT
    assert await read_manifest(collected.blocks, collected.namespace, MARK) is None


@pytest.mark.parametrize("part", ["metarange", "range"])
async def test_an_incomplete_listing_that_nobody_needs_keeps_no_collection_away(
    collected: CollectedLake, part: str
) -> None:
    """It stays a root: what is left of it stays, too."""
    kept = await collected.object()
    collected.listings.append(await collected.listing([[kept]]))
    whole = await collected.paths()
    lost = await collected.listing([[kept], [await collected.object()]])
    collected.listings.append(lost)
    collected.unneeded.add(lost)
    path = metarange_path(lost)
    if part == "range":
        (path,) = await collected.paths("_tarn/ranges/") - whole
    await collected.blocks.delete_many(collected.namespace, [path])
    garbage = physical_path(await collected.object())
    collected.clock.advance(2 * 86_400)
    manifest = await collected.mark()
    assert manifest.abandoned == (lost,)
    assert await read_manifest(collected.blocks, collected.namespace, MARK) == manifest
    await collected.sweep(manifest)
    left = await collected.paths()
    assert garbage not in left
    assert whole <= left
    assert (metarange_path(lost) in left) is (part == "range")


async def test_a_range_that_a_needed_listing_lacks_ends_the_run(collected: CollectedLake) -> None:
    """Although one that is not needed lacks it, too."""
    shared = await collected.object()
    needed = await collected.listing([[shared]])
    (path,) = await collected.paths("_tarn/ranges/")
    other = await collected.listing([[shared], [await collected.object()]])
    collected.listings += [needed, other]
    collected.unneeded.add(other)
    await collected.blocks.delete_many(collected.namespace, [path])
    with pytest.raises(TarnError, match=path) as raised:
        await collected.mark()
    assert raised.value.kind is Kind.CORRUPT
    collected.unneeded.add(needed)
    assert set((await collected.mark()).abandoned) == {needed, other}


async def test_many_missing_files_are_no_abandoned_listings(
    collected: CollectedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "LISTING_IDS_MAX", 1)
    for _ in range(2):
        lost = await collected.listing([[await collected.object()]])
        collected.listings.append(lost)
        collected.unneeded.add(lost)
        await collected.blocks.delete_many(collected.namespace, [metarange_path(lost)])
    with pytest.raises(TarnError, match="run tarn fsck"):
        await collected.mark()


@pytest.mark.parametrize("is_damaged", [False, True], ids=["missing", "damaged"])
async def test_a_lost_part_of_the_quarantine_ends_the_sweep(
    collected: CollectedLake, is_damaged: bool
) -> None:
    await collected.listing([[await collected.object()]])
    collected.clock.advance(2 * 86_400)
    manifest = await collected.mark()
    part = manifest.parts[-1].path
    await collected.blocks.delete_many(collected.namespace, [part])
    if is_damaged:
        await collected.put(part, b"PAR1")
    before = await collected.paths()
    with pytest.raises(TarnError, match="cannot be used") as raised:
        await collected.sweep(manifest)
    assert raised.value.kind is Kind.CORRUPT
    assert await collected.paths() == before


async def test_a_run_that_exceeds_the_limits_waits_for_a_person(collected: CollectedLake) -> None:
    dead, live = await collected.object(b"123456"), await collected.object(b"1234")
    collected.addresses.append(live)
    collected.clock.advance(2 * 86_400)
    manifest = await collected.mark()
    for limits, told in (
        (Limits(share_max=0.4), "1 of 2 data blocks, more than 40%"),
        (Limits(share_max=0.5), "6 of 10 bytes of data blocks, more than 50%"),
        (Limits(share_max=1.0, bytes_max=5), "6 bytes, more than 5"),
    ):
        with pytest.raises(TarnError, match=told) as raised:
            await collected.sweep(manifest, SweepOptions(limits=limits))
        assert raised.value.kind is Kind.FAILED_PRECONDITION
        assert f"--confirm {MARK}" in raised.value.message
    assert physical_path(dead) in await collected.paths()
    await collected.sweep(manifest, SweepOptions(limits=Limits(0.0), is_confirmed=True))
    assert physical_path(dead) not in await collected.paths()


async def test_a_run_that_lost_its_lease_deletes_nothing_more(collected: CollectedLake) -> None:
    for _ in range(5):
        await collected.object()
    await collected.listing([[await collected.object()]])
    collected.clock.advance(2 * 86_400)
    manifest = await collected.mark()
    before = await collected.paths()
    collected.lease.error = TarnError(Kind.CONFLICT, Reason.INTERNAL, "lost")
    with pytest.raises(TarnError, match="lost"):
        await collected.sweep(manifest)
    assert await collected.paths() == before


async def test_a_process_that_stood_still_deletes_nothing_of_its_batch(
    collected: CollectedLake,
) -> None:
    """The time of the batch may be over, and a build may have found the range and relied on it."""
    path = metarange_path(await collected.listing([[await collected.object()]]))
    collected.clock.advance(2 * 86_400)
    manifest = await collected.mark()
    look = collected.blocks.stat
    is_asleep = True

    async def stat(key: BlockKey) -> BlockInfo:
        info = await look(key)
        if is_asleep:
            collected.clock.advance(1200)
        return info

    with mock.patch.object(collected.blocks, "stat", stat):
        with pytest.raises(TarnError, match="stood still for 1200 s"):
            await collected.sweep(manifest)
        assert path in await collected.paths()
        assert collected.lease.is_open
        is_asleep = False
        await collected.sweep(manifest)
    assert path not in await collected.paths()


async def test_a_run_that_lost_its_lease_deletes_no_data(collected: CollectedLake) -> None:
    """Without metadata among the candidates: data has no announced batches."""
    await collected.object()
    collected.clock.advance(2 * 86_400)
    manifest = await collected.mark()
    before = await collected.paths()
    collected.lease.error = TarnError(Kind.FAILED_PRECONDITION, Reason.COLLECTION_LOST, "lost")
    with pytest.raises(TarnError, match="lost"):
        await collected.sweep(manifest)
    assert await collected.paths() == before


async def test_the_empty_listing_is_always_live(collected: CollectedLake) -> None:
    path = metarange_path(await collected.listing([]))
    collected.clock.advance(2 * 86_400)
    manifest = await collected.mark()
    assert set(await collected.quarantined(manifest)) == set()
    assert path in await collected.paths()


async def test_a_sweep_that_has_ended_is_not_done_again(collected: CollectedLake) -> None:
    await collected.object()
    collected.clock.advance(2 * 86_400)
    manifest = await collected.mark()
    report = await collected.sweep(manifest)
    collected.clock.advance(60)
    assert await collected.sweep(manifest, run_id="c" * 32) == report
