"""A build beside a sweep that has judged the ranges that it needs (docs/design/collection.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from lake import Lake, Running, reached

from tarn.block.merging import MergeSides
from tarn.block.port import BlockInfo, BlockKey, BlockStore
from tarn.block.rangefile import metarange_path, range_path
from tarn.core import collection as core
from tarn.core.collection import LIMITS, Collection, Phase, Totals
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.core.listing.choice import REFUSE
from tarn.kv.keys import RepositoryKeys
from tarn_graveler.branch.building import BuildOrder, InlineBuilder
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.guards.fences import Fences
from tarn_graveler.versioning.merges import Destination, MergeRequest

MARK, SWEEP = "a" * 32, "b" * 32


class Sweeper:
    """A sweep of a lake that has judged all of its ranges, as if they were garbage."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.cutoff_us = 0

    async def change(self, decide: Callable[[Collection], Collection]) -> Collection:
        return await self.lake.graveler.collections.change(self.lake.repository, decide)

    async def begin(self) -> None:
        """Makes a mark and begins its sweep. All that is in the bucket now is older than the cutoff."""
        clock = self.lake.clock
        self.cutoff_us = clock.now_us() + 1
        clock.advance(LIMITS.cutoff_us / 1e6)
        now = clock.now_us()
        await self.change(lambda record: core.begin(record, MARK, Phase.MARK, "", now, LIMITS))
        await self.change(
            lambda record: core.end(record, MARK, Totals(MARK), now, is_complete=True)
        )
        clock.advance(LIMITS.grace_us / 1e6)
        later = clock.now_us()
        await self.change(
            lambda record: core.begin(record, SWEEP, Phase.SWEEP, MARK, later, LIMITS)
        )

    async def ranges(self) -> list[BlockInfo]:
        namespace = self.lake.repository.storage_namespace
        store = self.lake.graveler.restoring.blocks
        found = await store.list_page(namespace, "_tarn/ranges/", "", 1000)
        return found + await store.list_page(namespace, "_tarn/metaranges/", "", 1000)

    async def open_batch(self, infos: list[BlockInfo]) -> list[BlockInfo]:
        """Begins a batch, then looks again; returns the blocks that are still old."""
        ids = [info.path.rpartition("/")[2].partition(".")[0] for info in infos]
        now = self.lake.clock.now_us()
        await self.change(lambda record: core.begin_batch(record, SWEEP, ids, now, LIMITS))
        again = {info.path: info for info in await self.ranges()}
        return [
            info
            for info in infos
            if info.path in again and again[info.path].mtime_us < self.cutoff_us
        ]

    async def delete(self, infos: list[BlockInfo]) -> None:
        namespace = self.lake.repository.storage_namespace
        store = self.lake.graveler.restoring.blocks
        await store.delete_many(namespace, [info.path for info in infos])

    async def end_batch(self) -> None:
        now = self.lake.clock.now_us()
        await self.change(lambda record: core.end_batch(record, SWEEP, now, LIMITS))

    async def batch(self, infos: list[BlockInfo]) -> int:
        """Deletes what is old; returns how many blocks that were."""
        old = await self.open_batch(infos)
        await self.delete(old)
        await self.end_batch()
        return len(old)


async def leave_ranges(lake: Lake, operation: str) -> None:
    """Stages rows, and leaves the ranges of their listing in the bucket, as a build does that is never published."""
    for number in range(30):
        await lake.put(f"k{number:02}", number + 1)
    branch = (await lake.graveler.branches.fresh(lake.main)).branch
    token = lake.graveler.layers.partition(lake.main, branch.staging)
    base = await lake.graveler.layers.base_of(lake.repository, branch)
    namespace, finely = lake.repository.storage_namespace, operation == "compact"
    order = BuildOrder(namespace, base, (token,), finely=finely)
    built = await InlineBuilder(lake.kv, lake.graveler.committed).build(order)
    assert len(built.made) > 3


async def judged(lake: Lake, sweeper: Sweeper) -> list[BlockInfo]:
    """Begins the sweep; returns what it has judged: all but the listing of the branch's commit."""
    branch = (await lake.graveler.branches.fresh(lake.main)).branch
    live = metarange_path(
        await lake.graveler.layers.metarange_of(lake.repository, branch.commit_id)
    )
    found = [info for info in await sweeper.ranges() if info.path != live]
    await sweeper.begin()
    assert all(info.mtime_us < sweeper.cutoff_us for info in found)
    return found


async def publish(lake: Lake, operation: str) -> None:
    if operation == "commit":
        await lake.commit()
    else:
        await lake.graveler.compacting.compact(lake.main)


async def falls_asleep(lake: Lake) -> None:
    """Waits until a task waits for the clock."""
    async with asyncio.timeout(5.0):
        while not lake.clock.sleepers:  # noqa: ASYNC110 - the clock has no event
            await asyncio.sleep(0)


async def assert_whole(lake: Lake) -> None:
    """Every range of the branch's listing is in the bucket."""
    branch = (await lake.graveler.branches.fresh(lake.main)).branch
    listing = await lake.graveler.layers.base_of(lake.repository, branch)
    metarange = await lake.graveler.committed.metarange(lake.repository.storage_namespace, listing)
    assert metarange.count == 30
    paths = [metarange_path(listing), *(range_path(each.range_id) for each in metarange.ranges)]
    store = lake.graveler.restoring.blocks
    for path in paths:
        await store.stat(BlockKey(lake.repository.storage_namespace, path))


OPERATIONS = pytest.mark.parametrize("operation", ["commit", "compact"])


@OPERATIONS
async def test_ranges_that_were_found_again_are_young_for_the_sweep(
    lake: Lake, operation: str
) -> None:
    await leave_ranges(lake, operation)
    sweeper = Sweeper(lake)
    infos = await judged(lake, sweeper)
    await publish(lake, operation)
    assert await sweeper.batch(infos) == 0
    await assert_whole(lake)


@OPERATIONS
async def test_a_batch_between_the_two_looks_of_a_build_is_noticed(
    lake: Lake, running: Running, operation: str
) -> None:
    """It has looked at the times before the build made the ranges young, and ended before the build looked again."""
    await leave_ranges(lake, operation)
    sweeper = Sweeper(lake)
    infos = await judged(lake, sweeper)
    first = lake.kv.hold("get_many", RepositoryKeys.COLLECTION, after=True)
    publishing = running.start(publish(lake, operation))
    await reached(first)
    old = await sweeper.open_batch(infos)
    assert len(old) == len(infos)
    second = lake.kv.hold("get_many", RepositoryKeys.COLLECTION)
    first.open()
    await reached(second)
    await sweeper.delete(old)
    await sweeper.end_batch()
    second.open()
    await publishing
    await assert_whole(lake)


@OPERATIONS
async def test_a_build_waits_for_a_batch_that_names_its_ranges(
    lake: Lake, running: Running, operation: str
) -> None:
    await leave_ranges(lake, operation)
    sweeper = Sweeper(lake)
    infos = await judged(lake, sweeper)
    old = await sweeper.open_batch(infos)
    publishing = running.start(publish(lake, operation))
    await falls_asleep(lake)
    await sweeper.delete(old)
    await sweeper.end_batch()
    lake.clock.advance(1)
    await publishing
    await assert_whole(lake)


async def test_a_batch_that_does_not_end_fails_the_build_until_its_time_is_over(
    lake: Lake, running: Running
) -> None:
    await leave_ranges(lake, "commit")
    sweeper = Sweeper(lake)
    await sweeper.open_batch(await judged(lake, sweeper))
    before = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    publishing = running.start(publish(lake, "commit"))
    for _ in range(10):
        await falls_asleep(lake)
        lake.clock.advance(1)
    with pytest.raises(TarnError) as raised:
        await publishing
    assert raised.value.kind is Kind.UNAVAILABLE
    assert (await lake.graveler.branches.fresh(lake.main)).branch.commit_id == before
    lake.clock.advance(LIMITS.batch_us / 1e6)
    await publish(lake, "commit")
    await assert_whole(lake)


async def test_a_batch_of_other_ranges_disturbs_no_build(lake: Lake) -> None:
    await leave_ranges(lake, "commit")
    sweeper = Sweeper(lake)
    await judged(lake, sweeper)
    now = lake.clock.now_us()
    await sweeper.change(lambda record: core.begin_batch(record, SWEEP, ["0" * 64], now, LIMITS))
    await publish(lake, "commit")
    assert not lake.clock.sleepers
    await assert_whole(lake)


@OPERATIONS
async def test_a_listing_that_takes_days_to_build_is_published(
    lake: Lake, running: Running, operation: str
) -> None:
    """No sweep began meanwhile, so none has judged its ranges."""
    await leave_ranges(lake, operation)
    first = lake.kv.hold("get_many", RepositoryKeys.COLLECTION, after=True)
    publishing = running.start(publish(lake, operation))
    await reached(first)
    lake.clock.advance(3 * LIMITS.cutoff_us / 1e6)
    first.open()
    await publishing
    await assert_whole(lake)


@OPERATIONS
async def test_builds_beside_which_sweeps_begin_again_and_again_are_given_up(
    lake: Lake, running: Running, operation: str
) -> None:
    await leave_ranges(lake, operation)
    sweeper = Sweeper(lake)
    before = (await lake.graveler.branches.fresh(lake.main)).branch
    gate = lake.kv.hold("get_many", RepositoryKeys.COLLECTION, after=True)
    publishing = running.start(publish(lake, operation))
    for _ in range(3):
        await reached(gate)
        gate.open()
        gate = lake.kv.hold("get_many", RepositoryKeys.COLLECTION)
        await reached(gate)  # the last look
        await sweeper.change(lambda at: replace(at, sweep_count=at.sweep_count + 1))
        following = lake.kv.hold("get_many", RepositoryKeys.COLLECTION, after=True)
        gate.open()
        gate = following
    with pytest.raises(TarnError) as raised:
        await publishing
    assert raised.value.reason is Reason.TOO_MANY_RETRIES
    after = (await lake.graveler.branches.fresh(lake.main)).branch
    assert (after.commit_id, after.compacted_metarange_id) == (before.commit_id, None)


async def test_a_merge_notices_a_batch_between_its_two_looks(lake: Lake, running: Running) -> None:
    graveler, repository = lake.graveler, lake.repository
    for number in range(30):
        await lake.put(f"k{number:02}", number + 1)
    await lake.commit()
    start = (await graveler.branches.fresh(lake.main)).branch.commit_id
    dev = BranchId("dev")
    await graveler.branches.create(lake.branch(dev), start)
    await lake.put("k00", 100)
    dest = (await lake.commit()).commit
    await lake.put("k01", 101, branch=dev)
    source = await graveler.committing.commit(lake.branch(dev), CommitRequest("ann", ""))
    base = await graveler.commits.get(repository, start)
    sides = MergeSides(base.metarange_id, source.commit.metarange_id, dest.metarange_id)
    before = {info.path for info in await Sweeper(lake).ranges()}
    await graveler.committed.merge(repository.storage_namespace, sides, REFUSE, limit=10)
    sweeper = Sweeper(lake)
    infos = [info for info in await judged(lake, sweeper) if info.path not in before]
    assert infos
    first = lake.kv.hold("get_many", RepositoryKeys.COLLECTION, after=True)
    into = Destination("branch", "main")
    request = MergeRequest(source.commit_id, "ann", "")
    head = (await graveler.branches.fresh(lake.main)).branch.commit_id
    merging = running.start(graveler.merges.propose(repository, head, into, request))
    await reached(first)
    old = await sweeper.open_batch(infos)
    assert len(old) == len(infos)
    second = lake.kv.hold("get_many", RepositoryKeys.COLLECTION)
    first.open()
    await reached(second)
    await sweeper.delete(old)
    await sweeper.end_batch()
    second.open()
    await merging
    assert {info.path for info in infos} <= {info.path for info in await sweeper.ranges()}


async def test_blocks_are_looked_at_in_the_order_of_their_paths(lake: Lake) -> None:
    """The order of a set differs between processes; a seed of the simulator is the same run in each of them."""
    namespace = lake.repository.storage_namespace
    paths = [f"_tarn/ranges/{number:064x}.parquet" for number in range(20)]
    store = lake.graveler.restoring.blocks
    for path in paths:
        await store.put(BlockKey(namespace, path), b"")
    looked: list[str] = []

    class Noting:
        async def stat(self, key: BlockKey) -> BlockInfo:
            looked.append(key.path)
            return await store.stat(key)

    unused = cast("Any", None)
    fences = Fences(unused, unused, cast("BlockStore", Noting()), lake.clock)
    assert await fences._are_there(lake.repository, {*paths})
    assert looked == paths
