"""The engine with Spark and the engine without, on the same random lakes and histories, and both against an oracle.

Each lake is made twice. One is marked by Spark and swept without it, the other the other way round.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from collected_lake import MARK, NO_LIMITS, CollectedLake
from collector_lab import CollectorLab, collector_lab, play, reachable, settle
from pyspark.sql import functions as f
from random_lakes import live_of, random_lake, without_runs
from spark_lakes import SPARK_HERE, local_lake, local_place
from tests.support.clock import ManualClock

from tarn.block.mem import MemBlockStore
from tarn.block.rangefile import metarange_path
from tarn.collection.block_names import BlockKind, paths_of
from tarn.collection.engine import Engine, InProcess
from tarn.collection.outcomes import Outcome
from tarn.collection.progress import CollectionProgress
from tarn.collection.quarantine import Manifest, read_manifest, read_parts
from tarn.collection.root_files import RootParts, write_roots
from tarn.collection.sweeping import SweepOptions
from tarn.core.errors import Kind, Reason, TarnError
from tarn_spark.collection import frames
from tarn_spark.collection.actions import SparkActions
from tarn_spark.collection.engine import SparkEngine

LAKES = int(os.environ.get("SPARK_LAKES", "2"))
"""Random lakes; more of them find more. Without `--long` the first one only."""
GARBAGE_OF_ALL_KINDS = 9
"""The seed of a history that leaves objects, ranges and metaranges behind."""
LARGE = bytes(70_000)
"""A body that a local store keeps as a file; smaller ones are rows."""

pytestmark = SPARK_HERE


async def spark_lake(stack: AsyncExitStack, folder: Path, spark: Any) -> CollectedLake:
    """Returns a lake on local blocks that Spark collects."""
    place = local_place(folder / "blocks")
    lake = await stack.enter_async_context(local_lake(folder, place))
    lake.engine = SparkEngine(spark, place)
    return lake


def shown(manifest: Manifest) -> tuple[object, ...]:
    """Returns what a manifest says, without the names of files and the times."""
    found = {kind: manifest.candidates(kind) for kind in BlockKind}
    return (manifest.repository, manifest.cutoff_us, manifest.listed, found)


async def grown(lake: CollectedLake, seed: int) -> set[str]:
    """Fills a lake; returns its blocks that are old and unreferenced."""
    await random_lake(lake, seed)
    lake.addresses.append(await lake.object(LARGE))
    await lake.object(LARGE)
    lake.clock.advance(2 * 86_400)
    await lake.object(LARGE)
    return await lake.paths() - await live_of(lake)


@pytest.mark.long
@pytest.mark.parametrize("part", ["metarange", "range"])
async def test_both_engines_pass_over_an_abandoned_listing(
    tmp_path: Path, spark: Any, part: str
) -> None:
    """Its other files stay; objects that only it named go. If it is needed, both end, and name the missing file."""
    async with AsyncExitStack() as stack:
        manifests, left = [], []
        for name, engine in (("one", None), ("two", InProcess())):
            lake = await spark_lake(stack, tmp_path / name, spark)
            lake.engine = engine or lake.engine
            kept = await lake.object()
            lake.listings.append(await lake.listing([[kept]]))
            whole = await lake.paths()
            lost = await lake.listing([[kept], [await lake.object()]])
            lake.listings.append(lost)
            path = metarange_path(lost)
            if part == "range":
                (path,) = await lake.paths("_tarn/ranges/") - whole
            await lake.blocks.delete_many(lake.namespace, [path])
            lake.clock.advance(2 * 86_400)
            with pytest.raises(TarnError, match=path) as raised:
                await lake.mark()
            assert raised.value.kind is Kind.CORRUPT
            lake.unneeded.add(lost)
            manifest = await lake.mark()
            assert manifest.abandoned == (lost,)
            assert await read_manifest(lake.blocks, lake.namespace, MARK) == manifest
            await lake.sweep(manifest)
            manifests.append(shown(manifest))
            left.append(without_runs(await lake.paths()))
            assert whole <= left[-1]
        assert manifests[0] == manifests[1]
        assert left[0] == left[1]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, LAKES))]
)
async def test_both_engines_do_the_same(tmp_path: Path, spark: Any, seed: int) -> None:
    async with AsyncExitStack() as stack:
        one = await spark_lake(stack, tmp_path / "one", spark)
        two = await spark_lake(stack, tmp_path / "two", spark)
        garbage = await grown(one, seed)
        assert await grown(two, seed) == garbage
        everything = await one.paths()
        spark_of_two, two.engine = two.engine, InProcess()
        marks = [await one.mark(), await two.mark()]
        one.engine, two.engine = InProcess(), spark_of_two
        for lake, manifest in zip((one, two), marks, strict=True):
            assert sorted(await lake.quarantined(manifest)) == sorted(garbage)
            assert without_runs(await lake.paths()) == everything
            assert not await lake.paths(f"_tarn/collection/{MARK}/roots/")
        assert shown(marks[0]) == shown(marks[1])
        # A block of the quarantine is in use again.
        again = max(path for path in garbage if path.startswith("data/"))
        reports = []
        for lake, manifest in zip((one, two), marks, strict=True):
            lake.addresses.append(bytes.fromhex(again.rsplit("/")[-1]))
            reports.append(await lake.sweep(manifest))
            assert without_runs(await lake.paths()) == everything - garbage | {again}
            assert not lake.lease.is_open
        assert (reports[0].listed, reports[0].outcomes) == (reports[1].listed, reports[1].outcomes)
        assert [report.missing for report in reports] == [(), ()]
        assert reports[1].sampled > 0
        assert reports[1].total(Outcome.REFERENCED).count == 1
        batches = [list(map(sorted, lake.lease.batches)) for lake in (one, two)]
        assert batches[0] == batches[1]


@dataclass
class ClockOfService:
    """The clock of a service that is made after its block store."""

    clock: ManualClock = field(default_factory=ManualClock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.clock, name)


@asynccontextmanager
async def lab_on_files(folder: Path, spark: Any) -> AsyncIterator[CollectorLab]:
    """Yields a graveler on local blocks, which `spark` collects; without it, in this process."""
    place, clock = local_place(folder / "blocks"), ClockOfService()
    await asyncio.to_thread(folder.mkdir)
    blocks = await place.open(cast("ManualClock", clock))

    def store(of_service: ManualClock) -> MemBlockStore:
        clock.clock = of_service
        return cast("MemBlockStore", blocks)

    engine: Engine = SparkEngine(spark, place) if spark else InProcess()
    try:
        async with collector_lab(folder, engine=engine, store=store) as lab:
            yield lab
    finally:
        await blocks.close()


async def candidates(lab: CollectorLab, manifest: Manifest) -> set[str]:
    """Returns the paths of the quarantine."""
    found = set[str]()
    for kind in BlockKind:
        async for rows in read_parts(lab.service.replicas.blocks, lab.namespace, manifest, kind):
            found |= {*paths_of(kind, rows["key"]).to_pylist()}
    return found


@pytest.mark.parametrize("seed", [GARBAGE_OF_ALL_KINDS, *range(LAKES - 2)])
async def test_both_engines_collect_the_same_history_of_a_graveler(
    tmp_path: Path, spark: Any, seed: int
) -> None:
    """Committed, staged and lost objects; the oracle reads what readers read."""
    async with (
        lab_on_files(tmp_path / "with", spark) as with_spark,
        lab_on_files(tmp_path / "without", None) as without,
    ):
        found, left = [], []
        for lab in (with_spark, without):
            refs = await play(lab, seed)
            await settle(lab, refs)
            for branch in ("main", "main", max(refs - {ref for ref in refs if ref[0] == "t"})):
                await lab.put(branch, "staged", LARGE)
            await lab.put("main", "lost", LARGE)
            await lab.service.graveler.unstage(lab.admin, "lake", "main", "lost")
            live = await reachable(lab, refs)
            everything = await lab.blocks("")
            await lab.pass_days(2)
            found.append(await candidates(lab, await lab.collector.mark("lake")))
            assert {path for path in everything - found[-1] if path.startswith("data/")} == live
            await lab.pass_days(1)
            await lab.collector.sweep("lake", SweepOptions(limits=NO_LIMITS))
            left.append(without_runs(await lab.blocks("")))
            assert left[-1] == without_runs(everything) - found[-1]
            assert await reachable(lab, refs) == live, "every listing can still be read"
        assert found[0] == found[1]
        assert left[0] == left[1]
        if seed == GARBAGE_OF_ALL_KINDS:
            folders = ("data/", "_tarn/ranges/", "_tarn/metaranges/")
            assert all(any(path.startswith(each) for path in found[0]) for each in folders)


async def failure_of(marking: Awaitable[object]) -> TarnError:
    with pytest.raises(TarnError) as raised:
        await marking
    return raised.value


async def test_what_cannot_be_trusted_ends_a_mark(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        lake = await spark_lake(stack, tmp_path / "lake", spark)
        lake.addresses.append(await lake.object())
        lake.listings.append(await lake.listing([[await lake.object()]]))
        lake.clock.advance(2 * 86_400)

        async def incomplete(*arguments: Any) -> RootParts:
            parts = await write_roots(*arguments)
            await lake.blocks.delete_many(lake.namespace, [parts.whole[-1].path])
            return parts

        with monkeypatch.context() as patch:
            patch.setattr("tarn_spark.collection.engine.write_roots", incomplete)
            error = await failure_of(lake.mark())
        assert (error.kind, "roots/" in error.message) == (Kind.CORRUPT, True)
        assert "is missing" in error.message

        # The sides of the join hash their keys in different ways, so it finds everything unreferenced.
        hashes = iter([f.xxhash64("key", "kind"), f.xxhash64("kind", "key")])
        with monkeypatch.context() as patch:
            patch.setattr(frames, "hash_of_key", lambda: next(hashes))
            error = await failure_of(lake.mark())
        assert "that are in use" in error.message

        (path,) = await lake.paths("_tarn/ranges/")
        await lake.blocks.delete_many(lake.namespace, [path])
        error = await failure_of(lake.mark())
        assert (error.kind, error.reason) == (Kind.CORRUPT, Reason.DATA_CORRUPT)
        assert "cannot know which objects are in use" in error.message
        assert await read_manifest(lake.blocks, lake.namespace, MARK) is None
        assert not await lake.paths("_tarn/collection/")


def wait_for_a_job(tracker: Any) -> None:
    while not tracker.getActiveJobsIds():
        time.sleep(0.01)


async def test_a_mark_that_is_cancelled_leaves_nothing_that_runs(
    tmp_path: Path, spark: Any
) -> None:
    async with AsyncExitStack() as stack:
        lake = await spark_lake(stack, tmp_path / "lake", spark)
        lake.listings.append(await lake.listing([[await lake.object()]]))
        lake.clock.advance(2 * 86_400)
        marking = asyncio.ensure_future(lake.mark())
        tracker = spark.sparkContext.statusTracker()
        async with asyncio.timeout(60):
            await asyncio.to_thread(wait_for_a_job, tracker)
            assert await lake.paths("_tarn/collection/"), "the roots"
            marking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await marking
        assert list(tracker.getActiveJobsIds()) == []
        assert not await lake.paths("_tarn/collection/")


async def test_an_action_that_is_cancelled_ends_its_jobs(spark: Any) -> None:
    """Its tasks would take two minutes, and the end of an action is waited for."""
    seconds, context = 120, spark.sparkContext
    slow = context.parallelize([0, 1], 2).map(lambda _: time.sleep(seconds))
    running = asyncio.ensure_future(
        SparkActions(spark, CollectionProgress()).run("sleep", slow.collect)
    )
    async with asyncio.timeout(60):
        await asyncio.to_thread(wait_for_a_job, context.statusTracker())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert list(context.statusTracker().getActiveJobsIds()) == []


@pytest.mark.parametrize("lost", ["ReadRoots", "ReadQuarantine"])
async def test_rows_that_spark_loses_end_the_run(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    reader: Any = getattr(frames, lost)

    class Forgetful(reader):  # type: ignore[misc]
        """Loses the first row of each file."""

        async def __call__(self, blocks: Any, batch: Any) -> Any:
            async for rows in reader.__call__(self, blocks, batch):
                yield rows.slice(1)

    async with AsyncExitStack() as stack:
        lake = await spark_lake(stack, tmp_path / "lake", spark)
        lake.addresses.append(await lake.object())
        await lake.object()
        lake.clock.advance(2 * 86_400)
        everything = await lake.paths("data/")
        lake.engine, with_spark = InProcess(), lake.engine
        manifest = await lake.mark()
        lake.engine = with_spark
        monkeypatch.setattr(frames, lost, Forgetful)
        error = await failure_of(lake.sweep(manifest))
        assert (error.kind, "and Spark read 0 metarange" in error.message) == (Kind.CORRUPT, True)
        assert await lake.paths("data/") == everything


async def test_a_sweep_stops_with_its_lease_and_another_goes_on(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease ends after the first round, which is short, because one block per second may be deleted."""
    async with AsyncExitStack() as stack:
        lake = await spark_lake(stack, tmp_path / "lake", spark)
        count = 20
        for _ in range(count):
            await lake.object()
        lake.clock.advance(2 * 86_400)
        lake.engine, with_spark = InProcess(), lake.engine
        manifest = await lake.mark()
        lake.engine = with_spark
        confirm, rounds = lake.lease.confirm, []

        async def confirm_once() -> None:
            rounds.append(await lake.paths("data/"))
            if len(rounds) == 2:
                raise TarnError(Kind.FAILED_PRECONDITION, Reason.COLLECTION_LOST, "another run")
            await confirm()

        monkeypatch.setattr(lake.lease, "confirm", confirm_once)
        slow = SweepOptions(limits=NO_LIMITS, batch_blocks=1, deletes_per_second=1.0)
        error = await failure_of(lake.sweep(manifest, slow))
        assert error.reason is Reason.COLLECTION_LOST
        left = await lake.paths("data/")
        assert left == rounds[1]
        assert 0 < len(left) < count
        monkeypatch.setattr(lake.lease, "confirm", confirm)
        report = await lake.sweep(manifest)
        assert await lake.paths("data/") == set()
        assert report.total(Outcome.DELETED).count == count
        assert await lake.sweep(manifest) == report
