"""Conditional writes, one interleaving at a time (docs/design/protocol.md, rule 3; invariant I6).

Each test plays the race that a step of `tarn_graveler.branch.conditional` prevents. Without the step the test
fails.
"""

import asyncio
from dataclasses import dataclass

import pytest
from lake import MAIN, Lake, Running, entry, keep_tokens, reached

from tarn.core.branch import TokenKind, seal
from tarn.core.condition import ANY, WriteCondition
from tarn.core.entry import Entry, etag_of, judged_at, pack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import OutcomeUnknownError
from tarn_graveler.branch.handle import BranchHandle, claims_nothing
from tarn_graveler.uploads.state import NewUpload

NEW = WriteCondition(if_none_match=True)


def mine(size: int, operation: str, mtime_us: int = 0) -> bytes:
    """Returns an entry of an operation, identified by its size; another attempt has another time."""
    md5 = size.to_bytes(16, "big")
    return pack(Entry(size, mtime_us, bytes(16), md5, operation_id=operation))


def match(size: int) -> WriteCondition:
    return WriteCondition(if_match=etag_of(mine(size, "x")))


@dataclass(frozen=True)
class Writer:
    """A client that writes conditionally through one replica."""

    lake: Lake

    async def put(
        self,
        path: str,
        size: int,
        condition: WriteCondition = NEW,
        *,
        operation: str = "",
        mtime_us: int = 0,
    ) -> bool:
        packed = mine(size, operation or f"op-{size}", mtime_us)
        conditional = self.lake.graveler.conditional
        return await conditional.stage(self.lake.main, path, packed, condition)

    async def refused(self, path: str, size: int, condition: WriteCondition = NEW) -> Reason:
        with pytest.raises(TarnError) as caught:
            await self.put(path, size, condition)
        assert caught.value.kind in {Kind.FAILED_PRECONDITION, Kind.NOT_FOUND}
        return caught.value.reason


@pytest.fixture
def writer(lake: Lake) -> Writer:
    return Writer(lake)


@pytest.fixture
def rival(other: Lake) -> Writer:
    return Writer(other)


async def seal_branch(lake: Lake, kind: TokenKind = TokenKind.CONDITIONAL) -> None:
    token = lake.graveler.branches.new_token(kind)
    await BranchHandle(lake.graveler.branches, lake.main).change(
        lambda b, op: seal(b, token, op), claims_nothing
    )


async def staging_kind(lake: Lake) -> TokenKind:
    return (await lake.graveler.branches.fresh(lake.main)).branch.staging.kind


async def test_if_none_match_writes_only_where_no_entry_exists(lake: Lake, writer: Writer) -> None:
    assert await writer.put("a", 1) is False
    assert await lake.get("a") == 1
    assert await writer.refused("a", 2) is Reason.PRECONDITION_FAILED
    await lake.commit()
    assert await writer.refused("a", 2) is Reason.PRECONDITION_FAILED  # committed, too
    await lake.delete("a")
    assert await writer.refused("a", 2, match(1)) is Reason.ENTRY_NOT_FOUND
    await writer.put("a", 3)
    assert await lake.get("a") == 3


async def test_if_match_writes_only_over_that_object(lake: Lake, writer: Writer) -> None:
    assert await writer.refused("a", 1, WriteCondition(if_match=ANY)) is Reason.ENTRY_NOT_FOUND
    await writer.put("a", 1)
    assert await writer.refused("a", 2, match(5)) is Reason.PRECONDITION_FAILED
    await writer.put("a", 2, match(1))
    await lake.commit()
    await writer.put("a", 3, match(2))
    await writer.put("a", 4, WriteCondition(if_match=ANY))
    assert await lake.get("a") == 4


async def test_a_plain_write_counts_whatever_token_it_lies_in(lake: Lake, writer: Writer) -> None:
    await lake.put("a", 1)
    assert await staging_kind(lake) is TokenKind.PLAIN
    assert await writer.refused("a", 2) is Reason.PRECONDITION_FAILED
    assert await staging_kind(lake) is TokenKind.CONDITIONAL
    await lake.put("b", 1)  # plain writes continue on the conditional token
    assert await writer.refused("b", 2) is Reason.PRECONDITION_FAILED
    await lake.delete("b")
    await writer.put("b", 2)
    await lake.commit()
    assert await staging_kind(lake) is TokenKind.PLAIN
    assert [await lake.get(path, "main@") for path in ("a", "b")] == [1, 2]


async def test_one_conditional_token_serves_many_writes(lake: Lake, writer: Writer) -> None:
    await writer.put("a", 1)
    token = await lake.staging_rows()
    await writer.put("b", 2)
    assert await lake.staging_rows() == token


async def test_one_of_two_writers_that_saw_no_entry_wins(
    lake: Lake, writer: Writer, rival: Writer, running: Running
) -> None:
    await writer.put("warm", 9)
    held = lake.kv.hold("set_if", lake.row_key("a"))
    slow = running.start(writer.put("a", 1))
    await reached(held)
    await rival.put("a", 2)
    held.open()
    with pytest.raises(TarnError) as caught:
        await slow
    assert caught.value.reason is Reason.PRECONDITION_FAILED
    assert await lake.get("a") == 2


async def test_a_writer_on_a_sealed_token_does_not_win_beside_one_on_the_next(
    lake: Lake, writer: Writer, rival: Writer, running: Running
) -> None:
    await writer.put("warm", 9)
    held = lake.kv.hold("set_if", lake.row_key("a"))
    slow = running.start(writer.put("a", 1))
    await reached(held)
    await seal_branch(lake)
    await rival.put("a", 2)  # on the next token; it sees no row in the sealed token yet
    held.open()
    with pytest.raises(OutcomeUnknownError):  # its row was written, so this is not a refusal
        await slow
    assert await lake.get("a") == 2


async def test_a_lost_race_is_decided_by_the_row_that_won(
    lake: Lake, writer: Writer, rival: Writer, running: Running
) -> None:
    """After the compare-and-set only the record is read again, not the layers."""
    await lake.put("beneath", 9)
    await lake.commit()
    await writer.put("warm", 9)
    held = lake.kv.hold("set_if", lake.row_key("a"))
    slow = running.start(writer.put("a", 1))
    await reached(held)
    await rival.put("a", 2)
    lake.kv.calls.clear()
    held.open()
    with pytest.raises(TarnError) as caught:
        await slow
    assert caught.value.reason is Reason.PRECONDITION_FAILED
    refs = lake.graveler.repositories.keys_of(lake.repository).refs
    assert lake.kv.calls == [("get_many", refs.name)]


async def test_one_of_many_concurrent_writers_wins_and_each_loser_costs_the_same(
    lake: Lake, writer: Writer, rival: Writer
) -> None:
    await writer.put("warm", 9)
    lake.kv.calls.clear()
    count = 32

    async def outcome(size: int) -> Reason | bool:
        try:
            return await (writer, rival)[size % 2].put("a", size)
        except TarnError as error:
            return error.reason

    async with asyncio.TaskGroup() as group:
        puts = [group.create_task(outcome(size)) for size in range(1, count + 1)]
    outcomes = [put.result() for put in puts]
    assert outcomes.count(False) == 1
    assert outcomes.count(Reason.PRECONDITION_FAILED) == count - 1
    # The record, the row, the record, the compare-and-set, the record; reads of the record are shared.
    assert len(lake.kv.calls) <= 5 * count


@pytest.mark.parametrize("losses", [1, 20])
async def test_a_writer_whose_condition_still_holds_goes_on_while_others_write(
    lake: Lake,
    writer: Writer,
    losses: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each lost compare-and-set means that another write succeeded, so there is progress."""
    await lake.put("a", 1)
    await writer.put("warm", 9)
    set_if, left = lake.kv.set_if, losses

    async def overtaken(partition: object, key: bytes, *rest: object, **named: object) -> object:
        nonlocal left
        if key == lake.row_key("a") and left:
            left -= 1
            await lake.put("a", 100 + left)
        return await set_if(partition, key, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(lake.kv, "set_if", overtaken)
    assert await writer.put("a", 2, WriteCondition(if_match=ANY)) is False
    assert (await lake.get("a"), left) == (2, 0)


async def test_a_row_that_landed_too_late_refuses_no_writer(
    lake: Lake, writer: Writer, rival: Writer, running: Running
) -> None:
    """It was written to a token that a commit had scanned: no reader sees it."""
    await writer.put("warm", 9)
    held = lake.kv.hold("set_if", lake.row_key("a"))
    slow = running.start(writer.put("a", 1))
    await reached(held)
    late = lake.kv.hold("set_if", lake.row_key("a"))
    fast = running.start(rival.put("a", 2))
    await reached(late)
    await lake.commit()
    again = lake.kv.hold("get_many", lake.branch_key)
    late.open()
    await reached(again)  # its row was written
    held.open()
    assert await slow is False
    assert await lake.get("a") == 1
    again.open()
    with pytest.raises(OutcomeUnknownError):
        await fast
    assert await lake.get("a") == 1


async def test_the_layers_that_were_read_are_verified_before_the_write(
    lake: Lake, writer: Writer, rival: Writer, running: Running
) -> None:
    """The branch was committed and its tokens were dropped between the reads of the record and of the layers."""
    await writer.put("warm", 9)
    token = await lake.staging_rows()
    held = lake.kv.hold("get_many", lake.row_key("a"))
    slow = running.start(writer.put("a", 1))
    await reached(held)
    await rival.put("a", 2)
    await lake.commit()
    await lake.drop_everything_removed()
    assert await lake.kv.get_many(token, [lake.row_key("a")]) == [None]
    held.open()
    with pytest.raises(TarnError) as caught:
        await slow
    assert caught.value.reason is Reason.PRECONDITION_FAILED
    assert await lake.get("a") == 2


async def test_a_row_that_met_a_seal_is_written_again(
    lake: Lake, writer: Writer, running: Running
) -> None:
    await writer.put("warm", 9)
    held = lake.kv.hold("set_if", lake.row_key("a"))
    slow = running.start(writer.put("a", 1))
    await reached(held)
    await lake.commit()  # scans the token that the row is sent to
    held.open()
    assert await slow is False
    await lake.drop_everything_removed()
    assert await lake.get("a") == 1


async def test_a_row_that_went_with_its_token_is_looked_for_in_the_commit(
    lake: Lake, writer: Writer, running: Running
) -> None:
    """The row that the write expects was committed and dropped before the write is sent."""
    await writer.put("a", 1)
    held = lake.kv.hold("set_if", lake.row_key("a"))
    slow = running.start(writer.put("a", 2, match(1)))
    await reached(held)
    await lake.commit()
    await lake.drop_everything_removed()
    held.open()
    assert await slow is False
    assert await lake.get("a") == 2


async def test_its_own_row_beneath_is_no_reason_to_refuse(
    lake: Lake, writer: Writer, running: Running
) -> None:
    await writer.put("warm", 9)
    held = lake.kv.hold("set_if", lake.row_key("a"), after=True)
    slow = running.start(writer.put("a", 1))
    await reached(held)
    await seal_branch(lake)  # the row is in the sealed token now
    held.open()
    assert await slow is False
    assert await lake.get("a") == 1
    partition = await lake.staging_rows()
    (row,) = await lake.kv.get_many(partition, [lake.row_key("a")])
    assert row is not None  # where rule 1 requires it


@pytest.mark.parametrize("between", ["nothing", "seal", "commit"])
async def test_a_repeated_request_gets_the_answer_of_its_first_attempt(
    lake: Lake, writer: Writer, between: str
) -> None:
    await writer.put("a", 1, operation="op", mtime_us=10)
    if between == "seal":
        await seal_branch(lake)
    if between == "commit":
        await lake.commit()
    assert await writer.put("a", 1, operation="op", mtime_us=20) is True
    packed = await lake.graveler.reading.lookup(lake.repository, "main", "a")
    assert judged_at(packed, 0) == mine(1, "op", 10)  # the first attempt's entry, and so its block
    assert await writer.refused("a", 2) is Reason.PRECONDITION_FAILED


async def test_another_content_is_another_operation(lake: Lake, writer: Writer) -> None:
    await writer.put("a", 1, operation="op")
    with pytest.raises(TarnError) as caught:
        await writer.put("a", 2, operation="op")
    assert caught.value.reason is Reason.PRECONDITION_FAILED


async def test_a_repeat_of_an_overwritten_write_is_judged_anew(lake: Lake, writer: Writer) -> None:
    await writer.put("a", 1, operation="op")
    await lake.delete("a")
    assert await writer.put("a", 1, operation="op", mtime_us=20) is False
    await lake.put("a", 7)
    with pytest.raises(TarnError) as caught:
        await writer.put("a", 1, operation="op", mtime_us=30)
    assert caught.value.reason is Reason.PRECONDITION_FAILED


async def test_two_attempts_at_once_keep_the_block_of_each_row_that_was_written(
    lake: Lake, writer: Writer, rival: Writer, running: Running
) -> None:
    """The first attempt's row is in a sealed token and may be committed, so the second is not just a repetition."""
    await writer.put("warm", 9)
    held = lake.kv.hold("set_if", lake.row_key("a"))
    slow = running.start(writer.put("a", 1, operation="op", mtime_us=10))
    await reached(held)
    await seal_branch(lake)
    assert await rival.put("a", 1, operation="op", mtime_us=20) is False
    held.open()
    assert await slow is False


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_is_settled(lake: Lake, writer: Writer, applied: bool) -> None:
    await writer.put("warm", 9)
    lake.kv.lose("set_if", lake.row_key("a"), applied=applied)
    if applied:
        assert await writer.put("a", 1) is False
    else:  # it may still arrive
        with pytest.raises(OutcomeUnknownError):
            await writer.put("a", 1)
    assert await lake.get("a") == (1 if applied else None)


async def test_a_branch_that_is_sealed_again_and_again_is_no_refusal(
    lake: Lake,
    writer: Writer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await writer.put("warm", 9)
    set_if = lake.kv.set_if

    async def seal_after(partition: object, key: bytes, *rest: object, **named: object) -> object:
        done = await set_if(partition, key, *rest, **named)  # type: ignore[arg-type]
        if key == lake.row_key("a"):
            await seal_branch(lake)
        return done

    monkeypatch.setattr(lake.kv, "set_if", seal_after)
    with pytest.raises(OutcomeUnknownError):
        await writer.put("a", 1)


async def test_a_write_does_not_leak_into_a_re_created_branch(
    lake: Lake, writer: Writer, running: Running
) -> None:
    await writer.put("warm", 9)
    branches = lake.graveler.branches
    commit_id = (await branches.fresh(lake.main)).branch.commit_id
    held = lake.kv.hold("get_many", lake.row_key("a"))
    slow = running.start(writer.put("a", 1))
    await reached(held)
    await branches.delete(lake.main, keep_tokens)
    await branches.create(lake.main, commit_id)
    held.open()
    with pytest.raises(TarnError) as caught:
        await slow
    assert caught.value.reason is Reason.BRANCH_NOT_FOUND
    assert await lake.get("a") is None


async def test_an_operation_without_a_name_is_refused(lake: Lake) -> None:
    with pytest.raises(TarnError) as caught:
        await lake.graveler.conditional.stage(lake.main, "a", entry(1), NEW)
    assert caught.value.kind is Kind.INVALID


async def test_a_completion_under_a_new_claim_meets_the_row_of_a_dead_one(lake: Lake) -> None:
    uploads = lake.graveler.uploads
    new = NewUpload(MAIN, "a", b"", "ann", "", is_full_object_checksum=False)
    upload_id = (await uploads.create(lake.repository, new)).upload_id
    first = await uploads.begin_complete(lake.repository, upload_id, b"m")
    packed = mine(1, upload_id, 10)
    # The first claimant staged its object and died before it recorded the answer.
    await lake.graveler.conditional.stage(lake.main, "a", packed, NEW)
    lake.clock.advance(301)
    second = await uploads.begin_complete(lake.repository, upload_id, b"m")
    assert second.op_id != first.op_id
    again = mine(1, upload_id, 20)
    await uploads.finish_complete(lake.repository, upload_id, second.op_id, again, NEW)
    assert await lake.get("a") == 1
