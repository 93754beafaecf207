"""An upload is staged once, even if its completion is repeated and processes die or hang half-way."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from lake import MAIN, Lake, Running, ended, entry, reached, started
from lake_upload import Upload, seal_main

from tarn.core.branch import TokenKind
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, UploadId
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import OutcomeUnknownError
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.branch.conditional import _takes_registers
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.uploads.state import Claim, NewUpload
from tarn_graveler.versioning.merges import MergeRequest

NEW = WriteCondition(if_none_match=True)
ANY_OBJECT = WriteCondition(if_match="*")


async def kind_of_staging(lake: Lake) -> TokenKind:
    return (await lake.graveler.branches.fresh(lake.main)).branch.staging.kind


async def put_if(lake: Lake, path: str, size: int, condition: WriteCondition) -> None:
    packed = entry(size, f"put {size}")
    await lake.graveler.conditional.stage(lake.main, path, packed, condition)


async def commit_and_drop(lake: Lake) -> None:
    await lake.commit()
    await lake.drop_everything_removed()


async def test_a_completion_that_nothing_disturbs_writes_plainly(
    lake: Lake, upload: Upload
) -> None:
    await upload.finish()
    assert await lake.get("k") == 1
    assert await kind_of_staging(lake) is TokenKind.PLAIN
    assert await upload.is_complete()


async def test_a_completion_that_is_repeated_after_its_answer_changes_nothing(
    lake: Lake, upload: Upload
) -> None:
    await upload.finish()
    await lake.put("k", 2)
    await upload.finish()
    assert await lake.get("k") == 2


async def test_a_late_row_of_a_repeated_completion_takes_no_newer_write_away(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    held = lake.kv.hold("set_many", lake.row_key("k"))
    first = running.start(upload.finish())
    await reached(held)
    await upload.finish(other)  # the gateway repeats it under the same claim
    await other.put("k", 2)
    held.open()
    await first  # finds the recorded answer of the second one
    assert await other.get("k") == 2
    await commit_and_drop(other)
    assert await other.get("k") == 2


async def test_a_late_row_does_not_bring_back_what_was_deleted_and_committed(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    held = lake.kv.hold("set_many", lake.row_key("k"))
    first = running.start(upload.finish())
    await reached(held)
    await upload.finish(other)
    await other.delete("k")
    await commit_and_drop(other)
    held.open()
    await ended(first)
    assert await other.get("k") is None
    await other.put("x", 1)
    await other.commit()
    assert await other.get("k") is None


async def test_a_completion_whose_process_died_after_its_row_is_not_staged_again(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    await upload.dies_after_its_row(running)
    assert await other.get("k") == 1
    await other.put("k", 2)
    await upload.take_over(other)
    await upload.finish(other)
    assert await other.get("k") == 2
    assert await upload.is_complete()


async def test_a_completion_whose_process_died_before_its_row_is_staged_by_the_next(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    await upload.dies_before_its_row(running)
    await other.put("k", 2)
    await upload.take_over(other)
    await upload.finish(other)
    assert await other.get("k") == 1
    await commit_and_drop(other)
    assert await other.get("k") == 1


async def test_a_row_that_met_a_seal_is_carried_over_only_if_it_is_the_newest(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    for newer in (False, True):
        written = lake.kv.hold("set_many", lake.row_key("k"), after=True)
        first = running.start(upload.finish())
        await reached(written)
        await seal_main(other)  # the row is in a sealed token now
        if newer:
            await other.put("k", 2)
        written.open()
        await first
        assert await other.get("k") == (2 if newer else 1)
        await commit_and_drop(other)
        assert await other.get("k") == (2 if newer else 1)
        if not newer:
            uploads = lake.graveler.uploads
            new = NewUpload(MAIN, "k", b"", "ann", "", is_full_object_checksum=False)
            upload.upload_id = (await uploads.create(lake.repository, new)).upload_id
            upload.claim = await uploads.begin_complete(
                lake.repository, upload.upload_id, bytes(32)
            )


async def test_an_upload_that_another_attempt_may_set_again_is_not_done(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    """The first attempt's row is late; the second one has seen only the PUT, and its compare-and-set is on its way."""
    row = lake.row_key("k")
    first, late_row = await started(upload.finish(), lake.kv.hold("set_many", row), running)
    second, over_nothing = await started(
        upload.finish(other), other.kv.hold("set_if", row), running
    )
    await other.put("k", 2)
    over_the_put = other.kv.hold("set_if", row)
    over_nothing.open()
    await reached(over_the_put)
    late_row.open()
    with pytest.raises(OutcomeUnknownError):
        await first
    assert await other.get("k") == 2
    over_the_put.open()
    await second
    assert await other.get("k") == 1
    await commit_and_drop(other)
    assert await other.get("k") == 1


async def test_an_attempt_that_begins_before_the_answer_is_recorded_is_no_less_a_rival(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    row, record = lake.row_key("k"), RepositoryKeys.upload(UploadId(upload.upload_id))
    first, late_row = await started(upload.finish(), lake.kv.hold("set_many", row), running)
    second, over_nothing = await started(
        upload.finish(other), other.kv.hold("set_if", row), running
    )
    await other.put("k", 2)
    withdrawn = other.kv.hold("set_if", record, after=True)
    over_nothing.open()
    await reached(withdrawn)
    added = other.kv.hold("set_if", record)
    withdrawn.open()
    await reached(added)
    answer = lake.kv.hold("set_if", record)
    late_row.open()
    await reached(answer)
    over_the_put = other.kv.hold("set_if", row)
    added.open()
    await reached(over_the_put)
    answer.open()
    with pytest.raises(OutcomeUnknownError):
        await first
    over_the_put.open()
    await second
    assert await other.get("k") == 1


@pytest.mark.parametrize(("operation", "condition"), [("set_many", UNCONDITIONAL), ("set_if", NEW)])
async def test_a_row_that_a_commit_has_missed_is_carried_over(
    lake: Lake,
    other: Lake,
    upload: Upload,
    running: Running,
    operation: str,
    condition: WriteCondition,
) -> None:
    await other.put("x", 1)
    held = lake.kv.hold(operation, lake.row_key("k"))
    first = running.start(upload.finish(condition=condition))
    await reached(held)
    scanned = other.kv.hold("scan_arrow", after=True)
    commit = running.start(other.commit())
    await reached(scanned)
    finish = other.kv.hold("set_if", other.branch_key)
    scanned.open()
    await reached(finish)
    held.open()  # the row lands in a token that was scanned
    await first
    finish.open()
    await ended(commit)
    await other.drop_everything_removed()
    assert await other.get("k") == 1


async def test_a_row_that_is_carried_over_and_loses_stays_recorded(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    """A PUT comes first. The upload's record keeps the attempt that landed: it is not staged again."""
    written = lake.kv.hold("set_many", lake.row_key("k"), after=True)
    first = running.start(upload.finish())
    await reached(written)
    await seal_main(other)
    carried = lake.kv.hold("set_if", lake.row_key("k"))
    written.open()
    await reached(carried)
    await other.put("k", 2)
    carried.open()
    await first
    assert await other.get("k") == 2


async def test_a_row_that_a_conditional_write_has_missed_is_not_taken_for_written_over(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    """It lands in a sealed token that the conditional writer has read: the object was never visible."""
    held = lake.kv.hold("set_many", lake.row_key("k"))
    first = running.start(upload.finish())
    await reached(held)
    await put_if(other, "k", 2, NEW)
    held.open()
    await ended(first)
    assert isinstance(first.exception(), OutcomeUnknownError)
    with pytest.raises(OutcomeUnknownError) as raised:
        await upload.finish(other)
    assert "upload again" in raised.value.message
    assert await other.get("k") == 2


async def test_a_conditional_write_of_the_same_token_has_seen_the_upload(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    """Both rows are in one token, where the second was compared with the first."""
    await BranchHandle(lake.graveler.branches, lake.main).seal_unless(
        _takes_registers, TokenKind.CONDITIONAL, written=False
    )
    await upload.dies_after_its_row(running)
    await put_if(other, "k", 2, ANY_OBJECT)
    await upload.finish(other)
    assert await upload.is_complete()
    assert await other.get("k") == 2


async def test_an_outcome_that_cannot_be_settled_stays_unknown_and_stages_nothing(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    """The token of a dead attempt was committed, and the key holds something else."""
    await upload.dies_after_its_row(running)
    await other.delete("k")
    await commit_and_drop(other)
    await upload.take_over(other)
    with pytest.raises(OutcomeUnknownError) as raised:
        await upload.finish(other)
    assert "upload again" in raised.value.message
    assert await other.get("k") is None


async def test_an_attempt_that_was_committed_is_recognised(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    await upload.dies_after_its_row(running)
    await commit_and_drop(other)
    await upload.take_over(other)
    await upload.finish(other)
    assert await other.get("k") == 1
    assert await upload.is_complete()


async def test_a_completion_that_lost_its_claim_stages_nothing(lake: Lake, upload: Upload) -> None:
    await upload.take_over(lake)
    taken = upload.claim
    upload.claim = Claim(bytes(16), b"")
    with pytest.raises(TarnError) as raised:
        await upload.finish()
    assert raised.value.reason is Reason.UPLOAD_BUSY
    assert await lake.get("k") is None
    upload.claim = taken
    await upload.finish()
    assert await lake.get("k") == 1


async def test_an_answer_is_recorded_only_under_the_claim(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    """The row was written, but meanwhile another completion with other parts has taken over."""
    written = lake.kv.hold("set_many", lake.row_key("k"), after=True)
    first = running.start(upload.finish())
    await reached(written)
    other.clock.advance(301)
    uploads = other.graveler.uploads
    await uploads.begin_complete(other.repository, upload.upload_id, b"2" * 32)
    written.open()
    with pytest.raises(OutcomeUnknownError):
        await first
    with pytest.raises(TarnError) as raised:
        await uploads.begin_complete(other.repository, upload.upload_id, b"3" * 32)
    assert raised.value.reason is Reason.UPLOAD_BUSY  # not completed by the first one


async def test_a_completed_upload_answers_no_other_part_list(lake: Lake, upload: Upload) -> None:
    await upload.finish()
    uploads = lake.graveler.uploads
    with pytest.raises(TarnError) as raised:
        await uploads.begin_complete(lake.repository, upload.upload_id, b"2" * 32)
    assert raised.value.reason is Reason.UPLOAD_NOT_FOUND


async def test_notes_are_read_after_the_row_that_the_comparison_expects(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    """The late row is visible for a moment, and a PUT replaces it, while a second attempt reads."""
    held = lake.kv.hold("set_many", lake.row_key("k"))
    first = running.start(upload.finish())
    await reached(held)
    looked = lake.kv.hold("scan", after=True)
    second = running.start(upload.finish(other))
    await reached(looked)
    late = lake.kv.hold("get_many", lake.branch_key)  # the first one's re-check waits
    held.open()
    await reached(late)
    assert await other.get("k") == 1
    await other.put("k", 2)
    looked.open()
    with pytest.raises(OutcomeUnknownError):  # the second attempt sealed both rows
        await second
    assert await other.get("k") == 2
    late.open()
    await ended(first)
    assert await other.get("k") == 2


async def test_a_note_is_missed_only_in_a_token_that_the_record_still_names(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    await upload.dies_after_its_row(running)
    await other.put("k", 2)
    looking = lake.kv.hold("scan")
    second = running.start(upload.finish(other))
    await reached(looking)
    await commit_and_drop(lake)  # only the note of the sealed token: the new token is empty
    looking.open()
    await ended(second)
    assert isinstance(second.exception(), OutcomeUnknownError)
    assert await other.get("k") == 2


async def test_a_conditional_token_that_a_plain_row_may_land_in_is_sealed_as_well(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    await BranchHandle(lake.graveler.branches, lake.main).seal_unless(
        _takes_registers, TokenKind.CONDITIONAL, written=False
    )
    held = lake.kv.hold("set_many", lake.row_key("k"))
    first = running.start(upload.finish())
    await reached(held)
    await upload.finish(other)
    await other.put("k", 2)
    held.open()
    await first
    assert await other.get("k") == 2


@pytest.mark.parametrize("condition", [UNCONDITIONAL, NEW])
async def test_an_attempt_that_cannot_record_its_token_writes_nothing(
    lake: Lake, other: Lake, upload: Upload, running: Running, condition: WriteCondition
) -> None:
    """It hung, and another completion has the claim now."""
    record = RepositoryKeys.upload(UploadId(upload.upload_id))
    held = lake.kv.hold("set_if", record)
    first = running.start(upload.finish(condition=condition))
    await reached(held)
    other.clock.advance(301)
    uploads = other.graveler.uploads
    await uploads.begin_complete(other.repository, upload.upload_id, b"2" * 32)
    held.open()
    await ended(first)
    error = first.exception()
    assert isinstance(error, TarnError)
    assert error.reason is Reason.UPLOAD_BUSY
    assert await other.get("k") is None


async def test_a_claim_lives_as_long_as_its_completion_goes_on(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    lake.clock.advance(200)
    held = lake.kv.hold("set_many", lake.row_key("k"))
    first = running.start(upload.finish())
    await reached(held)
    lake.clock.advance(200)
    uploads = other.graveler.uploads
    with pytest.raises(TarnError) as raised:
        await uploads.begin_complete(other.repository, upload.upload_id, bytes(32))
    assert raised.value.reason is Reason.UPLOAD_BUSY
    held.open()
    await first


async def test_a_completion_of_other_parts_is_not_told_that_it_succeeded(
    lake: Lake, upload: Upload
) -> None:
    lost = upload.claim
    await upload.take_over(lake)
    await upload.finish()
    upload.claim = lost
    with pytest.raises(TarnError) as raised:
        await upload.finish()
    assert raised.value.reason is Reason.UPLOAD_BUSY


async def test_uploads_seal_no_branch_without_bound(lake: Lake) -> None:
    branches = lake.graveler.branches

    async def seal_again() -> None:
        former = (await branches.fresh(lake.main)).branch.staging
        await BranchHandle(branches, lake.main).seal_unless(
            lambda now: now.staging != former, TokenKind.PLAIN, written=False
        )

    for _ in range(32):
        await seal_again()
    with pytest.raises(TarnError) as raised:
        await seal_again()
    assert raised.value.kind is Kind.UNAVAILABLE
    assert "commit" in raised.value.message
    assert len((await branches.fresh(lake.main)).branch.sealed) == 32


async def test_a_row_of_another_writer_that_is_carried_over_hides_no_later_merge(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    """The delete was over before the merge began, so what the merge brought must stay."""
    side = BranchId("side")
    head = (await other.commit()).commit_id
    await other.graveler.branches.create(other.branch(side), head)
    await other.put("k", 2, side)
    request = CommitRequest("bob", "change")
    source = (await other.graveler.committing.commit(other.branch(side), request)).commit_id
    written = lake.kv.hold("set_many", lake.row_key("k"), after=True)
    first = running.start(upload.finish())
    await reached(written)
    await other.delete("k")
    await seal_main(other)
    carried = lake.kv.hold("set_if", lake.row_key("k"))
    written.open()
    is_carried = running.start(carried.reached.wait())
    await asyncio.wait([first, is_carried], return_when=asyncio.FIRST_COMPLETED)
    await other.graveler.merges.merge(other.main, MergeRequest(source, "ann", "merge"))
    assert await other.get("k") == 2
    carried.open()
    with pytest.raises(OutcomeUnknownError):
        await first
    assert await other.get("k") == 2


async def test_a_completion_is_done_only_by_a_record_that_it_verifies(
    lake: Lake, other: Lake, running: Running, upload: Upload
) -> None:
    """The row of the first attempt lands after a commit has scanned its token; the second one finds it there."""
    packed = entry(7, upload.upload_id)

    def finish(at: Lake) -> Coroutine[Any, Any, None]:
        return at.graveler.uploads.finish_complete(
            at.repository, upload.upload_id, upload.claim.op_id, packed, UNCONDITIONAL
        )

    row = lake.kv.hold("set_many", lake.row_key("k"))
    running.start(finish(lake))
    await reached(row)
    look = lake.kv.hold("get_many", lake.row_key("k"))
    second = running.start(finish(other))
    await reached(look)  # it has read the record, whose staging token is that of the first attempt
    await lake.commit()  # seals the token and scans it: the row is not there
    stuck = lake.kv.hold("get_many", lake.branch_key)
    row.open()
    await reached(stuck)  # the row has landed; the process of the first attempt stands still
    look.open()
    await ended(second)
    if not isinstance(second.exception(), OutcomeUnknownError):  # that would be honest, too
        await second
        await other.drop_everything_removed()
        assert await other.get("k") == 7, "acknowledged, and lost"
