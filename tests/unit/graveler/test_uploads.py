"""Several completions of one upload: claims, and the answers to the other callers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from lake import MAIN, Lake, Running, entry, reached, started

from tarn.core.entry import pack, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UploadId
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import OutcomeUnknownError, Partition, Versioned
from tarn_graveler.uploads.state import NewUpload
from tarn_proto.store.v1 import graveler_pb2 as pb

MANIFEST = bytes(32)
OTHER_MANIFEST = bytes(31) + b"\1"
CLAIM_SECONDS = 300.0


async def begin(lake: Lake, path: str = "big") -> str:
    new = NewUpload(MAIN, path, entry(0), "ann", "", is_full_object_checksum=False)
    return (await lake.graveler.uploads.create(lake.repository, new)).upload_id


async def claim(lake: Lake, upload_id: str, manifest: bytes = MANIFEST) -> bytes:
    begun = await lake.graveler.uploads.begin_complete(lake.repository, upload_id, manifest)
    assert not begun.completed_entry
    return begun.op_id


async def answer(lake: Lake, upload_id: str, manifest: bytes = MANIFEST) -> bytes:
    """Returns the answer to a repeated completion."""
    uploads = lake.graveler.uploads
    return (await uploads.begin_complete(lake.repository, upload_id, manifest)).completed_entry


def whole(upload_id: str, size: int) -> bytes:
    """Returns the entry of a complete upload; the upload is its operation."""
    return pack(replace(unpack(entry(size)), operation_id=upload_id))


async def finish(lake: Lake, upload_id: str, claimed: bytes, size: int) -> None:
    packed = whole(upload_id, size)
    await lake.graveler.uploads.finish_complete(lake.repository, upload_id, claimed, packed)


async def refused(work: object) -> Reason:
    with pytest.raises(TarnError) as raised:
        await work  # type: ignore[misc]
    if raised.value.reason is Reason.UPLOAD_NOT_FOUND:
        assert raised.value.kind is Kind.NOT_FOUND
    return raised.value.reason


def part(number: int) -> pb.UploadPartRecord:
    return pb.UploadPartRecord(part_number=number, size_bytes=5, md5=bytes(16))


async def numbers(lake: Lake, upload_id: str) -> list[int]:
    found = await lake.graveler.uploads.parts(lake.repository, upload_id, 0, 1000)
    return [each.part_number for each in found]


async def test_a_complete_upload_has_an_answer_for_its_own_part_list_only(lake: Lake) -> None:
    upload_id = await begin(lake)
    await finish(lake, upload_id, await claim(lake, upload_id), 1)
    assert await answer(lake, upload_id) == whole(upload_id, 1)
    assert await refused(answer(lake, upload_id, OTHER_MANIFEST)) is Reason.UPLOAD_NOT_FOUND
    assert await answer(lake, upload_id) == whole(upload_id, 1), "the answer is kept"


@pytest.mark.parametrize("ended", ["completed", "aborted"])
async def test_no_part_is_recorded_on_an_upload_that_has_ended(lake: Lake, ended: str) -> None:
    uploads = lake.graveler.uploads
    upload_id = await begin(lake)
    await uploads.record_part(lake.repository, upload_id, part(1))
    if ended == "completed":
        claimed = await claim(lake, upload_id)
        await uploads.record_part(lake.repository, upload_id, part(2))
        assert await numbers(lake, upload_id) == [1, 2]
        await finish(lake, upload_id, claimed, 1)
    else:
        await uploads.abort(lake.repository, upload_id)
    late = uploads.record_part(lake.repository, upload_id, part(3))
    assert await refused(late) is Reason.UPLOAD_NOT_FOUND
    if ended == "completed":
        assert await numbers(lake, upload_id) == [1, 2]


async def test_parts_come_in_pages_in_the_order_of_their_numbers(lake: Lake) -> None:
    uploads = lake.graveler.uploads
    upload_id = await begin(lake)
    for number in (10_000, 2, 300, 1):
        await uploads.record_part(lake.repository, upload_id, part(number))
    assert await numbers(lake, upload_id) == [1, 2, 300, 10_000]
    page = await uploads.parts(lake.repository, upload_id, 2, 1)
    assert [each.part_number for each in page] == [300]
    assert not await uploads.parts(lake.repository, upload_id, 10_000, 5)


async def test_only_who_holds_a_claim_may_give_it_up(lake: Lake) -> None:
    uploads = lake.graveler.uploads
    upload_id = await begin(lake)
    held = await claim(lake, upload_id)
    stranger = uploads.reopen(lake.repository, upload_id, bytes(len(held)))
    assert await refused(stranger) is Reason.UPLOAD_BUSY
    assert await refused(claim(lake, upload_id)) is Reason.UPLOAD_BUSY
    await uploads.reopen(lake.repository, upload_id, held)
    assert await claim(lake, upload_id) != held


async def test_a_claim_is_repeated_by_the_one_who_made_it(lake: Lake) -> None:
    """The answer to the first call is lost. Without the caller's own id, its repetition would wait for itself."""
    uploads = lake.graveler.uploads
    upload_id = await begin(lake)
    mine, other = b"m" * 16, b"o" * 16
    for _ in range(2):
        begun = await uploads.begin_complete(lake.repository, upload_id, MANIFEST, mine)
        assert begun.op_id == mine
    again = uploads.begin_complete(lake.repository, upload_id, MANIFEST, other)
    assert await refused(again) is Reason.UPLOAD_BUSY
    elsewhere = uploads.begin_complete(lake.repository, upload_id, OTHER_MANIFEST, mine)
    assert await refused(elsewhere) is Reason.UPLOAD_BUSY, "one claim is for one part list"
    await finish(lake, upload_id, mine, 1)
    done = await uploads.begin_complete(lake.repository, upload_id, MANIFEST, mine)
    assert done.completed_entry == whole(upload_id, 1)


async def test_a_claim_that_is_given_up_is_taken_over_at_once(lake: Lake) -> None:
    uploads = lake.graveler.uploads
    upload_id = await begin(lake)
    first = await claim(lake, upload_id)
    await uploads.reopen(lake.repository, upload_id, first, may_be_staged=True)
    assert await refused(finish(lake, upload_id, first, 1)) is Reason.UPLOAD_BUSY
    assert await refused(finish(lake, upload_id, b"", 1)) is Reason.UPLOAD_BUSY, "nobody's claim"
    assert await refused(uploads.abort(lake.repository, upload_id)) is Reason.UPLOAD_BUSY
    assert await lake.get("big") is None
    second = await claim(lake, upload_id)
    await finish(lake, upload_id, second, 2)
    assert await lake.get("big") == 2


async def test_an_object_that_was_staged_under_a_claim_that_was_given_up_is_found(
    lake: Lake, running: Running
) -> None:
    """The gateway heard nothing more of a call that goes on, and gives its claim up; the client repeats itself."""
    await lake.put("warm", 0)
    upload_id = await begin(lake)
    first = await claim(lake, upload_id)
    row = lake.kv.hold("set_many", lake.row_key("big"))
    slow, row = await started(finish(lake, upload_id, first, 1), row, running)
    uploads = lake.graveler.uploads
    await uploads.reopen(lake.repository, upload_id, first, may_be_staged=True)
    await finish(lake, upload_id, await claim(lake, upload_id), 1)
    await lake.put("big", 3)
    row.open()
    with pytest.raises(TarnError) as raised:
        await slow
    assert raised.value.kind is Kind.UNKNOWN_OUTCOME
    assert await lake.get("big") == 3, "the late row lies below"


async def test_an_upload_that_an_earlier_completion_may_have_staged_is_not_open_again(
    lake: Lake,
) -> None:
    """A later completion fails before it stages, for a wrong part list, and says that it staged nothing. The upload
    still cannot be aborted: the earlier call may be on its way to the row."""
    await lake.put("warm", 0)
    upload_id = await begin(lake)
    uploads = lake.graveler.uploads
    first = await claim(lake, upload_id)
    lake.kv.lose("set_many", lake.row_key("big"), applied=False)
    with pytest.raises(OutcomeUnknownError):
        await finish(lake, upload_id, first, 1)
    await uploads.reopen(lake.repository, upload_id, first, may_be_staged=True)
    second = await claim(lake, upload_id)
    await uploads.reopen(lake.repository, upload_id, second)
    assert await refused(uploads.abort(lake.repository, upload_id)) is Reason.UPLOAD_BUSY
    await finish(lake, upload_id, await claim(lake, upload_id), 1)
    assert await lake.get("big") == 1


async def test_a_silent_claim_is_taken_over_after_five_minutes_and_not_before(lake: Lake) -> None:
    uploads = lake.graveler.uploads
    upload_id = await begin(lake)
    first = await claim(lake, upload_id)
    lake.clock.advance(CLAIM_SECONDS - 1)
    assert await refused(claim(lake, upload_id)) is Reason.UPLOAD_BUSY
    assert await refused(uploads.abort(lake.repository, upload_id)) is Reason.UPLOAD_BUSY
    lake.clock.advance(1)
    second = await claim(lake, upload_id)
    assert await refused(finish(lake, upload_id, first, 1)) is Reason.UPLOAD_BUSY
    assert await lake.get("big") is None
    await finish(lake, upload_id, second, 2)
    assert await lake.get("big") == 2


async def test_a_completion_that_was_taken_over_does_not_record_its_answer(
    lake: Lake, running: Running
) -> None:
    await lake.put("warm", 0)
    upload_id = await begin(lake)
    first = await claim(lake, upload_id)
    row = lake.kv.hold("set_many", lake.row_key("big"))
    slow, row = await started(finish(lake, upload_id, first, 1), row, running)
    lake.clock.advance(CLAIM_SECONDS)
    second = await claim(lake, upload_id)
    row.open()
    with pytest.raises(TarnError):
        await slow
    await finish(lake, upload_id, second, 2)
    assert await answer(lake, upload_id) == whole(upload_id, 2)


@pytest.mark.parametrize("applied", [True, False], ids=["made", "not made"])
@pytest.mark.parametrize("step", ["claim", "give up", "complete", "abort"])
async def test_a_lost_answer_of_a_step_is_settled(lake: Lake, step: str, applied: bool) -> None:
    """The step was made once, whether or not the lost attempt made it, and its caller is told so."""
    uploads = lake.graveler.uploads
    upload_id = await begin(lake)
    held = b"" if step in ("claim", "abort") else await claim(lake, upload_id)
    lake.kv.lose("set_if", RepositoryKeys.upload(UploadId(upload_id)), applied=applied)
    match step:
        case "claim":
            await finish(lake, upload_id, await claim(lake, upload_id), 2)
            assert await answer(lake, upload_id) == whole(upload_id, 2)
        case "give up":
            await uploads.reopen(lake.repository, upload_id, held)
            assert await claim(lake, upload_id) != held
        case "complete":
            await finish(lake, upload_id, held, 2)
            assert await answer(lake, upload_id) == whole(upload_id, 2)
        case _:
            await uploads.abort(lake.repository, upload_id)
            assert await refused(claim(lake, upload_id)) is Reason.UPLOAD_NOT_FOUND


@pytest.mark.parametrize("applied", [True, False], ids=["made", "not made"])
async def test_an_abandoned_upload_whose_abort_lost_its_answer_is_counted(
    lake: Lake, applied: bool
) -> None:
    uploads = lake.graveler.uploads
    upload_id = await begin(lake)
    lake.kv.lose("set_if", RepositoryKeys.upload(UploadId(upload_id)), applied=applied)
    assert await uploads.abort_abandoned(lake.repository, upload_id)
    assert uploads.abandoned_count == 1
    assert not await uploads.abort_abandoned(lake.repository, upload_id)


async def test_an_aborted_upload_cannot_be_completed_and_aborting_again_is_no_error(
    lake: Lake,
) -> None:
    uploads = lake.graveler.uploads
    upload_id = await begin(lake)
    for _ in range(2):
        await uploads.abort(lake.repository, upload_id)
    assert await refused(claim(lake, upload_id)) is Reason.UPLOAD_NOT_FOUND
    assert await refused(uploads.get(lake.repository, upload_id)) is Reason.UPLOAD_NOT_FOUND
    done = await begin(lake)
    await finish(lake, done, await claim(lake, done), 1)
    assert await refused(uploads.abort(lake.repository, done)) is Reason.UPLOAD_NOT_FOUND
    assert (await uploads.get(lake.repository, done)).record.completed_entry == whole(done, 1)


async def test_a_failure_of_a_later_attempt_is_no_refusal_of_an_earlier_one(
    lake: Lake,
    other: Lake,
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The row of the first attempt is visible; a client that is told "not done" would upload again."""
    await other.put("warm", 0)
    upload_id = await begin(lake)
    first = await claim(lake, upload_id)
    staged = lake.kv.hold("set_many", lake.row_key("big"), after=True)
    dies = running.start(finish(lake, upload_id, first, 1))
    await reached(staged)
    dies.cancel()
    await asyncio.wait([dies])
    lake.clock.advance(CLAIM_SECONDS)
    second = await claim(other, upload_id)
    get_many = lake.kv.get_many

    async def refuse_record(
        partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        if lake.branch_key in keys:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "away")
        return await get_many(partition, keys, settle=settle)

    monkeypatch.setattr(lake.kv, "get_many", refuse_record)
    with pytest.raises(OutcomeUnknownError):
        await finish(other, upload_id, second, 1)
    monkeypatch.setattr(lake.kv, "get_many", get_many)
    assert await other.get("big") == 1
    await finish(other, upload_id, second, 1)
    assert await answer(lake, upload_id) == whole(upload_id, 1)


@pytest.mark.parametrize("ended", [False, True], ids=["re-opened", "aborted"])
async def test_a_claim_that_meets_another_change_is_decided_by_the_record_as_it_is_then(
    lake: Lake, other: Lake, running: Running, ended: bool
) -> None:
    """A lost compare-and-set is not the final answer: the upload is read again."""
    upload_id = await begin(lake)
    held = lake.kv.hold("set_if", RepositoryKeys.upload(UploadId(upload_id)))
    slow = running.start(claim(lake, upload_id))
    await reached(held)
    uploads = other.graveler.uploads
    if ended:
        await uploads.abort(other.repository, upload_id)
    else:
        await uploads.reopen(other.repository, upload_id, await claim(other, upload_id))
    held.open()
    if ended:
        assert await refused(slow) is Reason.UPLOAD_NOT_FOUND
        return
    claimed = await slow
    assert isinstance(claimed, bytes)
    await finish(lake, upload_id, claimed, 3)
    assert await lake.get("big") == 3
