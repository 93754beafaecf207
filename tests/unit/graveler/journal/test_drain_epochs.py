"""Drains begin, follow and leave epochs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from drained_lake import Bucket, drain_of, events_of, held_events, record_events_of
from lake import MAIN, Lake, Replicas, Running, create_repository, reached
from permits import permit_for

from tarn.block.port import BlockKey
from tarn.core.commit import COMMITS
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import RepositoryId
from tarn.core.levels import ALL_FEATURES, LEVEL_FIRST, FeatureGate
from tarn.journal.epochs import EpochCause, begin_epoch, newest_epoch, next_epoch
from tarn.kv.journal_records import EpochRecord, epoch_row
from tarn.kv.keys import InstallationKeys
from tarn_graveler.handlers.repositories import RepositoryHandler
from tarn_graveler.journal.epochs import end_epochs
from tarn_proto.graveler.v1 import repository_service_pb2 as pb_repository


async def test_an_epoch_begins_with_all_that_the_store_holds(
    replicas: Replicas, tmp_path: Path
) -> None:
    """Where the journal is switched on in a store with rows that have no events."""
    replicas.keeps_events = False
    async with replicas.replica() as graveler:
        repository = await create_repository(graveler)
        silent = Lake(graveler, repository, replicas.kv, replicas.clock)
        await silent.put("old", 1)
        await silent.put("both", 2)
        await silent.delete("never was")
    replicas.keeps_events = True
    async with replicas.replica() as graveler:
        lake = replace(silent, graveler=graveler)
        await lake.put("both", 3)
        await lake.delete("old")
        await lake.put("new", 4)
        await drain_of(lake).round()
        files = await Bucket(lake, replicas, tmp_path).read()
    assert {row.operation for row in files.base} == {"base"}
    assert "branches/main" in {row.key for row in files.base if not row.token}
    assert files.staged == {"main": {"both": 3, "new": 4, "old": None}}


@pytest.mark.parametrize("at", ["base/", "epochs/"])
@pytest.mark.parametrize("is_lost", [True, False])
async def test_an_epoch_whose_begin_fails_is_begun_again(
    lake: Lake, other: Lake, bucket: Bucket, at: str, is_lost: bool
) -> None:
    """By any replica, and only one counts; nothing is dropped before."""
    await lake.put("a", 1)
    token = await lake.staging_rows()
    await lake.commit()
    bucket.refuses, bucket.loses = ("nothing", at) if is_lost else (at, "nothing")
    await lake.drop_everything_removed()
    # The file of an epoch whose answer was lost is found by the next attempt.
    has_begun = is_lost and at == "epochs/"
    assert await events_of(lake, token) == (0 if has_begun else 1)
    bucket.refuses = bucket.loses = "nothing"
    lake.clock.advance(700)
    await lake.put("b", 2)
    await other.graveler.cleaner.drop_due()
    await lake.drop_everything_removed()
    assert await events_of(lake, token) == 0
    await drain_of(lake).round()
    files = await bucket.read()
    assert ("a", 1) in files.sizes
    assert files.staged == {"main": {"b": 2}}


async def test_a_store_that_another_one_has_followed_drains_no_more(
    lake: Lake, bucket: Bucket, replicas: Replicas
) -> None:
    """A restore has begun a newer epoch: files of this store would be read by nobody, so its tokens stay."""
    await lake.put("a", 1)
    await drain_of(lake).round()
    namespace = lake.repository.storage_namespace
    mine = await newest_epoch(replicas.blocks, namespace)
    later = next_epoch(mine, "f" * 32, EpochCause.RESTORE, lake.clock.now_us())
    await begin_epoch(replicas.blocks, namespace, later)
    await lake.put("b", 2)
    token = await lake.staging_rows()
    await lake.commit()
    await lake.drop_everything_removed()
    assert await events_of(lake, token) == 2
    place = drain_of(lake).place_of(lake.repository)
    with pytest.raises(TarnError, match="another store") as raised:
        await drain_of(lake).drain(place)
    assert raised.value.kind is Kind.FAILED_PRECONDITION
    before_us = lake.clock.now_us()
    await drain_of(lake).round()
    assert drain_of(lake).progress.lag_us(place.root, before_us) > 0


async def test_no_deletion_begins_an_epoch_before_all_replicas_write_events(
    lake: Lake, bucket: Bucket
) -> None:
    """Its base would lack rows of those that write none. Below the level there is nothing to wait for."""
    drain, namespace = drain_of(lake), lake.repository.storage_namespace
    drain._features = FeatureGate.at(LEVEL_FIRST)
    await drain.before_deletion(lake.repository, lake.clock.monotonic())
    drain._features = ALL_FEATURES
    with pytest.raises(TarnError, match="60 s after") as raised:
        await drain.before_deletion(lake.repository, lake.clock.monotonic())
    assert raised.value.kind is Kind.UNAVAILABLE
    assert await newest_epoch(bucket.blocks, namespace) is None
    lake.clock.advance(60)
    await drain.before_deletion(lake.repository, lake.clock.monotonic())
    assert await newest_epoch(bucket.blocks, namespace) is not None


async def test_an_epoch_ends_when_the_journal_is_off(lake: Lake, bucket: Bucket) -> None:
    """When it is on again, a new one begins with a new base: writes of the time between have no events."""
    await lake.put("a", 1)
    await drain_of(lake).round()
    await end_epochs(lake.kv, InstallationKeys("test"))
    await drain_of(lake).round()
    files = await bucket.read()
    assert files.epoch == 2
    assert files.staged == {"main": {"a": 1}}


@pytest.mark.parametrize("is_deletion", [False, True])
async def test_a_pass_that_began_before_the_journal_was_off_and_on_removes_nothing(
    lake: Lake, other: Lake, bucket: Bucket, running: Running, is_deletion: bool
) -> None:
    """It reads a change that is later than the new base, and its file is of the former epoch: no rebuild has it."""
    await drain_of(lake).round()
    held = lake.kv.hold("get_many", lake.branch_key)
    drain = drain_of(lake)

    async def work() -> None:
        if is_deletion:
            await drain.before_deletion(lake.repository, lake.clock.monotonic())
        else:
            await drain.round()

    forgotten = running.start(work())
    await reached(held)
    await end_epochs(other.kv, InstallationKeys("test"))
    lake.clock.advance(120)
    await drain_of(other).round()
    await other.put("a", 1)
    await other.commit()
    events = await held_events(other)
    assert events
    held.open()
    if is_deletion:
        with pytest.raises(TarnError, match="switched off") as raised:
            await forgotten
        assert raised.value.kind is Kind.CONFLICT
    else:
        await forgotten
        assert drain.progress.failed_passes == 1
    assert await held_events(other) == events
    lake.clock.advance(120)
    await drain_of(other).round()
    files = await bucket.read()
    assert files.epoch == 2
    assert events <= {event_id for _, event_id in record_events_of(files)}


@pytest.mark.parametrize("how", ["created", "restored"])
async def test_a_repository_is_made_with_the_newest_epoch_of_its_namespace(
    lake: Lake, bucket: Bucket, how: str
) -> None:
    """Its journal follows that epoch, of the repository that had the namespace before, and no later one."""
    namespace = "local://left"
    left = next_epoch(None, "f" * 32, EpochCause.ENABLED, lake.clock.now_us())
    await begin_epoch(bucket.blocks, namespace, left)
    if how == "created":
        request = pb_repository.CreateRepositoryRequest(
            repository_id="made", storage_namespace=namespace
        )
        permit = permit_for(request, lake.repository)
        await RepositoryHandler(lake.graveler).CreateRepository(request, permit)
    else:
        await bucket.blocks.put(BlockKey(namespace, f"{COMMITS}a"), b"a commit")
        await lake.graveler.restoring.begin(RepositoryId("made"), namespace, MAIN, "1")
    made = await lake.graveler.repositories.read(RepositoryId("made"))
    row = epoch_row(lake.kv, InstallationKeys("test"), drain_of(lake).place_of(made).root)
    assert await row.read() == EpochRecord(1, left.folder, may_follow=True)
    await drain_of(lake).round()
    after = await row.read()
    assert after is not None
    # A restored one has no rows yet, so no base.
    assert (after.number, after.has_begun) == (2, how == "created")
