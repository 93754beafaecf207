"""Changes of a branch record that are applied after a settling read said that they were not.

A compare-and-set whose answer is lost may wait at a coordinator, where no read finds it. It is applied later, if
the record is still the expected one. So a repetition may find that it was applied.
"""

import pytest
from lake import Lake, keep_tokens

from tarn.core.branch import Branch, Token, TokenKind, seal, touch
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, TokenId
from tarn.kv.port import OutcomeUnknownError
from tarn.kv.records import decode_branch
from tarn_graveler.records.settling import Attempts


async def record(lake: Lake) -> Branch:
    return (await lake.graveler.branches.fresh(lake.main)).branch


async def waiting(lake: Lake) -> list[str]:
    """Returns the partitions that the cleaner will check or drop within two drop delays."""
    lake.clock.advance(121)
    one_pass = await lake.graveler.cleaner._list.begin()
    return [drop.partition.name async for _, drop in one_pass.due()]


async def test_a_late_seal_is_taken_for_the_seal_and_seals_no_token_twice(lake: Lake) -> None:
    await lake.put("x", 1)
    late = lake.kv.delay(lake.branch_key)
    made = await lake.commit()
    assert late.landed
    assert made.built.added == 1
    branch = await record(lake)
    ids = [token.token_id for token in branch.tokens]
    assert len(ids) == len(set(ids))
    await lake.put("y", 2)
    await lake.drop_everything_removed()
    assert await lake.get("y") == 2
    assert await lake.get("x", "main@") == 1


async def test_no_record_that_is_ever_stored_names_a_token_twice(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[Branch] = []
    set_if = lake.kv.set_if

    async def watched(*args: object, **named: object) -> object:
        if args[1] == lake.branch_key:
            stored.append(decode_branch(args[2]))  # type: ignore[arg-type]
        return await set_if(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(lake.kv, "set_if", watched)
    for number in range(3):
        await lake.put("x", number)
        lake.kv.delay(lake.branch_key)
        await lake.commit()
    assert len(stored) >= 9  # seal, its repetition, finish
    for branch in stored:
        ids = [token.token_id for token in branch.tokens]
        assert len(ids) == len(set(ids))


async def test_a_commit_recognises_its_own_finish_that_came_late(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.put("x", 1)
    token = (await lake.staging_rows()).name
    set_if, changes = lake.kv.set_if, 0

    async def delay_second(*args: object, **named: object) -> object:
        nonlocal changes
        if args[1] == lake.branch_key:
            changes += 1
            if changes == 2:
                lake.kv.delay(lake.branch_key)
        return await set_if(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(lake.kv, "set_if", delay_second)
    made = await lake.commit("mine")
    head = await record(lake)
    assert head.commit_id == made.commit_id
    assert (await lake.graveler.commits.get(lake.repository, head.commit_id)).message == "mine"
    assert head.sealed == ()
    assert token in await waiting(lake)


async def test_a_late_finish_under_a_later_refusal_is_an_unknown_outcome(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finish waits in its queue and the drop list is unavailable, so the commit may still be made."""
    await lake.put("x", 1)
    announce, count = lake.graveler.drops.announce, 0

    async def refuse_second(*args: object) -> None:
        nonlocal count
        count += 1
        if count == 1:
            lake.kv.delay(lake.branch_key)
            return await announce(*args)  # type: ignore[arg-type]
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the drop list is away")

    monkeypatch.setattr(lake.graveler.drops, "announce", refuse_second)
    with pytest.raises(OutcomeUnknownError):
        await lake.commit()


def base() -> Branch:
    token = Token(TokenId("first"), TokenKind.PLAIN, 4, 0)
    return Branch(b"life", token, (), CommitId("c0"), 0)


def changed(branch: Branch, number: int) -> Branch:
    return seal(branch, Token(TokenId(f"t{number}"), TokenKind.PLAIN, 4, 0), b"op%d" % number)


def written(op_id: bytes) -> Branch:
    return touch(base(), op_id)


def test_attempts_wait_while_the_record_is_unchanged_and_are_decided_by_any_change() -> None:
    attempts = Attempts()
    attempts.add(base(), written(b"mine"))
    assert attempts.judge(base()) is None
    assert attempts.is_pending
    assert attempts.judge(changed(base(), 1)) is None
    assert not attempts.is_pending


def test_an_earlier_attempt_is_found_in_the_record_that_refused_a_later_one() -> None:
    attempts = Attempts()
    attempts.add(base(), written(b"op1"))
    attempts.add(base(), written(b"op2"))
    assert attempts.judge(changed(base(), 1)) == (base(), written(b"op1"))
    assert not attempts.is_pending


def test_attempts_that_the_record_has_forgotten_are_unknown() -> None:
    attempts = Attempts()
    attempts.add(changed(base(), 0), written(b"mine"))
    current = changed(base(), 0)
    for number in range(1, 10):
        current = changed(current, number)
    with pytest.raises(OutcomeUnknownError):
        attempts.judge(current)


def test_no_refusal_is_told_while_an_attempt_is_pending() -> None:
    attempts = Attempts()
    refused = TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "away")
    with pytest.raises(TarnError) as sure, attempts.unknown_if_pending():
        raise refused
    assert sure.value.kind is Kind.UNAVAILABLE
    attempts.add(base(), written(b"mine"))
    with pytest.raises(OutcomeUnknownError), attempts.unknown_if_pending():
        raise refused


async def test_a_finish_whose_answer_and_settling_read_are_lost_is_found_in_the_history(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await lake.put("x", 1)
    set_if, get_many, changes = lake.kv.set_if, lake.kv.get_many, 0

    async def lose_second(*args: object, **named: object) -> object:
        nonlocal changes
        changes += args[1] == lake.branch_key
        done = await set_if(*args, **named)  # type: ignore[arg-type]
        if args[1] == lake.branch_key and changes == 2:
            raise OutcomeUnknownError("no answer")
        return done

    async def refuse_settling(*args: object, settle: bool = False) -> object:
        if settle:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no quorum")
        return await get_many(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(lake.kv, "set_if", lose_second)
    monkeypatch.setattr(lake.kv, "get_many", refuse_settling)
    made = await lake.commit("mine")
    assert (await record(lake)).commit_id == made.commit_id


async def test_a_pending_finish_of_a_branch_that_is_deleted_is_an_unknown_outcome(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await lake.put("x", 1)
    set_if, changes = lake.kv.set_if, 0

    async def delay_second_and_delete(*args: object, **named: object) -> object:
        nonlocal changes
        changes += args[1] == lake.branch_key
        if args[1] == lake.branch_key and changes == 2:
            lake.kv.delay(lake.branch_key)
            try:
                return await set_if(*args, **named)  # type: ignore[arg-type]
            finally:
                await lake.graveler.branches.delete(lake.main, keep_tokens)
        return await set_if(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(lake.kv, "set_if", delay_second_and_delete)
    with pytest.raises(OutcomeUnknownError):
        await lake.commit()
