"""The reflog: every change of a head has one entry, also if answers are lost (docs/design/reflog.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from lake import MAIN, Lake, Replicas, Running, create_repository, keep_tokens, reached
from lake_merges import branch_with, head, hold_change, merge, record, refused

from tarn.core.branch import Branch
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import Cause, HeadChange, HeadOperation
from tarn.core.ids import BranchId, CommitId
from tarn.core.moments import iso_time
from tarn.core.reflog import OUTBOX_MAX
from tarn.kv.drop_records import ReflogOwner
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Group, OutcomeUnknownError, Partition
from tarn_graveler.branch.handle import BranchHandle, claims_nothing
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.records.branches import BranchVersion

DEV = BranchId("dev")


async def entries(lake: Lake, branch: BranchId = MAIN, page: int = 1000) -> list[HeadChange]:
    """All entries, newest first, read in pages of a size."""
    found: list[HeadChange] = []
    cursor = ""
    while True:
        read = await lake.graveler.reflog.page(lake.repository, branch, cursor, page)
        found += read.entries
        cursor = read.cursor
        if not cursor:
            return found


async def stored(lake: Lake, branch: BranchId = MAIN) -> list[bytes]:
    """The keys of the rows of a branch."""
    keys = lake.graveler.repositories.keys_of(lake.repository)
    prefix = keys.reflog_rows(branch)
    rows = await lake.kv.scan(keys.reflog, prefix, None, 1000)
    return [key for key, _ in rows if key.startswith(prefix)]


def operations(found: list[HeadChange]) -> list[str]:
    return [each.operation.value for each in found]


async def check_chain(lake: Lake, branch: BranchId = MAIN) -> list[HeadChange]:
    """Checks that each entry begins at the head with which the older one ended; returns them."""
    found = await entries(lake, branch)
    for newer, older in pairwise(found):
        assert newer.old_commit_id == older.new_commit_id
        assert newer.sequence == older.sequence + 1
        assert newer.time_us > older.time_us
        assert newer.old_since_us == older.time_us
    assert len({each.entry_id for each in found}) == len(found)
    return found


async def test_every_change_of_a_head_has_an_entry(lake: Lake) -> None:
    first = await head(lake)
    await lake.put("a", 1)
    second = (await lake.commit()).commit_id
    merged = (await merge(lake, await branch_with(lake, {"b": 1}))).commit_id
    new = NewHead(first, await lake.graveler.commits.get(lake.repository, first))
    await lake.graveler.moves.move_to(lake.main, new, merged, force=False, user_id="eve")
    await lake.put("c", 1)
    new = NewHead(second, await lake.graveler.commits.get(lake.repository, second))
    await lake.graveler.moves.move_to(lake.main, new, first, force=True, user_id="eve")
    found = await check_chain(lake)
    assert operations(found) == ["move", "move", "merge", "commit", "create"]
    assert [each.user_id for each in found] == ["eve", "eve", "ann", "ann", ""]
    assert [each.new_commit_id for each in found] == [second, first, merged, second, first]
    assert found[-1].old_commit_id is None
    incarnation = (await record(lake)).incarnation
    assert {each.incarnation for each in found} == {incarnation}


async def test_what_does_not_change_the_head_has_no_entry(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.graveler.moves.reset(lake.main)
    await lake.put("_temporary", 1)
    await lake.delete("_temporary")
    assert await refused(lake.commit()) is Reason.NOTHING_TO_COMMIT
    await BranchHandle(lake.graveler.branches, lake.main).seal()
    assert operations(await entries(lake)) == ["create"]


async def test_an_entry_leaves_the_outbox_only_after_its_row_is_durable(lake: Lake) -> None:
    for number in range(3):
        await lake.put("a", number)
        await lake.commit()
        outbox, rows = (await record(lake)).outbox, await stored(lake)
        assert (len(outbox), len(rows)) == (1, number + 1)
    await check_chain(lake)


async def test_a_change_is_not_made_if_the_row_before_it_cannot_be_written(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.put("a", 1)
    first = (await lake.commit()).commit_id
    await lake.put("a", 2)
    set_many = lake.kv.set_many
    for kind in (Kind.UNAVAILABLE, Kind.UNKNOWN_OUTCOME):

        async def fails(partition: Partition, groups: list[Group], kind: Kind = kind) -> Any:
            if partition.name.endswith("/reflog"):
                return [TarnError(kind, Reason.UNAVAILABLE, "no") for _ in groups]
            return await set_many(partition, groups)

        monkeypatch.setattr(lake.kv, "set_many", fails)
        with pytest.raises(TarnError) as caught:
            await lake.commit()
        assert caught.value.kind is Kind.UNAVAILABLE, "surely not made"
        assert await head(lake) == first
        with pytest.raises(TarnError):
            await lake.graveler.branches.delete(lake.main, keep_tokens)
        assert await head(lake) == first
    monkeypatch.setattr(lake.kv, "set_many", set_many)
    await lake.commit()
    assert operations(await check_chain(lake)) == ["commit", "commit", "create"]


@pytest.mark.parametrize("applied", [True, False])
async def test_a_commit_whose_answers_are_lost_has_one_entry(
    lake: Lake, applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both compare-and-sets of the commit: its seal and its last step."""
    for number in (1, 2):
        await lake.put("a", number)
        set_if, count = lake.kv.set_if, 0

        async def lossy(*args: Any, number: int = number, set_if: Any = set_if) -> Any:
            nonlocal count
            if args[1] == lake.branch_key:
                count += 1
                if count == number:
                    lake.kv.lose("set_if", lake.branch_key, applied=applied)
            return await set_if(*args)

        monkeypatch.setattr(lake.kv, "set_if", lossy)
        made = await lake.commit()
        monkeypatch.setattr(lake.kv, "set_if", set_if)
        found = await check_chain(lake)
        assert found[0].new_commit_id == made.commit_id
        assert len(found) == 1 + number


async def test_a_commit_that_comes_late_has_one_entry(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last step is applied after a settling read said that it was not."""
    await lake.put("x", 1)
    set_if, changes = lake.kv.set_if, 0

    async def delay_second(*args: Any, **named: Any) -> Any:
        nonlocal changes
        if args[1] == lake.branch_key:
            changes += 1
            if changes == 2:
                lake.kv.delay(lake.branch_key)
        return await set_if(*args, **named)

    monkeypatch.setattr(lake.kv, "set_if", delay_second)
    made = await lake.commit()
    found = await check_chain(lake)
    assert [each.new_commit_id for each in found[:-1]] == [made.commit_id]


async def test_a_commit_that_was_not_made_has_no_entry(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("a", 1)
    gate = hold_change(lake, 2)
    losing = running.start(lake.commit("losing"))
    await reached(gate)
    await other.graveler.moves.reset(other.main)
    gate.open()
    assert await refused(losing) is Reason.BRANCH_RESET
    assert operations(await entries(lake)) == ["create"]


async def test_another_replica_reads_an_entry_of_which_only_the_outbox_exists(
    lake: Lake, other: Lake
) -> None:
    """The process that made the commit may die before it writes the row."""
    await lake.put("a", 1)
    made = await lake.commit()
    assert len(await stored(lake)) == 1, "the creation's"
    assert [each.new_commit_id for each in await entries(other)][:1] == [made.commit_id]
    await other.put("a", 2)
    await other.commit()
    assert len(await stored(lake)) == 2
    assert operations(await check_chain(lake)) == ["commit", "commit", "create"]


async def test_a_lost_answer_to_a_row_does_not_fail_the_next_change(lake: Lake) -> None:
    for applied in (True, False):
        await lake.put("a", int(applied))
        await lake.commit()
        row = RepositoryKeys.reflog_row(MAIN, (await record(lake)).outbox[0])
        lake.kv.lose("set_many", row, applied=applied)
        await lake.put("b", int(applied))
        await lake.commit()
    assert len(await check_chain(lake)) == 5


async def test_an_outbox_is_bounded(lake: Lake) -> None:
    """Changes that do not write the rows themselves: the change that would exceed the bound does."""
    commits = [await head(lake)]
    for number in range(3 * OUTBOX_MAX):
        await lake.put("a", number)
        commits.append((await lake.commit()).commit_id)
    handle = BranchHandle(lake.graveler.branches, lake.main)
    for commit_id in commits:

        def decide(now: Branch, op_id: bytes, to: CommitId = commit_id) -> Branch:
            return replace(now, commit_id=to, recent_op_ids=(op_id, *now.recent_op_ids)[:8])

        await handle.change(decide, claims_nothing)
        assert len((await record(lake)).outbox) <= OUTBOX_MAX
    found = await check_chain(lake)
    assert len(found) == 1 + 2 * (len(commits) - 1) + 1


@pytest.mark.parametrize("page", [1, 2, 3])
async def test_pages_hold_every_entry_once(lake: Lake, page: int) -> None:
    for number in range(6):
        await lake.put("a", number)
        await lake.commit()
    assert await entries(lake, page=page) == await check_chain(lake)


@pytest.mark.parametrize("operation", ["get_many", "scan"])
async def test_a_reader_beside_commits_sees_the_reflog_of_one_moment(
    lake: Lake, other: Lake, running: Running, operation: str
) -> None:
    """It waits between its read of the record and its read of the rows, or after both."""
    await lake.put("a", 0)
    made = (await lake.commit()).commit_id
    key = lake.branch_key if operation == "get_many" else None
    gate = lake.kv.hold(operation, key, after=True)
    reading = running.start(entries(other))
    await reached(gate)
    for number in (1, 2):
        await lake.put("a", number)
        await lake.commit()
    gate.open()
    found = await reading
    assert operations(found) == ["commit", "create"]
    assert found[0].new_commit_id == made


# ---- deletion


async def test_a_deletion_keeps_the_entries_of_the_outbox(lake: Lake) -> None:
    source = await branch_with(lake, {"a": 1}, DEV)
    await lake.graveler.branches.delete(
        lake.branch(DEV), keep_tokens, Cause(HeadOperation.DELETE, "eve")
    )
    found = await check_chain(lake, DEV)
    assert operations(found) == ["delete", "commit", "create"]
    assert (found[0].old_commit_id, found[0].new_commit_id) == (source, None)
    assert found[0].user_id == "eve"


async def test_a_deletion_that_was_not_made_does_not_count(
    lake: Lake, other: Lake, running: Running
) -> None:
    """Its row is written before the record is removed; a commit comes between the two."""
    await lake.put("a", 1)
    await lake.commit()
    gate = lake.kv.hold("delete_if", lake.branch_key)
    deleting = running.start(lake.graveler.branches.delete(lake.main, keep_tokens))
    await reached(gate)
    assert operations(await entries(lake)) == ["commit", "create"], "not removed yet"
    await other.put("a", 2)
    await other.commit()
    assert operations(await check_chain(lake)) == ["commit", "commit", "create"]
    gate.open()
    await deleting
    found = await check_chain(lake)
    assert operations(found) == ["delete", "commit", "commit", "create"], "its second attempt"
    assert len([key for key in await stored(lake) if b"/1/" in key]) == 2


async def test_a_deletion_whose_answer_is_lost_counts_if_it_was_made(lake: Lake) -> None:
    for applied, expected in ((False, ["create"]), (True, ["delete", "create"])):
        lake.kv.lose("delete_if", lake.branch_key, applied=applied)
        with pytest.raises(OutcomeUnknownError):
            await lake.graveler.branches.delete(lake.main, keep_tokens)
        refs = lake.graveler.repositories.keys_of(lake.repository).refs
        await lake.kv.get_many(refs, [lake.branch_key], settle=True)
        assert operations(await check_chain(lake)) == expected


@pytest.mark.parametrize("page", [1, 2, 1000])
async def test_a_name_continues_the_reflog_of_its_former_branches(lake: Lake, page: int) -> None:
    first = await head(lake)
    for number in range(2):
        await lake.put("a", number)
        await lake.commit()
        await lake.graveler.branches.delete(lake.main, keep_tokens)
        await lake.graveler.branches.create(lake.main, first)
    found = await check_chain(lake)
    one = ["create", "delete", "commit"]
    assert operations(found) == [*one, *one, "create"]
    assert len({each.incarnation for each in found}) == 3
    assert await entries(lake, page=page) == found


async def test_attempts_at_one_deletion_count_once(lake: Lake) -> None:
    for _ in range(3):
        lake.kv.lose("delete_if", lake.branch_key, applied=False)
        with pytest.raises(OutcomeUnknownError):
            await lake.graveler.branches.delete(lake.main, keep_tokens)
    await lake.graveler.branches.delete(lake.main, keep_tokens)
    assert len(await stored(lake)) == 5
    await lake.graveler.branches.create(lake.main, CommitId("0" * 64))
    for page in (1, 1000):
        assert operations(await entries(lake, page=page)) == ["create", "delete", "create"]


@pytest.mark.parametrize("ids", [(b"a", b"b"), (b"b", b"a")])
async def test_the_attempt_that_removed_a_branch_counts_not_one_that_failed_long_before(
    lake: Lake,
    ids: tuple[bytes, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The failed one is expired when the branch is deleted; both have the same sequence."""
    branches, last = lake.graveler.branches, await head(lake)
    lake.kv.lose("delete_if", lake.branch_key, applied=False)
    monkeypatch.setattr(branches, "new_op_id", lambda: ids[0])
    with pytest.raises(OutcomeUnknownError):
        await branches.delete(lake.main, keep_tokens, Cause(HeadOperation.DELETE, "eve"))
    lake.clock.advance(91 * 86_400)
    alive = lake.clock.now_us()
    lake.clock.advance(60)
    monkeypatch.setattr(branches, "new_op_id", lambda: ids[1])
    await branches.delete(lake.main, keep_tokens, Cause(HeadOperation.DELETE, "dan"))
    (deletion,) = await entries(lake)
    assert deletion.user_id == "dan"
    assert await lake.graveler.reflog.deletion(lake.repository, MAIN) == deletion
    found, _ = await lake.graveler.reflog.deleted(lake.repository, "", "", 10)
    assert [each.deletion for each in found] == [deletion]
    ref = f"main@{{{iso_time(alive)}}}"
    assert await lake.graveler.refs.commit_of(lake.repository, ref) == last


async def test_a_deletion_does_not_reach_the_next_branch_of_the_name(
    lake: Lake, other: Lake, running: Running
) -> None:
    first = await head(lake)
    gate = lake.kv.hold("delete_if", lake.branch_key)
    deleting = running.start(lake.graveler.branches.delete(lake.main, keep_tokens))
    await reached(gate)
    await other.graveler.branches.delete(other.main, keep_tokens)
    await other.graveler.branches.create(other.main, first)
    await other.put("a", 1)
    gate.open()
    assert await refused(deleting) is Reason.BRANCH_NOT_FOUND
    assert await other.get("a") == 1
    assert operations(await check_chain(lake)) == ["create", "delete", "create"]


@pytest.mark.parametrize("page", [1, 1000])
async def test_a_deletion_whose_row_landed_after_the_next_creation_does_not_count(
    lake: Lake, other: Lake, running: Running, page: int
) -> None:
    """Its clock is ahead of that of the replica that deletes the branch and creates the next one."""
    first = await head(lake)
    lake.clock.advance(10)
    gate = lake.kv.hold("set_many")
    deleting = running.start(lake.graveler.branches.delete(lake.main, keep_tokens))
    await reached(gate)
    lake.clock.advance(-4)
    await other.graveler.branches.delete(other.main, keep_tokens)
    await other.graveler.branches.create(other.main, first)
    gate.open()
    assert await refused(deleting) is Reason.BRANCH_NOT_FOUND
    found = await check_chain(lake)
    assert operations(found) == ["create", "delete", "create"]
    assert await entries(lake, page=page) == found


async def test_a_restore_is_refused_if_the_name_had_another_branch_since(lake: Lake) -> None:
    branches, first = lake.graveler.branches, await head(lake)
    await branches.delete(lake.main, keep_tokens)
    deletion = await lake.graveler.reflog.deletion(lake.repository, MAIN)
    assert deletion is not None
    await branches.create(lake.main, first, undone=deletion)
    await lake.put("a", 1)
    await lake.commit()
    await branches.delete(lake.main, keep_tokens)
    again = branches.create(lake.main, first, undone=deletion)
    assert await refused(again) is Reason.REF_MOVED
    assert operations(await check_chain(lake))[0] == "delete"


async def test_a_creation_reads_the_former_reflog_when_it_cannot_change_any_more(
    lake: Lake, other: Lake, running: Running
) -> None:
    """A creation begins while the branch still exists; the branch then takes a commit and is deleted."""
    first = await head(lake)
    gate = lake.kv.hold("get_many", lake.branch_key)
    creating = running.start(lake.graveler.branches.create(lake.main, first))
    await reached(gate)
    await other.put("a", 1)
    await other.commit()
    await other.graveler.branches.delete(other.main, keep_tokens)
    gate.open()
    await creating
    assert operations(await check_chain(lake)) == ["create", "delete", "commit", "create"]


async def test_times_increase_whatever_the_clocks_of_the_replicas_say(lake: Lake) -> None:
    for back in (0, 10, 0, 5):
        lake.clock.advance(-back)
        await lake.put("a", lake.clock.now_us() % 97 + back)
        await lake.commit(allow_empty=True)
    await lake.graveler.branches.delete(lake.main, keep_tokens)
    lake.clock.advance(-100)
    await lake.graveler.branches.create(lake.main, CommitId("0" * 64))
    assert len(await check_chain(lake)) == 7


async def test_a_branch_of_an_older_version_begins_its_reflog_with_its_next_change(
    lake: Lake,
) -> None:
    refs = lake.graveler.repositories.keys_of(lake.repository).refs
    version: BranchVersion = await lake.graveler.branches.fresh(lake.main)
    from tarn.kv.records import encode_branch

    old = replace(version.branch, outbox=(), head_sequence=0, head_time_us=0)
    key = RepositoryKeys.branch(MAIN)
    await lake.kv.set_if(refs, key, encode_branch(old), version.predicate)
    assert await entries(lake) == []
    await lake.put("a", 1)
    await lake.commit()
    (only,) = await entries(lake)
    assert (only.sequence, only.old_since_us) == (1, 0)
    assert only.old_commit_id == old.commit_id


async def test_reflogs_of_a_deleted_repository_are_not_read_as_those_of_the_next(
    replicas: Replicas,
) -> None:
    async with replicas.replica() as graveler:
        one = await create_repository(graveler, "lake")
        two = await create_repository(graveler, "lake2")
        page = await graveler.reflog.page(one, MAIN, "", 10)
        other = await graveler.reflog.page(two, MAIN, "", 10)
        assert not {e.entry_id for e in page.entries} & {e.entry_id for e in other.entries}


async def test_an_expiry_that_stops_half_way_forgets_no_row_of_the_index(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.graveler.branches.delete(lake.main, keep_tokens)
    lake.clock.advance(91 * 86_400)
    of = lake.graveler.repositories.keys_of(lake.repository)
    delete_many = lake.kv.delete_many

    async def stops(partition: Partition, keys: Sequence[bytes]) -> None:
        await delete_many(partition, keys[:1])
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no")

    expire = lake.graveler.branches._reflog.expire
    for _ in range(2):
        monkeypatch.setattr(lake.kv, "delete_many", stops)
        with pytest.raises(TarnError):
            await expire(ReflogOwner(of.root, MAIN))
    monkeypatch.setattr(lake.kv, "delete_many", delete_many)
    await expire(ReflogOwner(of.root, MAIN))
    assert await lake.kv.scan(of.reflog, b"", None, 10) == []
