"""The branch protocol, one interleaving at a time (docs/design/protocol.md).

Each test plays the race that a rule prevents. Without the rule's guard the test fails.
"""

import asyncio
from typing import Any

import pytest
from lake import Lake, Replicas, Running, entry, keep_tokens, reached
from tests.support.at_once import BesideKv
from tests.support.faults.gates import GatedKv

from tarn.core.branch import seal
from tarn.core.entry import TOMBSTONE
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.mem import MemKv
from tarn.kv.port import Group, OutcomeUnknownError
from tarn_graveler.branch.handle import BranchHandle, claims_nothing
from tarn_graveler.graph.walk import Span

LIMIT_SECONDS = 5.0


@pytest.fixture(params=[GatedKv, BesideKv], ids=["any store", "a store that tells with a write"])
def replicas(replicas: Replicas, request: pytest.FixtureRequest) -> Replicas:
    """Each race is played on a store whose writes tell of the branch, too."""
    replicas.kv = request.param(MemKv())
    return replicas


async def test_a_staged_entry_can_be_read_and_listed_before_and_after_a_commit(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.put("b", 2)
    assert await lake.get("a") == 1
    made = await lake.commit()
    assert (made.built.added, made.built.updated, made.built.removed) == (2, 0, 0)
    assert await lake.get("a") == 1
    assert await lake.get("b", made.commit_id[:12]) == 2
    await lake.delete("a")
    assert await lake.get("a") is None
    assert await lake.get("a", made.commit_id) == 1
    again = await lake.commit()
    assert again.commit.parents == (made.commit_id,)
    assert await lake.get("a", "main@") is None
    assert await lake.get("a", "main~1") == 1


async def test_rule_1_a_write_that_met_a_seal_is_made_again_on_the_new_token(
    lake: Lake, running: Running
) -> None:
    await lake.put("warm", 0)
    await lake.put("x", 1)
    held = lake.kv.hold("set_many", lake.row_key("late"))
    writer = running.start(lake.put("late", 7))
    await reached(held)
    await lake.commit()  # seals and scans the token that the row is sent to
    held.open()
    await writer
    await lake.drop_everything_removed()
    assert await lake.get("late") == 7
    await lake.commit()
    assert await lake.get("late", "main@") == 7


async def test_rule_1_the_record_is_read_after_the_row_is_durable_or_in_the_same_step(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("warm", 0)
    written = lake.kv.hold("set_many", lake.row_key("x"), after=True)
    writer = running.start(lake.put("x", 1))
    await reached(written)
    reads_before = len(lake.kv.calls)
    written.open()
    await writer
    after = lake.kv.calls[reads_before:]
    is_told = isinstance(lake.kv, BesideKv) and lake.kv.told[-1]
    assert is_told or any(operation == "get_many" for operation, _ in after)


async def test_rule_1_a_recheck_never_joins_a_read_that_was_sent_before(
    lake: Lake, running: Running
) -> None:
    await lake.put("warm", 0)
    older = lake.kv.hold("get_many", lake.branch_key, after=True)
    reader = running.start(lake.graveler.branches.fresh(lake.main))
    await reached(older)
    # The older read returns the record before the seal. A re-check must not use it.
    row = lake.kv.hold("set_many", lake.row_key("x"))
    writer = running.start(lake.put("x", 1))
    await reached(row)
    await lake.commit()
    row.open()
    for _ in range(20):
        await asyncio.sleep(0)
    older.open()
    await reader
    await writer
    await lake.drop_everything_removed()
    assert await lake.get("x") == 1


async def test_rule_1_out_of_attempts_is_an_unknown_outcome_not_a_failure(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    branches = lake.graveler.branches
    await lake.put("warm", 0)
    run = lake.kv._run

    async def seal_before(operation: str, *call: Any) -> object:
        if operation == "set_many":
            token = branches.new_token()
            await BranchHandle(branches, lake.main).change(
                lambda b, op: seal(b, token, op), claims_nothing
            )
        return await run(operation, *call)

    monkeypatch.setattr(lake.kv, "_run", seal_before)
    with pytest.raises(OutcomeUnknownError):
        await lake.put("x", 1)


async def test_a_write_does_not_leak_into_a_re_created_branch(lake: Lake, running: Running) -> None:
    branches = lake.graveler.branches
    commit_id = (await branches.fresh(lake.main)).branch.commit_id
    lake.clock.advance(3)  # nothing cached: the write pins the incarnation that it reads afresh
    held = lake.kv.hold("set_many", lake.row_key("x"))
    writer = running.start(lake.put("x", 1))
    await reached(held)
    await branches.delete(lake.main, keep_tokens)
    await branches.create(lake.main, commit_id)
    held.open()
    with pytest.raises(OutcomeUnknownError):
        await writer
    assert await lake.get("x") is None


async def test_a_stale_cache_does_not_hide_a_re_created_branch(lake: Lake, other: Lake) -> None:
    await other.put("a", 1)
    branches = lake.graveler.branches
    commit_id = (await branches.fresh(lake.main)).branch.commit_id
    await branches.delete(lake.main, keep_tokens)
    await branches.create(lake.main, commit_id)
    await other.put("b", 2)
    assert await lake.get("b") == 2
    assert await other.get("a") is None


async def test_a_write_meets_the_deletion_of_its_repository(lake: Lake, other: Lake) -> None:
    await other.put("a", 1)
    await lake.graveler.repositories.mark_deleted(lake.repository)
    await lake.graveler.branches.mark_deleted(lake.main)
    with pytest.raises(OutcomeUnknownError):
        await other.put(
            "b", 2
        )  # with a stale record: the row is written, then the re-check reads the mark
    with pytest.raises(TarnError) as raised:
        await other.put("b", 2)
    assert raised.value.kind is Kind.NOT_FOUND


async def test_rule_2_a_reader_with_a_stale_record_sees_what_was_committed_meanwhile(
    lake: Lake, other: Lake
) -> None:
    await lake.put("x", 1)
    assert await other.get("x") == 1  # caches the record
    await lake.commit()
    await lake.drop_everything_removed()
    lake.clock.advance(-lake.clock.monotonic())  # the other replica's cache has its greatest age
    assert await other.get("x") == 1


async def test_rule_2_a_slow_read_is_not_trusted_after_the_drop_delay(
    lake: Lake, running: Running
) -> None:
    await lake.put("x", 1)
    assert await lake.get("x") == 1
    held = lake.kv.hold("get_many", lake.row_key("x"))
    reader = running.start(lake.get("x"))
    await reached(held)
    await lake.commit()
    await lake.drop_everything_removed()
    held.open()
    assert await reader == 1


async def test_rule_2_a_slow_read_by_a_fresh_record_is_not_trusted_after_the_drop_delay_either(
    lake: Lake, running: Running
) -> None:
    await lake.put("x", 1)
    lake.clock.advance(3)  # nothing cached
    held = lake.kv.hold("get_many", lake.row_key("x"))
    reader = running.start(lake.get("x"))
    await reached(held)
    await lake.commit()
    await lake.drop_everything_removed()
    held.open()
    assert await reader == 1


async def test_rule_3_a_delete_verifies_the_record_after_its_reads(
    lake: Lake, other: Lake, running: Running
) -> None:
    """The delete reads an empty token of a stale record and must not conclude "nothing there"."""
    held = lake.kv.hold("get_many", lake.row_key("x"))
    deleter = running.start(lake.delete("x"))
    await reached(held)
    await other.put("x", 1)
    await other.commit()
    await lake.drop_everything_removed()
    held.open()
    await deleter
    assert await lake.get("x") is None


async def test_rule_3_a_delete_verifies_the_whole_record_not_only_its_token(
    lake: Lake, other: Lake, running: Running
) -> None:
    """The staging token stays the same, but a commit removes the sealed token during the delete."""
    await lake.put("x", 1)
    sealed = lake.kv.hold("set_if", lake.branch_key, after=True)
    commit = running.start(other.commit())
    await reached(sealed)
    finish = lake.kv.hold("set_if", lake.branch_key)
    sealed.open()
    await reached(finish)
    staging_read = lake.kv.hold("get_many", lake.row_key("x"))
    deleter = running.start(lake.delete("x"))
    await reached(staging_read)
    sealed_read = lake.kv.hold("get_many", lake.row_key("x"))
    staging_read.open()
    await reached(sealed_read)
    finish.open()
    await commit
    await lake.drop_everything_removed()
    sealed_read.open()
    await deleter
    assert await lake.get("x") is None


async def test_rule_3_a_tombstone_that_met_a_seal_is_written_again(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("x", 1)
    await lake.commit()
    held = lake.kv.hold("set_many", lake.row_key("x"))
    deleter = running.start(lake.delete("x"))
    await reached(held)
    await other.put("y", 1)
    await other.commit()
    await lake.drop_everything_removed()
    held.open()
    await deleter
    assert await lake.get("x") is None
    await lake.drop_everything_removed()
    await lake.commit()
    assert await lake.get("x", "main@") is None


async def test_rule_3_a_tombstone_in_a_sealed_token_does_not_replace_a_new_one(
    lake: Lake, other: Lake, running: Running
) -> None:
    """The tombstone reached the sealed token after the commit had scanned it."""
    await lake.put("x", 1)
    scanned = lake.kv.hold("set_if", lake.branch_key)  # the seal
    commit = running.start(other.commit())
    await reached(scanned)
    token = await lake.staging_rows()
    finish = lake.kv.hold("set_if", lake.branch_key)  # the commit's last step
    scanned.open()
    await reached(finish)
    key = lake.row_key("x")
    await lake.kv.set_many(token, [Group(key, ((key, TOMBSTONE),))])
    assert await lake.delete("x") == [None]
    finish.open()
    await commit
    await lake.drop_everything_removed()
    assert await lake.get("x") is None


async def test_deletes_of_many_paths_have_their_own_outcomes_in_order(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.put("c", 1)
    assert await lake.delete("a", "b", "c", "a") == [None, None, None, None]
    assert [await lake.get(path) for path in "abc"] == [None, None, None]


async def test_deleting_nothing_writes_nothing(lake: Lake) -> None:
    await lake.delete("nothing")
    token = await lake.staging_rows()
    assert await lake.kv.scan(token, b"", None, 10) == []


async def test_rule_4_newer_seals_do_not_send_a_commit_back_to_work(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("a", 1)
    seal = lake.kv.hold("set_if", lake.branch_key, after=True)
    commit = running.start(lake.commit("first"))
    await reached(seal)
    finish = lake.kv.hold("set_if", lake.branch_key)
    seal.open()
    await reached(finish)
    await other.put("b", 2)
    from tarn.core.branch import seal as seal_record

    branches = other.graveler.branches
    token = branches.new_token()
    await BranchHandle(branches, lake.main).change(
        lambda b, op: seal_record(b, token, op), claims_nothing
    )
    scans = sum(operation == "scan_arrow" for operation, _ in lake.kv.calls)
    finish.open()
    made = await commit
    assert sum(operation == "scan_arrow" for operation, _ in lake.kv.calls) == scans
    assert await lake.get("a", made.commit_id) == 1
    await lake.drop_everything_removed()
    assert await lake.get("b") == 2
    await lake.commit("second")
    assert await lake.get("b", "main@") == 2


async def test_rule_4_two_commits_at_once_lose_nothing(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("a", 1)
    seal = lake.kv.hold("set_if", lake.branch_key, after=True)
    first = running.start(lake.commit("first"))
    await reached(seal)
    finish = lake.kv.hold("set_if", lake.branch_key)
    seal.open()
    await reached(finish)
    await other.put("b", 2)
    second = await other.commit("second")  # takes both tokens
    await lake.drop_everything_removed()
    finish.open()
    with pytest.raises(TarnError) as raised:
        await first
    assert raised.value.reason is Reason.NOTHING_TO_COMMIT
    assert raised.value.metadata["commit_id"] == second.commit_id
    assert [await lake.get(path, "main@") for path in "ab"] == [1, 2]


@pytest.mark.parametrize("applied", [True, False])
async def test_rule_8_a_lost_answer_to_the_seal_is_settled(lake: Lake, applied: bool) -> None:
    await lake.put("a", 1)
    lake.kv.lose("set_if", lake.branch_key, applied=applied)
    made = await lake.commit()
    assert await lake.get("a", made.commit_id) == 1
    branch = (await lake.graveler.branches.fresh(lake.main)).branch
    assert branch.sealed == ()


@pytest.mark.parametrize("applied", [True, False])
async def test_rule_8_a_lost_answer_to_the_finish_is_settled(
    lake: Lake, running: Running, applied: bool
) -> None:
    await lake.put("a", 1)
    seal = lake.kv.hold("set_if", lake.branch_key, after=True)
    commit = running.start(lake.commit())
    await reached(seal)
    lake.kv.lose("set_if", lake.branch_key, applied=applied)
    seal.open()
    made = await commit
    history = await lake.graveler.history.page(
        lake.repository,
        Span.of(made.commit_id),
        10,
    )
    assert len(history.commits) == 2
    await lake.drop_everything_removed()
    assert await lake.get("a", "main@") == 1


async def test_rule_5_a_removed_token_is_dropped_a_drop_delay_after_its_removal_was_seen(
    lake: Lake,
) -> None:
    await lake.put("a", 1)
    token = await lake.staging_rows()
    await lake.commit()
    lake.clock.advance(61)
    assert await lake.graveler.cleaner.drop_due() == 0  # checks: no record names it any more
    lake.clock.advance(60)
    assert await lake.graveler.cleaner.drop_due() == 0
    assert await lake.kv.scan(token, b"", None, 10) != []
    lake.clock.advance(60)
    assert await lake.graveler.cleaner.drop_due() == 1
    assert await lake.kv.scan(token, b"", None, 10) == []


async def test_rule_5_a_late_row_goes_with_the_second_drop(lake: Lake) -> None:
    await lake.put("a", 1)
    token = await lake.staging_rows()
    await lake.commit()
    await lake.drop_everything_removed()
    key = lake.row_key("zombie")
    await lake.kv.set_many(token, [Group(key, ((key, entry(9)),))])
    lake.clock.advance(3601)
    assert await lake.graveler.cleaner.drop_due() == 1
    assert await lake.kv.scan(token, b"", None, 10) == []
    lake.clock.advance(100_000)
    assert await lake.graveler.cleaner.drop_due() == 0


async def test_a_commit_without_changes_reports_so_and_does_not_seal(lake: Lake) -> None:
    before = (await lake.graveler.branches.fresh(lake.main)).branch
    with pytest.raises(TarnError) as raised:
        await lake.commit()
    assert raised.value.reason is Reason.NOTHING_TO_COMMIT
    after = (await lake.graveler.branches.fresh(lake.main)).branch
    assert after == before


async def test_a_commit_of_no_change_leaves_no_sealed_token_behind(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.commit()
    await lake.put("a", 1)
    with pytest.raises(TarnError) as raised:
        await lake.commit()
    assert raised.value.reason is Reason.NOTHING_TO_COMMIT
    branch = (await lake.graveler.branches.fresh(lake.main)).branch
    assert branch.sealed == ()
    assert await lake.get("a") == 1


async def test_an_empty_commit_is_made_when_asked_for(lake: Lake) -> None:
    made = await lake.commit(allow_empty=True)
    assert (await lake.graveler.refs.commit_of(lake.repository, "main")) == made.commit_id
