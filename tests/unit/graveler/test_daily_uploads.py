"""Uploads are stored by day: listed until they end, remembered for a while, and dropped together."""

from __future__ import annotations

import pytest
from lake import DELAY, MAIN, Lake, entry
from permits import permit_for

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import day_of_upload
from tarn.kv.mem import MemKv
from tarn.kv.port import Group, Partition
from tarn_graveler.handlers.repositories import RepositoryHandler
from tarn_graveler.uploads.state import NewUpload
from tarn_proto.graveler.v1 import repository_service_pb2 as repositories
from tarn_proto.store.v1 import graveler_pb2 as pb

DAY = 86_400.0
MANIFEST = bytes(32)


async def begin(lake: Lake, path: str) -> str:
    new = NewUpload(MAIN, path, entry(0), "ann", "", is_full_object_checksum=False)
    return (await lake.graveler.uploads.create(lake.repository, new)).upload_id


async def complete(lake: Lake, upload_id: str) -> None:
    uploads = lake.graveler.uploads
    claim = await uploads.begin_complete(lake.repository, upload_id, MANIFEST)
    await uploads.finish_complete(lake.repository, upload_id, claim.op_id, entry(1, upload_id))


async def listed(lake: Lake, prefix: str = "", path: str = "", limit: int = 100) -> list[str]:
    uploads = lake.graveler.uploads
    found = await uploads.page(lake.main, prefix, (path, ""), limit)
    return [upload.record.path for upload in found]


def day_of(lake: Lake, upload_id: str) -> Partition:
    keys = lake.graveler.repositories.keys_of(lake.repository)
    day = day_of_upload(upload_id)
    assert day is not None
    return keys.uploads(day)


async def is_known(lake: Lake, upload_id: str) -> bool:
    try:
        await lake.graveler.uploads.get(lake.repository, upload_id)
    except TarnError as error:
        if error.reason is not Reason.UPLOAD_NOT_FOUND:
            raise
        return False
    return True


async def tidy(lake: Lake) -> int:
    return await lake.graveler.daily_uploads.tidy(lake.repository)


async def test_uploads_of_several_days_are_one_list_in_the_order_of_paths(lake: Lake) -> None:
    for path in ("b", "e", "a/2"):
        await begin(lake, path)
    lake.clock.advance(DAY)
    for path in ("c", "a/1", "a0"):
        await begin(lake, path)
    assert await listed(lake) == ["a/1", "a/2", "a0", "b", "c", "e"]
    assert await listed(lake, limit=3) == ["a/1", "a/2", "a0"]
    assert await listed(lake, path="a0") == ["b", "c", "e"]
    assert await listed(lake, "a/") == ["a/1", "a/2"]
    assert await listed(lake, "a/", path="a0") == []


@pytest.mark.parametrize("is_claimed", [False, True])
async def test_an_address_that_nobody_linked_keeps_its_day_until_its_time_only(
    lake: Lake, is_claimed: bool
) -> None:
    until_us = lake.clock.now_us() + int(20 * DAY * 1e6)
    new = NewUpload(MAIN, "linked", entry(0), "ann", link_until_us=until_us)
    upload_id = (await lake.graveler.uploads.create(lake.repository, new)).upload_id
    if is_claimed:
        await lake.graveler.uploads.begin_complete(lake.repository, upload_id, MANIFEST)
    lake.clock.advance(10 * DAY)
    assert await tidy(lake) == 0
    lake.clock.advance(11 * DAY)
    assert await tidy(lake) == (0 if is_claimed else 1), "its object may be staged already"


async def test_a_page_is_filled_behind_uploads_that_have_ended(lake: Lake) -> None:
    for number in range(6):
        upload_id = await begin(lake, f"{number}")
        if number < 4:
            await lake.graveler.uploads.abort(lake.repository, upload_id)
    assert await listed(lake, limit=2) == ["4", "5"]


async def test_no_row_of_an_upload_is_deleted_by_itself(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        pytest.fail("a row was deleted")

    monkeypatch.setattr(MemKv, "delete_many", never)
    monkeypatch.setattr(MemKv, "delete_if", never)
    done, given_up = await begin(lake, "a"), await begin(lake, "b")
    part = pb.UploadPartRecord(part_number=1)
    await lake.graveler.uploads.record_part(lake.repository, done, part)
    await complete(lake, done)
    await lake.graveler.uploads.abort(lake.repository, given_up)
    assert await listed(lake) == []


async def test_an_answer_is_replayed_for_days_and_then_goes_with_its_day(lake: Lake) -> None:
    upload_id = await begin(lake, "a")
    await complete(lake, upload_id)
    lake.clock.advance(3 * DAY)
    assert await tidy(lake) == 0
    claim = await lake.graveler.uploads.begin_complete(lake.repository, upload_id, MANIFEST)
    assert claim.completed_entry == entry(1, upload_id)
    lake.clock.advance(DAY)
    assert await tidy(lake) == 1
    assert await tidy(lake) == 0
    lake.clock.advance(DELAY + 1)
    assert await lake.graveler.cleaner.drop_due() == 1
    assert not await is_known(lake, upload_id)
    assert await lake.kv.scan(day_of(lake, upload_id), b"", None, 9) == []


@pytest.mark.parametrize("is_claimed", [False, True])
async def test_an_upload_that_has_not_ended_keeps_its_day(lake: Lake, is_claimed: bool) -> None:
    open_one, ended = await begin(lake, "a"), await begin(lake, "b")
    await complete(lake, ended)
    if is_claimed:
        await lake.graveler.uploads.begin_complete(lake.repository, open_one, MANIFEST)
    lake.clock.advance(400 * DAY)
    assert await tidy(lake) == 0
    assert await listed(lake) == ["a"]
    await lake.graveler.uploads.abort(lake.repository, open_one)
    assert await tidy(lake) == 1


async def test_an_upload_whose_end_is_not_in_the_index_has_ended(lake: Lake) -> None:
    """The process died after it had changed the upload's record."""
    upload_id = await begin(lake, "a")
    await lake.graveler.uploads.abort(lake.repository, upload_id)
    index = lake.graveler.repositories.keys_of(lake.repository).open_upload(MAIN, "a", upload_id)
    group = Group(index, ((index, b""),))
    assert await lake.kv.set_many(day_of(lake, upload_id), [group]) == [None]
    assert await listed(lake) == []
    lake.clock.advance(5 * DAY)
    assert await tidy(lake) == 1


async def test_a_day_stays_known_until_its_drop_is_registered(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_id = await begin(lake, "a")
    await complete(lake, upload_id)
    lake.clock.advance(5 * DAY)

    async def refuse(self: MemKv, partition: Partition, groups: list[Group]) -> list[TarnError]:
        return [TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no")] * len(groups)

    with monkeypatch.context() as patch:
        patch.setattr(MemKv, "set_many", refuse)
        assert await tidy(lake) == 0
    assert await lake.graveler.daily_uploads.days(lake.repository) == [day_of_upload(upload_id)]
    assert await tidy(lake) == 1
    assert await lake.graveler.daily_uploads.days(lake.repository) == []


async def test_the_first_upload_of_a_day_drops_old_days(lake: Lake, other: Lake) -> None:
    await complete(lake, await begin(lake, "a"))
    lake.clock.advance(5 * DAY)
    young = await begin(other, "b")
    await begin(lake, "c")
    tasks = lake.graveler.daily_uploads._tasks
    assert await tasks.drain(10)
    assert await lake.graveler.daily_uploads.days(lake.repository) == [day_of_upload(young)]


@pytest.mark.parametrize("upload_id", ["", "x", "0" * 31, "0" * 33, "F" * 32, "f" * 32, "\0" * 32])
async def test_an_unknown_upload_id_is_not_found(lake: Lake, upload_id: str) -> None:
    assert not await is_known(lake, upload_id)


async def test_a_deleted_repository_takes_its_uploads_along(lake: Lake) -> None:
    upload_id = await begin(lake, "a")
    handler = RepositoryHandler(lake.graveler)
    request = repositories.DeleteRepositoryRequest(repository_id="lake")
    await handler.DeleteRepository(request, permit_for(request, lake.repository))
    await lake.drop_everything_removed()
    assert await lake.kv.scan(day_of(lake, upload_id), b"", None, 9) == []


async def test_a_row_that_names_no_day_is_reported(lake: Lake) -> None:
    refs = lake.graveler.repositories.keys_of(lake.repository).refs
    key = b"upload-days/x"
    assert await lake.kv.set_many(refs, [Group(key, ((key, b""),))]) == [None]
    with pytest.raises(TarnError, match="b'upload-days/x' names no day") as caught:
        await listed(lake)
    assert caught.value.kind is Kind.CORRUPT
