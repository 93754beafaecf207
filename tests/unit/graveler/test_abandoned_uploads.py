"""Multipart uploads that are never completed are aborted after the days of the repository's rule, and no others are."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from graveler_service import Service
from lake import MAIN, Lake, Running, create_repository, ended, entry, reached
from lake_upload import Upload

from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UploadId, physical_path
from tarn.core.quota import Limits, QuotaKind
from tarn.core.retention import Retention
from tarn.core.rules import Settings
from tarn.kv.keys import RepositoryKeys
from tarn_graveler.uploads.state import NewUpload
from tarn_proto.store.v1 import graveler_pb2 as pb

DAY = 86_400
NEW = NewUpload(MAIN, "big", b"", "ann")


async def set_rule(lake: Lake, days: int | None) -> None:
    def decide(settings: Settings) -> Settings:
        return replace(settings, retention=Retention(abort_upload_days=days))

    await lake.graveler.settings.change(lake.repository, "", decide)


async def state(lake: Lake, upload_id: str) -> int:
    day = lake.graveler.daily_uploads.of(lake.repository, upload_id)
    (found,) = await lake.kv.get_many(day, [RepositoryKeys.upload(UploadId(upload_id))])
    assert found is not None
    return pb.UploadRecord.FromString(found.value).state


async def aborted(lake: Lake) -> int:
    return await lake.graveler.abandoned_uploads.abort_due()


async def test_an_upload_is_aborted_after_its_days_and_its_parts_are_removed(
    lake: Lake, other: Lake
) -> None:
    uploads, blocks = lake.graveler.uploads, lake.graveler.restoring.blocks
    lake.clock.advance(3600)  # in the middle of a day
    old = await uploads.create(lake.repository, NEW)
    key = BlockKey(lake.repository.storage_namespace, physical_path(old.record.address))
    await blocks.uploads.begin(key, old.upload_id)
    async with await blocks.uploads.open_part(key, old.upload_id, 1, "try") as writer:
        await writer.write(b"part")
        await writer.finish()
    lake.clock.advance(7 * DAY)
    new = await uploads.create(lake.repository, NEW)
    assert await aborted(lake) == 0, "there is no rule"
    await set_rule(lake, 7)
    assert await aborted(lake) == 0, "not older than seven days"
    lake.clock.advance(1)
    async with asyncio.TaskGroup() as both:
        passes = [both.create_task(aborted(each)) for each in (lake, other)]
    assert sorted(each.result() for each in passes) == [0, 1], "by one of the replicas"
    assert await state(lake, old.upload_id) == pb.UPLOAD_STATE_ABORTED
    assert await state(lake, new.upload_id) == pb.UPLOAD_STATE_OPEN
    with pytest.raises(BlockNotFoundError):
        await blocks.uploads.complete(key, old.upload_id, [(1, "try")])
    assert uploads.abandoned_count + other.graveler.uploads.abandoned_count == 1


async def test_parts_that_could_not_be_removed_are_removed_by_the_next_pass(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = lake.graveler.restoring.blocks.uploads
    passes = lake.graveler.abandoned_uploads
    old = await lake.graveler.uploads.create(lake.repository, NEW)
    removed: list[str] = []

    async def fails(key: BlockKey, upload_id: str) -> None:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the block store does not answer")

    async def works(key: BlockKey, upload_id: str) -> None:
        removed.append(upload_id)

    await set_rule(lake, 1)
    lake.clock.advance(2 * DAY)
    for discard, count in ((fails, 1), (fails, 0), (works, 0), (works, 0)):
        monkeypatch.setattr(type(store), "discard", staticmethod(discard))
        assert await passes.abort_due() == count
    assert removed == [old.upload_id], "once"


async def test_an_abort_makes_room_in_the_quota(service: Service) -> None:
    graveler = service.graveler
    await graveler.set_quota(service.admin, QuotaKind.REPOSITORY, "lake", Limits(uploads=1))
    etag = (await graveler.get_retention(service.admin, "lake")).etag
    rules = '{"uploads": {"abort_days": 2}}'
    await graveler.set_retention(service.admin, "lake", rules, if_match=etag)
    shown = await graveler.get_retention(service.admin, "lake")
    assert '"abort_days": 2' in shown.rules_json
    await graveler.create_upload(service.admin, "lake", "main", "a", template=entry(0))
    service.clock.advance(2 * DAY + 1)
    service = await service.logged_in()
    with pytest.raises(TarnError) as raised:
        await graveler.create_upload(service.admin, "lake", "main", "b", template=entry(0))
    assert raised.value.reason is Reason.QUOTA_EXCEEDED
    assert await service.replicas.made[0].abandoned_uploads.abort_due() == 1
    await graveler.create_upload(service.admin, "lake", "main", "b", template=entry(0))


async def test_a_link_and_an_ended_upload_are_left_alone(lake: Lake) -> None:
    uploads = lake.graveler.uploads
    link = NewUpload(MAIN, "k", b"", "ann", link_until_us=lake.clock.now_us() + 10**15)
    made = [await uploads.create(lake.repository, link)]
    made.append(await uploads.create(lake.repository, NEW))
    await uploads.abort(lake.repository, made[1].upload_id)
    await set_rule(lake, 1)
    lake.clock.advance(30 * DAY)
    assert await aborted(lake) == 0
    assert await state(lake, made[0].upload_id) == pb.UPLOAD_STATE_OPEN


async def test_one_repository_that_fails_does_not_keep_the_others(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:

    first = await create_repository(lake.graveler, "a-lake")
    await lake.graveler.uploads.create(lake.repository, NEW)
    await set_rule(lake, 1)
    refs = lake.graveler.repositories.keys_of(first).refs
    await lake.kv.set_if(refs, RepositoryKeys.SETTINGS, b"\xff damaged", None)
    lake.clock.advance(2 * DAY)
    assert await aborted(lake) == 1
    assert "abandoned uploads not aborted" in capsys.readouterr().out


# ---- beside completions


async def test_a_completion_that_began_a_moment_before_wins(
    upload: Upload, lake: Lake, running: Running
) -> None:
    """The pass has read the upload as open, and its compare-and-set is on its way."""
    uploads = lake.graveler.uploads
    await uploads.reopen(lake.repository, upload.upload_id, upload.claim.op_id)
    await set_rule(lake, 1)
    lake.clock.advance(2 * DAY)
    gate = lake.kv.hold("set_if", RepositoryKeys.upload(UploadId(upload.upload_id)))
    aborting = running.start(aborted(lake))
    await reached(gate)
    upload.claim = await uploads.begin_complete(lake.repository, upload.upload_id, bytes(32))
    gate.open()
    assert await aborting == 0
    await upload.finish()
    assert await upload.is_complete()
    assert await lake.get("k") == 1


async def test_a_completion_after_the_abort_is_refused(
    upload: Upload, lake: Lake, running: Running
) -> None:
    """The completion has read the upload as open, and its compare-and-set is on its way."""
    uploads = lake.graveler.uploads
    await uploads.reopen(lake.repository, upload.upload_id, upload.claim.op_id)
    await set_rule(lake, 1)
    lake.clock.advance(2 * DAY)
    gate = lake.kv.hold("set_if", RepositoryKeys.upload(UploadId(upload.upload_id)))
    begins = running.start(uploads.begin_complete(lake.repository, upload.upload_id, bytes(32)))
    await reached(gate)
    assert await aborted(lake) == 1
    gate.open()
    await ended(begins)
    error = begins.exception()
    assert isinstance(error, TarnError)
    assert error.reason is Reason.UPLOAD_NOT_FOUND


async def test_a_completion_that_showed_life_within_a_day_may_go_on(
    upload: Upload, lake: Lake, other: Lake, running: Running
) -> None:
    """Its gateway died, and the client repeats it hours later. Nothing is aborted before that."""
    await set_rule(lake, 1)
    lake.clock.advance(2 * DAY)
    await upload.take_over(lake)
    await upload.dies_after_its_row(running)
    lake.clock.advance(0.9 * DAY)
    assert await aborted(lake) == 0
    await upload.take_over(other)
    await upload.finish(other)
    assert await upload.is_complete()


async def test_an_upload_that_was_completed_meanwhile_is_not_aborted(
    upload: Upload, lake: Lake
) -> None:
    """The pass has found it open, and decides by the record as it is now."""
    await upload.finish()
    lake.clock.advance(2 * DAY)
    assert not await lake.graveler.uploads.abort_abandoned(lake.repository, upload.upload_id)
    assert await upload.is_complete()


async def test_a_completion_that_died_a_day_ago_is_aborted_and_cannot_go_on(
    upload: Upload, lake: Lake, running: Running
) -> None:
    await set_rule(lake, 1)
    await upload.dies_before_its_row(running)
    lake.clock.advance(1.5 * DAY)
    assert await aborted(lake) == 1
    with pytest.raises(TarnError) as raised:
        await upload.finish()
    assert raised.value.reason is Reason.UPLOAD_BUSY
    assert await lake.get("k") is None


@pytest.mark.parametrize("seconds", [301, 2 * DAY])
async def test_a_paused_completion_of_an_upload_that_was_aborted_is_not_acknowledged(
    upload: Upload, lake: Lake, other: Lake, running: Running, seconds: float
) -> None:
    """Its claim has ended, the upload is aborted, and only then its row is written. It never hides a newer write."""
    gate = lake.kv.hold("set_many", lake.row_key("k"))
    paused = running.start(upload.finish())
    await reached(gate)
    lake.clock.advance(seconds)
    await other.graveler.uploads.abort(lake.repository, upload.upload_id)
    gate.open()
    await ended(paused)
    error = paused.exception()
    assert isinstance(error, TarnError)
    assert error.kind is Kind.UNKNOWN_OUTCOME
    assert await state(lake, upload.upload_id) == pb.UPLOAD_STATE_ABORTED
    with pytest.raises(TarnError) as raised:
        await upload.take_over(other)
    assert raised.value.reason is Reason.UPLOAD_NOT_FOUND
    await other.put("k", 2)
    await other.commit()
    await other.drop_everything_removed()
    assert [await each.get("k") for each in (lake, other)] == [2, 2]
