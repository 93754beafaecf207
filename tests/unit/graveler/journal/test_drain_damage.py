"""Damage in the store costs a drain only what is damaged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from drained_lake import Bucket, drain_of, events_of, refs_of
from lake import Lake, create_repository, entry
from structlog.testing import capture_logs

from tarn.core.errors import Kind, TarnError
from tarn.core.ids import BranchId, TagId
from tarn.kv.keys import InstallationKeys, RepositoryKeys, path_key
from tarn.kv.port import COMPANION_KEYS, Group
from tarn.kv.register import require_written
from tarn.kv.registrations import hour_of, new_event_id
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.journal.records import RecordEvents


async def damage(lake: Lake, branch_id: BranchId) -> Callable[[], Awaitable[None]]:
    """Overwrites the record of a branch; returns what brings it back."""
    key = RepositoryKeys.branch(branch_id)
    (found,) = await lake.kv.get_many(refs_of(lake), [key], settle=True)
    assert found is not None
    damaged = await lake.kv.set_if(refs_of(lake), key, b"\xff damaged", found.predicate)

    async def mend() -> None:
        await lake.kv.set_if(refs_of(lake), key, found.value, damaged)

    return mend


async def test_a_damaged_record_costs_only_its_branch(lake: Lake, bucket: Bucket) -> None:
    """The others are drained and dropped; its events and tokens stay, and no block is deleted before it is mended."""
    drain, dev = drain_of(lake), BranchId("dev")
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    made = await lake.graveler.branches.create(lake.branch(dev), head)
    await lake.put("known", 1, branch=dev)
    await drain.round()
    round_us = lake.clock.now_us()
    lake.clock.advance(1)
    await lake.put("d", 2, branch=dev)
    request = CommitRequest("ann", "")
    await lake.graveler.committing.commit(lake.branch(dev), request)
    await lake.put("e", 3, branch=dev)
    await lake.put("m", 4)
    of_main = await lake.staging_rows()
    await lake.commit()
    keys = lake.graveler.repositories.keys_of(lake.repository)
    of_dev = keys.token(dev, made.staging)
    mend = await damage(lake, dev)
    with capture_logs() as logs:
        await drain.round()
        await lake.drop_everything_removed()
    told = [each for each in logs if each["event"].startswith("branches are damaged")]
    assert {tuple(each["branches"]) for each in told} == {("dev",)}
    assert drain.progress.damaged == {drain.place_of(lake.repository).root: 1}
    assert drain.progress.greatest_lag_us(round_us) == 0
    assert await events_of(lake, of_main) == 0, "main is drained, and its token is dropped"
    assert await events_of(lake, of_dev) == 2, "no token of dev is"
    files = await bucket.read()
    assert files.report is not None
    account = files.report.branches["dev"]
    assert account.is_damaged
    assert account.drained_until_us == round_us
    assert ("m", 4) in files.sizes
    assert ("e", 3) not in files.sizes
    (line,) = files.report.lines()
    assert "branch dev was damaged in the store" in line
    # A pass of every ten seconds does not write the same again.
    count = files.report.files
    for _ in range(3):
        await drain.round()
        await lake.drop_everything_removed()
    again = (await bucket.read()).report
    assert again is not None
    assert again.files == count
    with pytest.raises(TarnError, match="branch dev is damaged") as raised:
        await drain.before_deletion(lake.repository, lake.clock.monotonic())
    assert raised.value.kind is Kind.CORRUPT
    await mend()
    lake.clock.advance(1)
    await drain.before_deletion(lake.repository, lake.clock.monotonic())
    for _ in range(12):
        lake.clock.advance(3_600)
        await lake.graveler.cleaner.drop_due()
    assert await events_of(lake, of_dev) == 0
    files = await bucket.read()
    assert files.report is not None
    assert files.report.is_whole
    assert files.staged == {"dev": {"e": 3}}
    assert drain.progress.damaged == {}


async def test_a_damaged_event_costs_only_its_token(lake: Lake, bucket: Bucket) -> None:
    """The others of it are drained once; it is never dropped, and nothing is deleted while its branch needs it."""
    drain = drain_of(lake)
    await drain.round()
    await lake.put("a", 1)
    token = await lake.staging_rows()
    key = COMPANION_KEYS + lake.clock.now_us().to_bytes(8, "big") + bytes(8)
    group = Group(b"anchor", ((path_key("x"), entry(1)),), ((key, b"\xff damaged"),))
    assert await lake.kv.set_many(token, [group]) == [None]
    await lake.put("b", 2)
    for _ in range(3):
        await drain.round()
        lake.clock.advance(700)
    files = await bucket.read()
    assert files.sizes == [("a", 1), ("b", 2)]
    assert files.report is not None
    assert files.report.branches["main"].is_damaged
    with pytest.raises(TarnError, match="main is damaged"):
        await drain.drain(drain.place_of(lake.repository), is_full=True)
    await lake.commit()
    await lake.put("c", 3)
    for _ in range(3):
        await lake.drop_everything_removed()
        await drain.round()
    assert await events_of(lake, token) == 3
    await lake.commit()
    files = await bucket.read()
    assert files.report is not None
    assert [each for each in files.sizes if each == ("c", 3)] == [("c", 3)]
    assert files.report.files <= 7, "what cannot be read is not tried again and again"
    # The record does not name it any more.
    await drain.before_deletion(lake.repository, lake.clock.monotonic())


async def test_a_branch_that_another_replica_finds_damaged_is_told_by_it_too(
    lake: Lake, other: Lake, bucket: Bucket
) -> None:
    """Also without new events: the file of its pass says so. A branch that has gone is damaged no more."""
    await lake.put("a", 1)
    await drain_of(lake).round()
    mend = await damage(lake, lake.main.branch_id)
    lake.clock.advance(120)
    await drain_of(other).round()
    files = await bucket.read()
    assert files.report is not None
    assert files.report.branches["main"].is_damaged
    await mend()
    lake.clock.advance(1)
    await drain_of(other).round()
    files = await bucket.read()
    assert files.report is not None
    assert not files.report.branches["main"].is_damaged


async def test_a_damaged_repository_costs_only_itself(lake: Lake, bucket: Bucket) -> None:
    """Its registrations stay, although no repository that can be read has them, and count when it is mended."""
    second = await create_repository(lake.graveler, "second")
    other = replace(lake, repository=second)
    drain, journal = drain_of(lake), drain_of(lake).place_of(second)
    await drain.round()
    keys = InstallationKeys("test")
    key = keys.repository("second")
    (found,) = await lake.kv.get_many(keys.graveler, [key], settle=True)
    assert found is not None
    head = (await lake.graveler.branches.fresh(other.main)).branch.commit_id
    await lake.graveler.tags.create(second, TagId("v1"), head)
    damaged = await lake.kv.set_if(keys.graveler, key, b"\xff damaged", found.predicate)
    await lake.put("a", 1)
    lake.clock.advance(300)
    with capture_logs() as logs:
        await drain.round()
    (told,) = [each for each in logs if each["event"].startswith("records of repositories")]
    assert told["repositories"] == ["second"]
    assert drain.progress.damaged == {"": 1}
    assert drain.progress.greatest_lag_us(lake.clock.now_us()) == 0
    assert ("a", 1) in (await bucket.read()).sizes
    events = RecordEvents(lake.kv, keys, lake.clock)
    events.begin(0)
    assert journal.root in await events.roots()
    await lake.kv.set_if(keys.graveler, key, found.value, damaged)
    await drain.round()
    assert drain.progress.damaged == {}
    assert journal.root not in await events.roots()


async def test_a_damaged_registration_stops_only_its_repository(lake: Lake, bucket: Bucket) -> None:
    second = await create_repository(lake.graveler, "second")
    drain, root = drain_of(lake), drain_of(lake).place_of(second).root
    await drain.round()
    keys = InstallationKeys("test")
    key = keys.registration(root, new_event_id(lake.clock.now_us(), bytes(8)))
    partition = keys.registrations(hour_of(lake.clock.now_us()))
    require_written(await lake.kv.set_many(partition, [Group(key, ((key, b"\xff damaged"),))]))
    await lake.put("a", 1)
    lake.clock.advance(300)
    await drain.round()
    now_us = lake.clock.now_us()
    assert drain.progress.lag_us(drain.place_of(lake.repository).root, now_us) == 0
    assert drain.progress.lag_us(root, now_us) == 300_000_000
    assert ("a", 1) in (await bucket.read()).sizes
