"""Answers to callers when an operation fails half-way: bugs that the simulator found, replayed by hand.

An error that means "surely not done" (UNAVAILABLE, NOT_FOUND) must be true, and so must "nothing to commit:
everything is in commit X".
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from lake import MAIN, Lake, Running, entry, keep_tokens, reached
from permits import permit_for

from tarn.core.branch import seal
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId
from tarn.kv.port import Group, OutcomeUnknownError, Partition, Predicate, Versioned
from tarn.kv.records import decode_branch
from tarn_graveler.assembly import GravelerSettings
from tarn_graveler.branch.committing import CommitResult
from tarn_graveler.branch.handle import BranchHandle, claims_nothing
from tarn_graveler.handlers.branches import BranchHandler
from tarn_graveler.uploads.state import NewUpload
from tarn_proto.graveler.v1 import branch_service_pb2 as branch_pb


def refused() -> TarnError:
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "refused")


def refuse_rows_after_first(patch: pytest.MonkeyPatch, lake: Lake, key: bytes) -> None:
    """The first write of a key lands, and then its token is sealed; all later ones are refused."""
    write, count = lake.kv.set_many, 0

    async def set_many(partition: Partition, groups: Sequence[Group]) -> list[TarnError | None]:
        nonlocal count
        if not any(group.anchor == key for group in groups):
            return await write(partition, groups)
        count += 1
        if count > 1:
            return [refused() for _ in groups]
        done = await write(partition, groups)
        token = lake.graveler.branches.new_token()
        await BranchHandle(lake.graveler.branches, lake.main).change(
            lambda b, op: seal(b, token, op), claims_nothing
        )
        return done

    patch.setattr(lake.kv, "set_many", set_many)


async def test_a_put_whose_second_attempt_is_refused_has_an_unknown_outcome(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.put("warm", 0)
    refuse_rows_after_first(monkeypatch, lake, lake.row_key("x"))
    with pytest.raises(OutcomeUnknownError):
        await lake.put("x", 1)
    assert await lake.get("x") == 1  # the first attempt's row


async def test_a_delete_whose_second_attempt_is_refused_has_an_unknown_outcome(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await lake.put("x", 1)
    refuse_rows_after_first(monkeypatch, lake, lake.row_key("x"))
    (outcome,) = await lake.delete("x")
    assert isinstance(outcome, OutcomeUnknownError)
    assert await lake.get("x") is None  # the first attempt's tombstone


async def test_a_seal_whose_settling_read_is_refused_has_an_unknown_outcome(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.put("x", 1)
    read = lake.kv.get_many

    async def get_many(
        partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        if settle:
            raise refused()
        return await read(partition, keys)

    monkeypatch.setattr(lake.kv, "get_many", get_many)
    lake.kv.lose("set_if", lake.branch_key, applied=True)
    with pytest.raises(OutcomeUnknownError):
        await lake.commit()


async def test_nothing_to_commit_names_the_commit_that_took_the_changes(
    lake: Lake, other: Lake, running: Running
) -> None:
    """A slow commit finds its tokens empty because another one has taken and dropped them."""
    await lake.put("x", 1)
    scan = lake.kv.hold("scan_arrow")
    slow = running.start(lake.commit("slow"))
    await reached(scan)
    quick = await other.commit("quick")
    await lake.drop_everything_removed()
    scan.open()
    with pytest.raises(TarnError) as raised:
        await slow
    assert raised.value.reason is Reason.NOTHING_TO_COMMIT
    assert raised.value.metadata["commit_id"] == quick.commit_id


@pytest.mark.parametrize("allow_empty", [False, True], ids=["not-empty", "allow-empty"])
async def test_a_commit_whose_changes_another_one_took_is_empty_or_none(
    lake: Lake, other: Lake, running: Running, allow_empty: bool
) -> None:
    """The request decides which; tokens that a third commit has sealed since are not part of it."""
    branches = lake.graveler.branches
    await lake.put("x", 1)
    seal_done = lake.kv.hold("set_if", lake.branch_key, after=True)
    slow = running.start(lake.commit("slow", allow_empty=allow_empty))
    await reached(seal_done)
    finish = lake.kv.hold("set_if", lake.branch_key)
    seal_done.open()
    await reached(finish)
    quick = await other.commit("quick")
    if not allow_empty:
        await other.put("y", 1)
        token = branches.new_token()
        await BranchHandle(branches, lake.main).change(
            lambda b, op: seal(b, token, op), claims_nothing
        )
    finish.open()
    if allow_empty:
        made = await slow
        assert isinstance(made, CommitResult)
        assert made.commit.parents == (quick.commit_id,)
        assert made.commit.metarange_id == quick.commit.metarange_id
        assert (await branches.fresh(lake.main)).branch.commit_id == made.commit_id
        return
    with pytest.raises(TarnError) as raised:
        await slow
    assert raised.value.reason is Reason.NOTHING_TO_COMMIT
    assert raised.value.metadata["commit_id"] == quick.commit_id
    assert (await branches.fresh(lake.main)).branch.commit_id == quick.commit_id


async def test_a_commit_does_not_end_on_a_re_created_branch(lake: Lake, running: Running) -> None:
    """The commit of the new branch does not hold the changes that were to be committed."""
    branches = lake.graveler.branches
    first = (await branches.fresh(lake.main)).branch.commit_id
    await lake.put("a", 1)
    second = (await lake.commit()).commit_id
    await lake.put("x", 1)
    seal_done = lake.kv.hold("set_if", lake.branch_key, after=True)
    commit = running.start(lake.commit())
    await reached(seal_done)
    finish = lake.kv.hold("set_if", lake.branch_key)
    seal_done.open()
    await reached(finish)
    await branches.delete(lake.main, keep_tokens)
    await branches.create(lake.main, first)
    assert first != second
    finish.open()
    with pytest.raises(TarnError) as raised:
        await commit
    assert raised.value.reason is Reason.BRANCH_NOT_FOUND


async def test_a_completion_that_staged_and_then_failed_has_an_unknown_outcome(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = lake.graveler.uploads
    new = NewUpload(MAIN, "x", b"", "ann", "", is_full_object_checksum=False)
    upload_id = (await uploads.create(lake.repository, new)).upload_id
    claim = await uploads.begin_complete(lake.repository, upload_id, b"m")
    write = lake.kv.set_many

    async def write_then_break(
        partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        done = await write(partition, groups)

        async def set_if(*args: object, **named: object) -> None:
            raise refused()

        monkeypatch.setattr(lake.kv, "set_if", set_if)
        return done

    monkeypatch.setattr(lake.kv, "set_many", write_then_break)
    with pytest.raises(OutcomeUnknownError):
        await uploads.finish_complete(lake.repository, upload_id, claim.op_id, entry(7, upload_id))
    assert await lake.get("x") == 7


async def test_rule_5_reads_rely_on_the_drop_delay_less_the_clock_skew(
    lake: Lake, running: Running
) -> None:
    """The drop delay is measured by two machines: one registers the drop by its clock, another one drops by its own."""
    assert GravelerSettings("test").read_seconds_max == 55.0
    await lake.put("x", 1)
    assert await lake.get("x") == 1
    token = await lake.staging_rows()
    held = lake.kv.hold("get_many", lake.row_key("x"))
    reader = running.start(lake.get("x"))
    await reached(held)
    await lake.commit()
    lake.clock.advance(56)
    await lake.kv.drop_partition(token)  # by a cleaner whose clock is four seconds ahead
    held.open()
    assert await reader == 1


@pytest.mark.parametrize("force", [False, True], ids=["clean", "forced"])
async def test_a_hard_move_answers_without_a_read_after_it(
    lake: Lake, force: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure of such a read would turn a move that was made into an unknown outcome."""
    first = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    await lake.put("x", 1)
    second = (await lake.commit()).commit_id
    set_if, get_many = lake.kv.set_if, lake.kv.get_many

    async def refuse(*_: object, **__: object) -> None:
        raise refused()

    async def move_and_break(
        partition: Partition, key: bytes, value: bytes, predicate: Predicate | None
    ) -> Predicate:
        done = await set_if(partition, key, value, predicate)
        if key == lake.branch_key and decode_branch(value).commit_id == first:
            monkeypatch.setattr(lake.kv, "get_many", refuse)
        return done

    monkeypatch.setattr(lake.kv, "set_if", move_and_break)
    answer = await move_back(lake, first, second, force=force)
    assert lake.kv.get_many is refuse  # type: ignore[comparison-overlap]
    monkeypatch.setattr(lake.kv, "get_many", get_many)
    stored = (await lake.graveler.branches.fresh(lake.main)).branch
    assert answer.branch.commit_id == stored.commit_id == first
    assert answer.branch.create_time.ToMicroseconds() == stored.create_time_us > 0


@pytest.mark.parametrize("force", [False, True], ids=["clean", "forced"])
@pytest.mark.parametrize("applied", [False, True])
async def test_a_hard_move_whose_answer_is_lost_tells_where_the_branch_is(
    lake: Lake, force: bool, applied: bool
) -> None:
    first = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    await lake.put("x", 1)
    second = (await lake.commit()).commit_id
    lake.kv.lose("set_if", lake.branch_key, applied=applied)
    assert (await move_back(lake, first, second, force=force)).branch.commit_id == first
    assert (await lake.graveler.branches.fresh(lake.main)).branch.commit_id == first


async def test_a_move_to_the_present_head_tells_the_branch(lake: Lake) -> None:
    head = (await lake.graveler.branches.fresh(lake.main)).branch
    answer = await move_back(lake, head.commit_id, head.commit_id, force=False)
    assert answer.branch.commit_id == head.commit_id
    assert answer.branch.create_time.ToMicroseconds() == head.create_time_us


async def move_back(
    lake: Lake, target: CommitId, expected: CommitId, *, force: bool
) -> branch_pb.MoveBranchResponse:
    """Makes the rpc MoveBranch."""
    request = branch_pb.MoveBranchRequest(
        repository_id="lake",
        branch_id=MAIN,
        target_ref=target,
        expected_commit_id=expected,
        force=force,
    )
    return await BranchHandler(lake.graveler).MoveBranch(
        request, permit_for(request, lake.repository)
    )
