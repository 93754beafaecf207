"""Merges beside writers, one interleaving at a time (docs/design/protocol.md, rules 7 and 9)."""

import asyncio
from dataclasses import replace

import pytest
from lake import MAIN, Lake, Running, reached
from lake_merges import (
    NEW,
    branch_with,
    head,
    history,
    hold_change,
    merge,
    mine,
    record,
    refused,
    uncommitted,
)
from lake_upload import Upload

from tarn.core.branch import Branch
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId, CommitId, MetarangeId
from tarn_graveler.branch.handle import BranchHandle, claims_nothing
from tarn_graveler.uploads.state import NewUpload


async def test_a_merge_brings_the_changes_of_the_source(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.put("b", 1)
    await lake.commit()
    source = await branch_with(lake, {"a": 2, "b": None, "c": 2})
    await lake.put("d", 1)
    before = (await lake.commit()).commit_id
    new = await merge(lake, source)
    assert await head(lake) == new.commit_id
    assert new.commit.parents == (before, source)
    assert [await lake.get(path) for path in "abcd"] == [2, None, 2, 1]
    assert [await lake.get(path, "main@") for path in "abcd"] == [2, None, 2, 1]


async def test_uncommitted_changes_refuse_a_merge_and_stay(lake: Lake) -> None:
    source = await branch_with(lake, {"a": 2})
    await lake.put("x/1", 1)
    await lake.put("x/2", 1)
    with pytest.raises(TarnError, match="x/1, x/2") as caught:
        await merge(lake, source)
    assert caught.value.reason is Reason.BRANCH_DIRTY
    assert await lake.get("x/1") == 1
    assert (await lake.commit()).built.added == 2
    await merge(lake, source)
    assert [await lake.get(path, "main@") for path in ("a", "x/1", "x/2")] == [2, 1, 1]


async def test_a_delete_of_a_committed_path_is_an_uncommitted_change(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.commit()
    source = await branch_with(lake, {"b": 2})
    await lake.delete("a")
    with pytest.raises(TarnError) as caught:
        await merge(lake, source)
    assert caught.value.reason is Reason.BRANCH_DIRTY


async def test_refused_merges_add_no_layers(lake: Lake) -> None:
    source = await branch_with(lake, {"a": 2})
    for number in range(4):
        await lake.put(f"x{number}", 1)
        with pytest.raises(TarnError):
            await merge(lake, source)
    assert (await record(lake)).sealed == ()


async def test_rows_that_change_nothing_do_not_make_a_branch_dirty(lake: Lake) -> None:
    """Spark writes and deletes temporary files; a listing shows no trace of them, and a merge removes them."""
    source = await branch_with(lake, {"a": 2})
    await lake.put("_temporary/1", 1)
    await lake.delete("_temporary/1")
    await merge(lake, source)
    assert len((await record(lake)).sealed) == 1, "only the token that the merge replaced"
    assert await uncommitted(lake) == []


async def compact_to(lake: Lake, commit_id: CommitId, listing: MetarangeId) -> None:
    def compact(now: Branch, op_id: bytes) -> Branch:
        return replace(
            now,
            commit_id=commit_id,
            compacted_metarange_id=listing,
            recent_op_ids=(op_id, *now.recent_op_ids),
        )

    await BranchHandle(lake.graveler.branches, lake.main).change(compact, claims_nothing)


async def test_staged_rows_that_undo_the_sealed_ones_make_a_branch_clean(lake: Lake) -> None:
    source = await branch_with(lake, {"a": 2})
    await lake.put("x", 1)
    await lake.graveler.conditional.stage(
        lake.main, "y", mine(1, "create"), NEW
    )  # seals the row of x
    assert (await record(lake)).sealed
    await lake.delete("x", "y")
    await merge(lake, source)
    assert [await lake.get(path) for path in "axy"] == [2, None, None]


async def test_a_compacted_listing_that_differs_from_the_commit_makes_a_branch_dirty(
    lake: Lake,
) -> None:
    await lake.put("x", 1)
    first = await lake.commit()
    source = await branch_with(lake, {"a": 2})
    await lake.put("x", 2)
    second = await lake.commit()
    await compact_to(lake, first.commit_id, second.commit.metarange_id)
    with pytest.raises(TarnError, match="uncommitted changes: x") as caught:
        await merge(lake, source)
    assert caught.value.reason is Reason.BRANCH_DIRTY
    assert await lake.get("x") == 2
    await compact_to(lake, second.commit_id, second.commit.metarange_id)
    await merge(lake, source)
    assert [await lake.get("x", "main@"), await lake.get("a")] == [2, 2]
    assert (await record(lake)).compacted_metarange_id is None


async def test_conflicting_merges_do_not_pile_up_tokens_that_change_nothing(lake: Lake) -> None:
    source = await branch_with(lake, {"a": 2})
    await lake.put("a", 1)
    await lake.commit()
    for number in range(20):
        await lake.put(f"t{number}", 1)
        await lake.delete(f"t{number}")
        with pytest.raises(
            TarnError, match="1 path changed differently on both sides: a"
        ) as caught:
            await merge(lake, source)
        assert caught.value.reason is Reason.MERGE_CONFLICT
    assert len((await record(lake)).sealed) < 10
    assert await lake.get("a") == 1


@pytest.mark.parametrize("with_commit", [False, True])
async def test_a_conditional_write_over_what_a_merge_brought_is_not_acknowledged(
    lake: Lake, other: Lake, running: Running, with_commit: bool
) -> None:
    """It verified the record before the merge, and its row lands after it: no order explains two winners."""
    source = await branch_with(lake, {"p": 2})
    gate = lake.kv.hold("set_if", lake.row_key("p"))
    create = running.start(lake.graveler.conditional.stage(lake.main, "p", mine(1, "mine"), NEW))
    await reached(gate)
    await merge(other, source)
    check = lake.kv.hold("get_many", lake.branch_key)
    gate.open()
    await reached(check)
    if with_commit:  # its row goes over the merged object, and is no longer in a token
        await other.commit()
    check.open()
    assert await refused(create) is Reason.OUTCOME_UNKNOWN
    # A repetition by the client learns no more: the first row may lie over the merged object.
    again = lake.graveler.conditional.stage(lake.main, "p", mine(1, "mine"), NEW)
    assert await refused(again) is Reason.OUTCOME_UNKNOWN


async def test_a_conditional_write_that_began_while_the_last_step_of_a_merge_was_sent_is_not_acknowledged(
    lake: Lake, other: Lake, running: Running
) -> None:
    """Its time is later than that of the merge, which is read before the compare-and-set is sent."""
    source = await branch_with(lake, {"p": 2})
    first, last = hold_change(other, 1), hold_change(other, 3)
    merging = running.start(merge(other, source))
    await reached(first)
    # This seals: the merge is published over the newer seal, with a staging token that takes conditional writes.
    await lake.graveler.conditional.stage(lake.main, "q", mine(1, "q"), NEW)
    first.open()
    await reached(last)
    lake.clock.advance(10)
    gate = lake.kv.hold("set_if", lake.row_key("p"))
    row = mine(1, "mine", lake.clock.now_us())
    create = running.start(lake.graveler.conditional.stage(lake.main, "p", row, NEW))
    await reached(gate)
    last.open()
    await merging
    gate.open()
    assert await refused(create) is Reason.OUTCOME_UNKNOWN
    again = mine(1, "mine", lake.clock.now_us() + 1)
    repeated = lake.graveler.conditional.stage(lake.main, "p", again, NEW)
    assert await refused(repeated) is Reason.OUTCOME_UNKNOWN


async def test_a_repeated_conditional_write_counts_if_it_was_judged_after_the_merge(
    lake: Lake,
) -> None:
    source = await branch_with(lake, {"p": 2})
    await merge(lake, source)
    row = mine(1, "mine", lake.clock.now_us())
    assert await lake.graveler.conditional.stage(lake.main, "q", row, NEW) is False
    await lake.commit()
    later = mine(1, "mine", lake.clock.now_us() + 1)
    assert await lake.graveler.conditional.stage(lake.main, "q", later, NEW) is True


async def test_a_conditional_write_that_a_commit_met_needs_no_merge_to_doubt(
    lake: Lake, other: Lake, running: Running
) -> None:
    await merge(lake, await branch_with(lake, {"z": 2}))
    gate = lake.kv.hold("set_if", lake.row_key("p"), after=True)
    create = running.start(lake.graveler.conditional.stage(lake.main, "p", mine(1, "mine"), NEW))
    await reached(gate)
    await other.commit()
    gate.open()
    assert await create is False
    assert await lake.get("p") == 1


async def test_a_put_beside_a_merge_is_kept_on_top_of_it(
    lake: Lake, other: Lake, running: Running
) -> None:
    source = await branch_with(lake, {"p": 2, "q": 2})
    gate = lake.kv.hold("set_many", lake.row_key("p"))
    put = running.start(lake.put("p", 1))
    await reached(gate)
    await merge(other, source)
    gate.open()
    await put
    assert [await lake.get("p"), await lake.get("q")] == [1, 2]
    assert await uncommitted(lake) == ["p"]


async def test_a_row_that_is_acknowledged_after_the_seal_stays_uncommitted_on_top(
    lake: Lake, other: Lake, running: Running
) -> None:
    source = await branch_with(lake, {"p": 2, "q": 2})
    gate = hold_change(lake)
    merging = running.start(merge(other, source))
    await reached(gate)
    await lake.put("p", 1)  # acknowledged in the token that the merge is about to replace
    gate.open()
    await merging
    assert [await lake.get("p"), await lake.get("q")] == [1, 2]
    assert await uncommitted(lake) == ["p"]
    assert (await lake.commit()).built.updated == 1


async def test_a_merge_that_met_another_head_merges_again(
    lake: Lake, other: Lake, running: Running
) -> None:
    source = await branch_with(lake, {"p": 2})
    gate = hold_change(lake)
    merging = running.start(merge(other, source))
    await reached(gate)
    await lake.put("a", 1)
    made = await lake.commit()
    gate.open()
    new = await merging
    assert new.commit.parents == (made.commit_id, source)
    assert [await lake.get("a", "main@"), await lake.get("p", "main@")] == [1, 2]
    assert await history(lake) == [new.commit_id, made.commit_id, made.commit.parents[0]]


async def test_a_merge_that_met_newer_seals_is_published_over_them(
    lake: Lake, other: Lake, running: Running
) -> None:
    source = await branch_with(lake, {"p": 2})
    gate = hold_change(lake)
    merging = running.start(merge(other, source))
    await reached(gate)
    await lake.graveler.conditional.stage(lake.main, "q", mine(1, "q"), NEW)  # seals
    gate.open()
    new = await merging
    assert await head(lake) == new.commit_id
    assert await uncommitted(lake) == ["q"]
    assert [await lake.get("p"), await lake.get("q")] == [2, 1]


async def test_under_another_head_the_sealed_rows_are_judged_again(
    lake: Lake, other: Lake, running: Running
) -> None:
    """A put and its delete change nothing together. A commit takes the put; then the delete changes something."""
    source = await branch_with(lake, {"z": 2})
    first = lake.kv.hold("scan")
    merging = running.start(merge(other, source))
    await reached(first)
    look = lake.kv.hold("scan")
    first.open()
    await reached(look)  # it has found a clean branch, and read a record without sealed tokens
    await lake.put("p", 1)
    finish = hold_change(lake, 2)
    commit = running.start(lake.commit())  # it seals the put and is held before it publishes
    await reached(finish)
    await lake.delete("p")
    last = hold_change(lake, 2)
    look.open()
    await reached(last)  # it has sealed the delete and judged both tokens
    finish.open()
    await commit
    last.open()
    assert await refused(merging) is Reason.BRANCH_DIRTY
    assert await lake.get("p") is None, "an acknowledged delete is not lost"


async def test_merges_of_sixteen_branches_at_once_all_land(lake: Lake, other: Lake) -> None:
    sources = [await branch_with(lake, {f"p{n}": n + 1}, BranchId(f"b{n}")) for n in range(16)]
    lakes = (lake, other)
    async with asyncio.TaskGroup() as group:
        for number, source in enumerate(sources):
            group.create_task(merge(lakes[number % 2], source))
    assert [await lake.get(f"p{n}", "main@") for n in range(16)] == list(range(1, 17))
    assert await uncommitted(lake) == []
    # The clean tokens that they left are removed: none is a layer for ever.
    await lake.commit(allow_empty=True)
    assert (await record(lake)).sealed == ()


@pytest.mark.parametrize("applied", [True, False])
async def test_a_merge_whose_answer_is_lost_is_made_once(lake: Lake, applied: bool) -> None:
    source = await branch_with(lake, {"p": 2})
    before = await head(lake)
    lake.kv.lose("set_if", lake.branch_key, applied=applied)
    new = await merge(lake, source)
    assert await history(lake) == [new.commit_id, before]
    assert await lake.get("p") == 2


async def test_a_merge_that_was_applied_late_is_recognised(lake: Lake) -> None:
    source = await branch_with(lake, {"p": 2})
    before = await head(lake)
    lake.kv.delay(lake.branch_key)
    new = await merge(lake, source)
    assert await history(lake) == [new.commit_id, before]


async def test_a_merge_drops_the_tokens_that_it_removes_and_no_other(lake: Lake) -> None:
    source = await branch_with(lake, {"p": 2})
    await lake.put("t", 1)
    token = await lake.staging_rows()
    await lake.delete("t")
    await merge(lake, source)
    await lake.put("kept", 1)
    await lake.drop_everything_removed()
    assert await lake.kv.scan(token, b"", b"\xff", 10) == []
    assert await lake.get("kept") == 1


# ---- completions


@pytest.mark.parametrize("with_commit", [False, True])
async def test_a_conditional_completion_over_what_a_merge_brought_is_not_acknowledged(
    lake: Lake, other: Lake, running: Running, with_commit: bool
) -> None:
    source = await branch_with(lake, {"k": 2})
    uploads = lake.graveler.uploads
    new = NewUpload(MAIN, "k", b"", "ann", "", is_full_object_checksum=False)
    made = await uploads.create(lake.repository, new)
    claim = await uploads.begin_complete(lake.repository, made.upload_id, bytes(32))
    upload = Upload(lake, made.upload_id, claim)
    gate = lake.kv.hold("set_if", lake.row_key("k"))
    completing = running.start(upload.finish(condition=NEW))
    await reached(gate)
    await merge(other, source)
    check = lake.kv.hold("get_many", lake.branch_key)
    gate.open()
    await reached(check)
    if with_commit:
        await other.commit()
    check.open()
    assert await refused(completing) is Reason.OUTCOME_UNKNOWN
    assert await refused(upload.finish(other, condition=NEW)) is Reason.OUTCOME_UNKNOWN


async def test_an_unconditional_completion_beside_a_merge_is_kept_on_top_of_it(
    lake: Lake, other: Lake, running: Running
) -> None:
    source = await branch_with(lake, {"k": 2})
    uploads = lake.graveler.uploads
    new = NewUpload(MAIN, "k", b"", "ann", "", is_full_object_checksum=False)
    made = await uploads.create(lake.repository, new)
    claim = await uploads.begin_complete(lake.repository, made.upload_id, bytes(32))
    upload = Upload(lake, made.upload_id, claim)
    gate = lake.kv.hold("set_many", lake.row_key("k"))
    completing = running.start(upload.finish())
    await reached(gate)
    await merge(other, source)
    gate.open()
    await completing
    assert await lake.get("k") == 1
    assert await uncommitted(lake) == ["k"]
