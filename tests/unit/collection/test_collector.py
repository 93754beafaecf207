"""Collections over the real graveler: random histories, compared with what readers can read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from collector_lab import NO_LIMITS, CollectorLab, check_history, collector_lab
from graveler_service import reason_of

from tarn.block.port import BlockKey
from tarn.collection import limits
from tarn.collection.block_names import BlockKind
from tarn.collection.collector import Replaced, Step, needs_new_mark, next_step
from tarn.collection.graveler_run import GravelerRun
from tarn.collection.limits import Limits
from tarn.collection.outcomes import Outcome
from tarn.collection.quarantine import Manifest, Part, Tally, read_manifest
from tarn.collection.sweeping import SweepOptions
from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId, RepositoryId
from tarn_proto.graveler.v1 import collection_service_pb2 as pb


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[CollectorLab]:
    async with collector_lab(tmp_path) as lab:
        yield lab


@pytest.mark.parametrize("seed", range(8))
async def test_readers_read_everything_and_all_garbage_is_gone(
    lab: CollectorLab, seed: int
) -> None:
    await check_history(lab, seed)


async def test_a_young_block_is_kept(lab: CollectorLab) -> None:
    lost = await lab.put("main", "a")
    await lab.put("main", "a")
    manifest = await lab.collector.mark("lake")
    assert manifest.candidates(BlockKind.DATA).count == 0
    await lab.pass_days(1.5)
    manifest = await lab.collector.mark("lake")
    assert manifest.candidates(BlockKind.DATA).count == 1
    await lab.pass_days(1)
    await lab.collector.sweep("lake", NO_LIMITS)
    assert lost not in await lab.blocks()


async def test_the_next_step_follows_from_the_record(lab: CollectorLab) -> None:
    clock = lab.service.clock
    assert next_step(await lab.collector.record("lake"), clock.now_us()) is Step.MARK
    manifest = await lab.collector.mark("lake")
    record = await lab.collector.record("lake")
    assert record.mark_run_id == manifest.run_id
    assert next_step(record, clock.now_us()) is Step.WAIT
    assert await reason_of(lab.collector.sweep("lake", NO_LIMITS)) is Reason.COLLECTION_TOO_EARLY
    await lab.pass_days(1)
    assert next_step(record, clock.now_us()) is Step.SWEEP
    await lab.collector.sweep("lake", NO_LIMITS)
    record = await lab.collector.record("lake")
    assert next_step(record, clock.now_us()) is Step.MARK
    assert record.phase == pb.COLLECTION_PHASE_IDLE
    assert await reason_of(lab.collector.sweep("lake", NO_LIMITS)) is Reason.COLLECTION_NO_MARK


async def test_totals_are_told_to_graveler(lab: CollectorLab) -> None:
    await lab.put("main", "a", b"12345")
    await lab.put("main", "a", b"12")
    await lab.pass_days(2)
    await lab.collector.mark("lake")
    await lab.pass_days(1)
    report = await lab.collector.sweep("lake", NO_LIMITS)
    assert report.total(Outcome.DELETED).size_bytes == 5
    record = await lab.collector.record("lake")
    assert record.last_mark.candidate_bytes == record.last_sweep.deleted_bytes == 5
    assert record.last_sweep.deleted_count == 1


async def test_a_dry_run_leaves_no_mark(lab: CollectorLab) -> None:
    await lab.put("main", "a")
    before = await lab.blocks("")
    manifest = await lab.collector.mark("lake", dry_run=True)
    record = await lab.collector.record("lake")
    assert (record.mark_run_id, record.run_id) == ("", "")
    assert await lab.blocks("") == before
    assert await read_manifest(lab.collector.blocks, lab.namespace, manifest.run_id) is None


async def test_a_run_that_exceeds_a_limit_is_confirmed_by_its_id(lab: CollectorLab) -> None:
    lost = await lab.put("main", "a")
    await lab.put("main", "a")
    await lab.pass_days(2)
    manifest = await lab.collector.mark("lake")
    await lab.pass_days(1)
    strict = SweepOptions(limits=Limits(share_max=0.1))
    for confirmed in ("", "0" * 32):
        with pytest.raises(TarnError, match="more than 10%"):
            await lab.collector.sweep("lake", strict, confirmed)
    assert lost in await lab.blocks()
    assert (await lab.collector.record("lake")).run_id == "", "the refused sweep has ended"
    await lab.collector.sweep("lake", strict, manifest.run_id)
    assert lost not in await lab.blocks()


async def test_a_held_collection_does_not_mark(lab: CollectorLab) -> None:
    await lab.put("main", "a")
    await lab.collector.client.hold(lab.admin, "lake", 60)
    assert await reason_of(lab.collector.mark("lake")) is Reason.COLLECTION_HELD
    lab.service.clock.advance(61)
    await lab.collector.mark("lake")


async def test_two_runs_exclude_each_other_until_the_lease_ends(lab: CollectorLab) -> None:
    client, admin = lab.collector.client, lab.admin
    await client.begin(admin, "lake", "d" * 32, pb.COLLECTION_PHASE_MARK)
    assert await reason_of(lab.collector.mark("lake")) is Reason.COLLECTION_RUNNING
    lab.service.clock.advance(301)
    await lab.collector.mark("lake")


async def test_a_lost_live_block_holds_collections(
    lab: CollectorLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = await lab.put("main", "a")
    await lab.put("main", "b")
    await lab.put("main", "b")
    await lab.pass_days(2)
    await lab.collector.mark("lake")
    await lab.pass_days(1)
    blocks = lab.service.replicas.blocks
    delete_many = blocks.delete_many

    async def greedy(namespace: str, paths: list[str]) -> None:
        await delete_many(namespace, [*paths, live])

    monkeypatch.setattr(blocks, "delete_many", greedy)
    with pytest.raises(TarnError, match="collections are held for 7 days") as raised:
        await lab.collector.sweep("lake", NO_LIMITS)
    assert raised.value.kind is Kind.CORRUPT
    assert await reason_of(lab.collector.mark("lake")) is Reason.COLLECTION_HELD


async def test_a_loss_holds_collections_also_if_the_collector_dies_before_the_end_of_its_run(
    lab: CollectorLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = await lab.put("main", "a")
    await lab.put("main", "b")
    await lab.put("main", "b")
    await lab.pass_days(2)
    await lab.collector.mark("lake")
    await lab.pass_days(1)
    blocks, client = lab.service.replicas.blocks, lab.collector.client
    delete_many = blocks.delete_many

    async def greedy(namespace: str, paths: list[str]) -> None:
        await delete_many(namespace, [*paths, live])

    async def dies(*_: object, **__: object) -> pb.Collection:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the process is gone")

    monkeypatch.setattr(blocks, "delete_many", greedy)
    with monkeypatch.context() as patched:
        patched.setattr(client, "end", dies)
        with pytest.raises(TarnError, match="the process is gone"):
            await lab.collector.sweep("lake", NO_LIMITS)
    lab.service.clock.advance(301)
    assert await reason_of(lab.collector.mark("lake")) is Reason.COLLECTION_HELD
    await lab.pass_days(7.1)
    with pytest.raises(TarnError, match="collections are held for 7 days"):
        await lab.collector.sweep("lake", NO_LIMITS)


async def marked_with_garbage(lab: CollectorLab) -> tuple[str, str]:
    """A mark that can be swept: the path of its garbage, and its id."""
    lost = await lab.put("main", "a")
    await lab.put("main", "a")
    await lab.pass_days(2)
    manifest = await lab.collector.mark("lake")
    await lab.pass_days(1)
    return lost, manifest.run_id


@pytest.mark.parametrize("name", ["manifest.json", "quarantine/"])
@pytest.mark.parametrize("is_damaged", [False, True], ids=["missing", "damaged"])
async def test_a_mark_whose_files_are_lost_is_replaced(
    lab: CollectorLab, name: str, is_damaged: bool
) -> None:
    lost, mark = await marked_with_garbage(lab)
    blocks = lab.service.replicas.blocks
    for info in await blocks.list_page(lab.namespace, f"_tarn/collection/{mark}/{name}", "", 1000):
        await blocks.delete_many(lab.namespace, [info.path])
        if is_damaged:
            await blocks.put(BlockKey(lab.namespace, info.path), b"{}")
    assert await reason_of(lab.collector.sweep("lake", NO_LIMITS)) is Reason.DATA_CORRUPT
    done = await lab.collector.sweep_or_replace("lake", NO_LIMITS)
    assert isinstance(done, Replaced)
    assert done.mark_run_id == mark
    assert lost in await lab.blocks()
    await lab.pass_days(1)
    assert not isinstance(await lab.collector.sweep_or_replace("lake", NO_LIMITS), Replaced)
    assert lost not in await lab.blocks()


async def test_a_mark_that_exceeds_a_limit_waits_a_week_for_its_confirmation(
    lab: CollectorLab,
) -> None:
    lost, mark = await marked_with_garbage(lab)
    strict = SweepOptions(limits=Limits(share_max=0.1))
    with pytest.raises(TarnError, match=f"`tarn gc run lake --confirm {mark}`"):
        await lab.collector.sweep_or_replace("lake", strict)
    await lab.pass_days(7)
    done = await lab.collector.sweep_or_replace("lake", strict)
    assert isinstance(done, Replaced)
    assert "more than 10%" in done.reason
    await lab.pass_days(1)
    with pytest.raises(TarnError, match=f"--confirm {done.manifest.run_id}`"):
        await lab.collector.sweep_or_replace("lake", strict)
    assert lost in await lab.blocks()


async def test_a_sweep_is_compared_with_the_last_complete_one(
    lab: CollectorLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GROWTH_BLOCKS", 2)
    await marked_with_garbage(lab)
    await lab.collector.sweep("lake", NO_LIMITS)
    for _ in range(7):
        await lab.put("main", "b")
    await lab.pass_days(2)
    manifest = await lab.collector.mark("lake")
    await lab.pass_days(1)
    with pytest.raises(TarnError, match="6 blocks, more than 5 times the 1 of the last sweep"):
        await lab.collector.sweep("lake", NO_LIMITS)
    no_growth = replace(NO_LIMITS, limits=Limits(1.0, growth_max=6))
    assert (await lab.collector.sweep("lake", no_growth)).mark_run_id == manifest.run_id


@pytest.mark.parametrize(
    ("count", "size_bytes", "last", "told"),
    [
        (10_001, 0, Tally(2_000, 0), "10001 blocks, more than 5 times the 2000"),
        (10_001, 0, Tally(2_001, 0), ""),
        (10_000, 0, Tally(), ""),
        (1, (10 << 30) + 1, Tally(1, 1 << 30), "bytes, more than 5 times"),
        (1, 10 << 30, Tally(1, 1 << 30), ""),
        (1 << 40, 1 << 50, None, ""),
    ],
)
def test_growth_counts_above_a_floor(
    count: int, size_bytes: int, last: Tally | None, told: str
) -> None:
    listed = {kind.value: Tally(count, size_bytes) for kind in BlockKind}
    part = Part("p", BlockKind.DATA.value, count, size_bytes, "")
    manifest = Manifest("a" * 32, "lake", 0, 0, listed, (part,))
    if told:
        with pytest.raises(TarnError, match=told):
            limits.check_limits(manifest, Limits(1.0), last)
    else:
        limits.check_limits(manifest, Limits(1.0), last)


async def test_damage_of_the_lake_is_no_reason_for_a_new_mark(lab: CollectorLab) -> None:
    record = pb.Collection(mark_run_id="a" * 32)
    for error in (
        TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, "a range", path="_tarn/range/1"),
        TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, "another mark", run_id="b" * 32),
        TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "down", run_id="a" * 32),
    ):
        assert not needs_new_mark(record, error, 1 << 60)


async def test_the_files_of_the_mark_that_can_be_swept_outlive_their_year(
    lab: CollectorLab,
) -> None:
    lost, mark = await marked_with_garbage(lab)
    await lab.pass_days(400)
    ended = lab.collector.client.end

    async def dies(*_: object, **__: object) -> pb.Collection:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the process is gone")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lab.collector.client, "end", dies)
        with pytest.raises(TarnError, match="the process is gone"):
            await lab.collector.mark("lake")
    assert lab.collector.client.end == ended
    lab.service.clock.advance(301)
    report = await lab.collector.sweep("lake", NO_LIMITS)
    assert report.mark_run_id == mark
    assert lost not in await lab.blocks()


async def test_a_commit_that_lost_its_listing_matters_only_if_a_ref_leads_to_it(
    lab: CollectorLab,
) -> None:
    """Its process paused for days, and no branch was moved to it."""
    async with lab.service.replicas.replica() as graveler:
        repository = await graveler.repositories.read(RepositoryId("lake"))
        commit = Commit((), MetarangeId("f" * 64), "ann", "", 0, 0, ())
        commit_id = await graveler.commits.add(repository, commit)
    assert (await lab.collector.mark("lake")).abandoned == (commit.metarange_id,)
    note = (await lab.collector.record("lake")).last_mark.note
    assert note.startswith("1 incomplete listing")
    await lab.service.graveler.create_tag(lab.admin, "lake", "v1", commit_id)
    lab.service.clock.advance(301)
    with pytest.raises(TarnError, match="is missing") as raised:
        await lab.collector.mark("lake")
    assert raised.value.kind is Kind.CORRUPT


async def test_a_manifest_of_another_cutoff_ends_the_sweep(lab: CollectorLab) -> None:
    lost = await lab.put("main", "a")
    await lab.put("main", "a")
    await lab.pass_days(2)
    manifest = await lab.collector.mark("lake")
    blocks = lab.service.replicas.blocks
    key = BlockKey(lab.namespace, f"_tarn/collection/{manifest.run_id}/manifest.json")
    body = await blocks.read(key)
    await blocks.delete_many(lab.namespace, [key.path])
    cutoff = str(manifest.cutoff_us).encode()
    await blocks.put(key, body.replace(cutoff, str(manifest.cutoff_us + 1).encode()))
    await lab.pass_days(1)
    with pytest.raises(TarnError, match="another cutoff") as raised:
        await lab.collector.sweep("lake", NO_LIMITS)
    assert raised.value.kind is Kind.CORRUPT
    assert lost in await lab.blocks()


async def test_a_lost_lease_cancels_the_work(lab: CollectorLab) -> None:
    """The work waits for the block store when another run takes the repository."""
    client = lab.collector.client
    await client.begin(lab.admin, "lake", "d" * 32, pb.COLLECTION_PHASE_MARK)
    clock = lab.service.clock
    run = GravelerRun(
        client,
        lambda: lab.admin,
        "lake",
        "d" * 32,
        clock.monotonic(),
        300.0,
        clock,
        random.Random(1),
    )

    async def works_on() -> None:
        async with run.renewed():
            await asyncio.Event().wait()

    working = asyncio.ensure_future(works_on())
    await asyncio.sleep(0)
    for _ in range(3):
        clock.advance(31)
        await asyncio.sleep(0.01)
        assert not working.done()
    await client.hold(lab.admin, "lake", 60)
    clock.advance(31)
    async with asyncio.timeout(5):
        assert await reason_of(working) is Reason.COLLECTION_HELD


async def test_work_stops_before_the_lease_ends_if_graveler_is_silent(
    lab: CollectorLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, clock = lab.collector.client, lab.service.clock
    await client.begin(lab.admin, "lake", "d" * 32, pb.COLLECTION_PHASE_MARK)
    run = GravelerRun(
        client,
        lambda: lab.admin,
        "lake",
        "d" * 32,
        clock.monotonic(),
        300.0,
        clock,
        random.Random(1),
    )

    async def silent(*_: object) -> pb.Collection:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no answer")

    monkeypatch.setattr(client, "renew", silent)

    async def works_on() -> None:
        async with run.renewed():
            await asyncio.Event().wait()

    began = clock.monotonic()
    working = asyncio.ensure_future(works_on())
    while not working.done():
        await asyncio.sleep(0.001)
        clock.advance(31)
    assert await reason_of(working) is Reason.UNAVAILABLE
    lease_s = (await client.get(lab.admin, "lake")).lease_ms / 1000
    assert clock.monotonic() - began < lease_s


async def test_files_of_runs_are_kept_for_a_year(lab: CollectorLab) -> None:
    first = (await lab.collector.mark("lake")).run_id
    await lab.pass_days(364)
    second = (await lab.collector.mark("lake")).run_id
    await lab.pass_days(2)
    third = (await lab.collector.mark("lake")).run_id
    left = {path.split("/")[2] for path in await lab.blocks("_tarn/collection/")}
    assert left == {second, third}
    assert first not in left
