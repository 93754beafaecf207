"""Holds of collections: renewed, never shortened, and not written for repositories that are gone."""

from __future__ import annotations

import asyncio

import pytest
from backup_lab import BackupLab

from tarn.core.collection import hold
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import RepositoryKeys
from tarn.snapshot.installation.holding import RENEW_SECONDS, holding

DAY_S = 86_400


async def held_until(lab: BackupLab) -> int:
    return (await lab.lake.graveler.collections.read(lab.lake.repository)).hold_until_us


async def renewed(lab: BackupLab) -> None:
    """Lets the time of a renewal come."""
    for seconds in (0, RENEW_SECONDS):  # the renewal has to sleep before its time can come
        lab.lake.clock.advance(seconds)
        for _ in range(50):
            await asyncio.sleep(0)


async def test_a_hold_is_renewed_and_ends(lab: BackupLab) -> None:
    async with holding(lab.kv, [lab.keys], lab.lake.clock):
        first = await held_until(lab)
        await renewed(lab)
        assert await held_until(lab) == first + int(RENEW_SECONDS * 1_000_000)
    assert await held_until(lab) == 0


async def test_a_longer_hold_of_somebody_else_stays(lab: BackupLab) -> None:
    collections, now_us = lab.lake.graveler.collections, lab.lake.clock.now_us()
    repository = lab.lake.repository
    before = await collections.change(repository, lambda found: hold(found, DAY_S, now_us))
    async with holding(lab.kv, [lab.keys], lab.lake.clock):
        assert await held_until(lab) == before.hold_until_us
    assert await held_until(lab) == before.hold_until_us


async def test_a_shorter_hold_of_somebody_else_is_back_at_the_end(lab: BackupLab) -> None:
    collections, now_us = lab.lake.graveler.collections, lab.lake.clock.now_us()
    repository = lab.lake.repository
    before = await collections.change(repository, lambda found: hold(found, 60, now_us))
    async with holding(lab.kv, [lab.keys], lab.lake.clock):
        assert await held_until(lab) > before.hold_until_us
    assert await held_until(lab) == before.hold_until_us


async def test_a_hold_that_somebody_sets_meanwhile_stays(lab: BackupLab) -> None:
    collections, now_us = lab.lake.graveler.collections, lab.lake.clock.now_us()
    async with holding(lab.kv, [lab.keys], lab.lake.clock):
        repository = lab.lake.repository
        later = await collections.change(repository, lambda found: hold(found, DAY_S, now_us))
    assert await held_until(lab) == later.hold_until_us


async def test_a_repository_that_is_gone_gets_no_record(lab: BackupLab) -> None:
    async with holding(lab.kv, [lab.keys], lab.lake.clock):
        await lab.kv.drop_partition(lab.keys.refs)
        await renewed(lab)
        assert await lab.kv.scan(lab.keys.refs, b"", None, 10) == []
    assert await lab.kv.scan(lab.keys.refs, b"", None, 10) == []


async def test_a_repository_whose_deletion_has_begun_gets_no_record(lab: BackupLab) -> None:
    graveler = lab.lake.graveler
    repository = await graveler.repositories.mark_deleted(lab.lake.repository)
    await graveler.repositories.close(repository)
    async with holding(lab.kv, [lab.keys], lab.lake.clock):
        pass
    assert await lab.kv.get_many(lab.keys.refs, [RepositoryKeys.COLLECTION]) == [None]


async def test_a_hold_that_cannot_be_renewed_ends_the_work(
    lab: BackupLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection may run from then on, and delete what the backup refers to."""

    async def refuse(*_: object) -> None:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store is away")

    is_ended = False

    async def work() -> None:
        nonlocal is_ended
        async with holding(lab.kv, [lab.keys], lab.lake.clock):
            monkeypatch.setattr(lab.kv, "set_if", refuse)
            await renewed(lab)
            is_ended = True

    with pytest.raises(TarnError, match="the store is away"):
        await work()
    assert not is_ended
