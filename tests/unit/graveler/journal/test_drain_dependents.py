"""What waits for the drain, or is refused while it is behind: writes, deletions of blocks, sweeps, erasures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import pytest
from drained_lake import Bucket, drain_of, held_events, refs_of
from lake import Lake, Replicas, create_repository
from permits import permit_for

from tarn.block.local.reserve import DiskReserve
from tarn.core.condition import WriteCondition
from tarn.core.entry import Entry, pack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.epochs import EpochCause, begin_epoch, newest_epoch, next_epoch
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn_graveler.handlers.collections import CollectionHandler
from tarn_graveler.handlers.erasures import ErasureHandler
from tarn_proto.graveler.v1 import collection_service_pb2 as pb_collection
from tarn_proto.graveler.v1 import erasure_service_pb2 as pb_erasure


async def test_writes_are_refused_when_the_files_are_far_behind(lake: Lake, bucket: Bucket) -> None:
    """With an error of its own, before the store fills; deletes go on, and writes too, when the bucket takes files."""
    drain, admission = drain_of(lake), lake.graveler.admission
    await lake.put("a", 1)
    await drain.round()
    bucket.refuses = "_tarn/journal/"
    await lake.put("b", 2)
    for _ in range(2):
        lake.clock.advance(3_600)
        await drain.round()
    for refused in (admission.object(lake.repository, 1), admission.upload(lake.repository)):
        with pytest.raises(TarnError, match="no writes now") as raised:
            await refused
        assert (raised.value.kind, raised.value.reason) == (Kind.EXHAUSTED, Reason.JOURNAL_BEHIND)
    assert await lake.delete("a") == [None]
    bucket.refuses = "nothing"
    await drain.round()
    await admission.object(lake.repository, 1)


async def test_writes_are_refused_while_too_many_events_wait(
    lake: Lake, other: Lake, bucket: Bucket, replicas: Replicas
) -> None:
    """On each replica, also a new one, and where the bucket takes no files only; deletes go on."""
    drains = [drain_of(lake), drain_of(other)]
    second = await create_repository(lake.graveler, "second")
    bucket.closed = lake.repository.storage_namespace

    async def rounds(seconds: float = 61) -> None:
        for drain in drains:
            await drain.round()
        lake.clock.advance(seconds)
        for drain in drains:
            await drain.round()

    await rounds()
    assert drains[0].pressure.size > 0, "the records of the repositories"
    for drain in drains:
        drain.pressure.size_max = 50_000
    await lake.put("a", 1)
    await rounds()
    for each in (lake, other):
        await each.graveler.admission.object(lake.repository, 1)
    for number in range(300):
        await other.put(f"{number:03}", number)
    assert drains[1].pressure.size < 50_000, "one replica alone does not wait for too much"
    for number in range(300):
        await lake.put(f"{number:03}", number)
    await rounds()
    assert drains[0].pressure.total > 50_000
    assert abs(drains[0].pressure.total - drains[1].pressure.total) <= 2 * 50_000 // 256
    async with replicas.replica() as graveler:
        third = graveler.drain
        assert third is not None
        third.pressure.size_max = 50_000
        await third.round()
        assert third.pressure.size == 0
        for admission in (each.admission for each in (lake.graveler, other.graveler, graveler)):
            with pytest.raises(
                TarnError, match=r"MiB of events wait .*journal\.undrained_max"
            ) as raised:
                await admission.object(lake.repository, 1)
            about = raised.value.kind, raised.value.reason
            assert about == (Kind.EXHAUSTED, Reason.JOURNAL_BEHIND)
            await admission.object(second, 1)
    assert await lake.delete("a") == [None]
    bucket.closed = ""
    await rounds()
    await rounds()
    for each in (lake, other):
        await each.graveler.admission.object(lake.repository, 1)
    lake.clock.advance(61)
    await rounds()
    assert [drain.pressure.total for drain in drains] == [0, 0]


async def test_all_events_of_objects_and_records_are_counted(lake: Lake, bucket: Bucket) -> None:
    """By the bytes of their keys and values in the store, whatever write they came by."""
    pressure = drain_of(lake).pressure
    packed = pack(Entry(5, 0, bytes(16), bytes(16), operation_id="op"))
    is_new = WriteCondition(if_none_match=True)

    async def stored() -> int:
        found = [
            await lake.kv.scan_companions(partition, b"", None, 1_000)
            for partition in (*tokens, refs_of(lake), InstallationKeys("test").graveler)
        ]
        return sum(len(each.key) + len(each.value) for some in found for each in some)

    tokens = [await lake.staging_rows()]
    assert pressure.size == await stored() > 0
    for work in (
        lambda: lake.put("a", 1),
        lambda: lake.delete("a", "b"),
        lambda: lake.graveler.conditional.stage(lake.main, "new", packed, is_new),
        lake.commit,
        lambda: lake.put("c", 1),
    ):
        before = pressure.size
        await work()
        tokens += [each for each in [await lake.staging_rows()] if each not in tokens]
        assert pressure.size > before
        branch = (await lake.graveler.branches.fresh(lake.main)).branch
        keys = lake.graveler.repositories.keys_of(lake.repository)
        named = [keys.token(lake.main.branch_id, each) for each in branch.tokens]
        tokens += [each for each in named if each not in tokens]
        assert pressure.size == await stored()


async def test_writes_leave_room_for_deletes_and_their_events(lake: Lake) -> None:
    """On the disk of the store, whatever the lag is."""
    drain, admission = drain_of(lake), lake.graveler.admission
    await lake.put("a", 1)
    space = [600 << 20, 100 << 30]
    reserve = DiskReserve(
        lambda: (space[0], space[1]), 512 << 20, "journal.reserve", lake.clock.monotonic
    )
    drain._settings = replace(drain._settings, reserve=reserve)
    await admission.object(lake.repository, 1)
    space[0] = 500 << 20
    lake.clock.advance(1)
    for refused in (admission.object(lake.repository, 1), admission.upload(lake.repository)):
        with pytest.raises(TarnError, match=r"500 MiB are free, .*journal\.reserve"):
            await refused
    assert await lake.delete("a") == [None]
    space[0] = 600 << 20
    lake.clock.advance(1)
    await admission.object(lake.repository, 1)


async def test_blocks_are_deleted_only_after_a_full_pass(lake: Lake, bucket: Bucket) -> None:
    """One that began after the last reference ended; a later deletion uses it, a newer end needs another one."""
    drain, repository = drain_of(lake), lake.repository
    await lake.put("a", 1)
    await drain.round()
    await lake.put("a", 2)
    ended_at = lake.clock.monotonic()
    lake.clock.advance(1)
    bucket.refuses = "_tarn/journal/"
    with pytest.raises(TarnError, match="refuses"):
        await drain.before_deletion(repository, ended_at)
    bucket.refuses = "nothing"
    await drain.before_deletion(repository, ended_at)
    assert ("a", 2) in (await bucket.read()).sizes
    bucket.refuses = "_tarn/journal/"
    await drain.before_deletion(repository, ended_at)
    await lake.put("a", 3)
    with pytest.raises(TarnError, match="refuses"):
        await drain.before_deletion(repository, lake.clock.monotonic())


async def test_no_block_is_deleted_when_a_rebuild_has_followed_during_the_pass(
    lake: Lake, bucket: Bucket
) -> None:
    """The rebuild does not read the file: it may name the block. The next pass finds that before it writes one."""
    drain, namespace = drain_of(lake), lake.repository.storage_namespace
    await lake.put("a", 1)
    await drain.round()
    await lake.put("a", 2)
    mine = await newest_epoch(bucket.blocks, namespace)
    rebuilt = next_epoch(mine, "f" * 32, EpochCause.REBUILD, lake.clock.now_us())
    files = len(await bucket.paths(".parquet"))

    async def follow() -> None:
        await begin_epoch(bucket.blocks, namespace, rebuilt)

    bucket.beside = follow
    ended_at = lake.clock.monotonic()
    lake.clock.advance(1)
    for _ in range(2):
        with pytest.raises(TarnError, match="another store") as raised:
            await drain.before_deletion(lake.repository, ended_at)
        assert raised.value.kind is Kind.FAILED_PRECONDITION
        assert len(await bucket.paths(".parquet")) == files + 1


async def test_a_sweep_begins_after_a_full_pass(lake: Lake, bucket: Bucket) -> None:
    """It is refused while the bucket takes no files; its mark is not."""
    handler = CollectionHandler(lake.graveler)
    await lake.put("a", 1)
    bucket.refuses = "_tarn/journal/"
    mark = pb_collection.BeginCollectionRequest(
        run_id="a" * 32, phase=pb_collection.COLLECTION_PHASE_MARK
    )
    await handler.BeginCollection(mark, permit_for(mark, lake.repository))
    sweep = pb_collection.BeginCollectionRequest(
        run_id="b" * 32, phase=pb_collection.COLLECTION_PHASE_SWEEP
    )
    with pytest.raises(TarnError, match="refuses"):
        await handler.BeginCollection(sweep, permit_for(sweep, lake.repository))
    bucket.refuses = "nothing"
    with pytest.raises(TarnError, match="is running"):
        await handler.BeginCollection(sweep, permit_for(sweep, lake.repository))
    assert ("a", 1) in (await bucket.read()).sizes


async def test_an_erasure_waits_until_its_changes_are_in_the_bucket(
    lake: Lake, bucket: Bucket
) -> None:
    """Each page of addresses, and each page of discarded entries: the run deletes blocks next."""
    handler, repository = ErasureHandler(lake.graveler), lake.repository
    await drain_of(lake).round()
    address = (lake.clock.now_us() // 1_000).to_bytes(6, "big") + bytes(10)
    packed = pack(Entry(5, 0, address, bytes(16), operation_id="op"))
    await lake.graveler.staging.stage(lake.main, "secret", packed)
    lake.clock.advance(3 * 86_400)
    run_id = "e" * 32
    begin = pb_collection.BeginCollectionRequest(
        run_id=run_id, phase=pb_collection.COLLECTION_PHASE_MARK, is_erasure=True
    )
    await CollectionHandler(lake.graveler).BeginCollection(begin, permit_for(begin, repository))
    erase = pb_erasure.EraseAddressesRequest(run_id=run_id, plan_id="a" * 32, addresses=address)
    discard = pb_erasure.DiscardErasedRequest(
        run_id=run_id, branch_id="main", paths=["secret"], addresses=address
    )
    calls: tuple[Callable[[], Awaitable[object]], ...] = (
        partial(handler.EraseAddresses, erase, permit_for(erase, repository)),
        partial(handler.DiscardErased, discard, permit_for(discard, repository)),
    )
    for call in calls:
        bucket.refuses = "_tarn/journal/"
        with pytest.raises(TarnError, match="refuses"):
            await call()
        bucket.refuses = "nothing"
        await call()
        assert await held_events(lake) == set()
    files = await bucket.read()
    assert RepositoryKeys.erased(address).decode() in {row.key for row in files.events}
    assert files.staged == {}
