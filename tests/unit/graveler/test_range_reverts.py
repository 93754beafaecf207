"""Reverts of ranges of commits: what is undone, in which order, and that nothing is half done."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from expired_lake import expire
from lake import MAIN, Lake, Running, reached
from lake_merges import NEW, SIDE, branch_with, head, history, hold_change, merge, mine
from tests.sim.named_guards import GUARD
from tests.support.choices import DEST_WINS, SOURCE_WINS
from tests.support.faults.guards import switched_off

from tarn.block.merging import MergeSides
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId, CommitId
from tarn.core.listing.choice import REFUSE, Choice
from tarn.kv.port import Group
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.guards.fences import BuildBlocks
from tarn_graveler.versioning import range_reverts
from tarn_graveler.versioning.merges import (
    REVERT_OF,
    Destination,
    MergeRequest,
    PickRequest,
)
from tarn_graveler.versioning.range_reverts import RangeReverted, RangeRevertRequest

Changes = dict[str, int | None]
PATHS = "abcdef"


async def commit(lake: Lake, changes: Changes, branch: BranchId = MAIN) -> CommitId:
    """Commits changes; None deletes."""
    for path, size in changes.items():
        if size is None:
            await lake.delete(path, branch=branch)
        else:
            await lake.put(path, size, branch)
    request = CommitRequest("bob", "changes")
    return (await lake.graveler.committing.commit(lake.branch(branch), request)).commit_id


async def revert(
    lake: Lake,
    since: CommitId,
    last: CommitId,
    *,
    squash: bool = False,
    parent_number: int = 0,
    message: str = "",
    choice: Choice = REFUSE,
    allow_empty: bool = False,
) -> RangeReverted:
    each = PickRequest(
        last,
        "ann",
        message,
        parent_number=parent_number,
        metadata=(("job", "undo"),),
        choice=choice,
        allow_empty=allow_empty,
    )
    request = RangeRevertRequest(since, each, squash)
    return await lake.graveler.range_reverts.revert(lake.main, request)


async def content(lake: Lake, ref: str = "main@") -> dict[str, int]:
    found = {path: await lake.get(path, ref) for path in PATHS}
    return {path: size for path, size in found.items() if size is not None}


async def refused(lake: Lake, since: CommitId, last: CommitId, **options: int) -> TarnError:
    """Returns the error of a revert that must fail and change nothing."""
    before = await head(lake), await content(lake, "main")
    with pytest.raises(TarnError) as caught:
        await revert(lake, since, last, **options)  # type: ignore[arg-type]
    assert (await head(lake), await content(lake, "main")) == before
    return caught.value


async def test_each_commit_of_a_range_gets_its_revert_newest_first(lake: Lake) -> None:
    start = await commit(lake, {"a": 1, "b": 1})
    steps: list[Changes] = [{"a": 2, "b": None}, {"a": 3, "c": 3}, {"a": 4, "c": None}]
    bad = [await commit(lake, changes) for changes in steps]
    later = await commit(lake, {"d": 5})
    made = await revert(lake, start, bad[-1])
    assert await content(lake) == {"a": 1, "b": 1, "d": 5}
    assert made.undone == tuple(reversed(bad))
    assert made.head.commit_id == await head(lake)
    line = (await history(lake))[:4]
    assert line[3] == later
    for commit_id, parent, undone in zip(line[:3], line[1:], bad, strict=True):
        found = await lake.graveler.commits.get(lake.repository, commit_id)
        assert found.parents == (parent,)
        assert dict(found.metadata) == {"job": "undo", REVERT_OF: undone}
        assert (found.message, found.committer) == (f"Revert {undone}", "ann")
    generations = [
        (await lake.graveler.commits.get(lake.repository, each)).generation for each in line
    ]
    assert generations == sorted(generations, reverse=True)
    # The reverts are commits like others: their range can be reverted in its turn.
    await revert(lake, later, await head(lake))
    assert await content(lake) == {"a": 4, "d": 5}


async def test_a_squashed_range_is_undone_by_one_commit(lake: Lake) -> None:
    start = await commit(lake, {"a": 1})
    bad = [await commit(lake, {"a": size, "b": size}) for size in (2, 3)]
    later = await commit(lake, {"c": 4})
    made = await revert(lake, start, bad[-1], squash=True)
    assert await content(lake) == {"a": 1, "c": 4}
    assert made.head.commit.parents == (later,)
    assert made.head.commit.message == f"Revert {start}..{bad[-1]}"
    assert dict(made.head.commit.metadata)[REVERT_OF] == f"{start}..{bad[-1]}"
    assert made.undone == (bad[1], bad[0])


async def test_a_conflict_names_its_commit_and_leaves_nothing_half_done(lake: Lake) -> None:
    start = await commit(lake, {"a": 1, "b": 1})
    first = await commit(lake, {"a": 2})
    second = await commit(lake, {"b": 2})
    await commit(lake, {"a": 3})
    # The newer commit can be reverted, the older one cannot.
    for squash in (False, True):
        error = await refused(lake, start, second, squash=squash)
        assert error.reason is Reason.MERGE_CONFLICT
        assert error.message.startswith(f"commit {first} cannot be reverted: 1 path changed")
        assert "both sides: a." in error.message
        assert error.metadata == {"branch": "main", "conflict_count": "1", "commit_id": first}
    await revert(lake, start, second, choice=SOURCE_WINS)
    assert await content(lake) == {"a": 1, "b": 1}


async def test_commits_that_the_branch_lacks_are_passed_over(lake: Lake) -> None:
    start = await commit(lake, {"a": 1})
    first, second = await commit(lake, {"b": 2}), await commit(lake, {"c": 2})
    await commit(lake, {"c": None})
    made = await revert(lake, start, second)
    assert made.undone == (first,)
    error = await refused(lake, start, second)
    assert error.reason is Reason.NOTHING_TO_COMMIT
    before = await history(lake)
    empty = await revert(lake, start, second, allow_empty=True)
    assert empty.undone == (second, first)
    assert (await history(lake))[2:] == before
    # With a choice, nothing may be left of a conflict.
    await commit(lake, {"b": 3})
    kept = await revert(lake, start, second, choice=DEST_WINS, allow_empty=True)
    assert kept.undone == (second, first)
    assert await content(lake) == {"a": 1, "b": 3}


async def test_a_squash_that_changes_nothing_is_refused(lake: Lake) -> None:
    start = await commit(lake, {"a": 1})
    await commit(lake, {"a": 2})
    last = await commit(lake, {"a": 1})
    error = await refused(lake, start, last, squash=True)
    assert error.reason is Reason.NOTHING_TO_COMMIT
    made = await revert(lake, start, last, squash=True, allow_empty=True)
    assert made.head.commit.parents == (last,)
    # One by one, each revert changes something.
    assert len((await revert(lake, start, last)).undone) == 2
    assert await content(lake) == {"a": 1}


async def test_a_merge_in_a_range_is_one_change(lake: Lake) -> None:
    start = await commit(lake, {"a": 1})
    side = await branch_with(lake, {"b": 2})
    await commit(lake, {"c": 3})
    merged = (await merge(lake, side)).commit_id
    last = await commit(lake, {"d": 4})
    error = await refused(lake, start, last)
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.metadata["commit_id"] == merged
    for number in (2, -1):
        error = await refused(lake, start, last, parent_number=number)
        assert error.reason is Reason.INVALID_ARGUMENT
    made = await revert(lake, start, last, parent_number=1)
    assert await content(lake) == {"a": 1}
    assert len(made.undone) == 3
    assert side not in made.undone


async def test_a_range_begins_where_the_branches_parted(lake: Lake) -> None:
    """`side..main` are the commits of main that side does not have, as in git."""
    await commit(lake, {"a": 1})
    side = await branch_with(lake, {"b": 2})
    first, second = await commit(lake, {"c": 3}), await commit(lake, {"d": 4})
    made = await revert(lake, side, second)
    assert made.undone == (second, first)
    assert await content(lake) == {"a": 1}
    for last in (first, second):  # an empty range
        assert (await refused(lake, second, last)).reason is Reason.INVALID_ARGUMENT


async def test_commits_that_the_begin_got_by_a_merge_are_not_in_the_range(lake: Lake) -> None:
    """The begin of a range need not be on its line."""
    await commit(lake, {"a": 1})
    await branch_with(lake, {"b": 2})
    made = [await commit(lake, {path: 3}) for path in "cdef"]
    request = MergeRequest(made[1], "ann", "merge")
    side = await lake.graveler.merges.merge(lake.branch(SIDE), request)
    undone = (await revert(lake, side.commit_id, made[-1])).undone
    assert undone == (made[3], made[2])
    assert await content(lake) == {"a": 1, "c": 3, "d": 3}


async def test_the_first_commit_can_be_in_a_range_and_its_length_is_limited(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reverts, "REVERTS_MAX", 3)
    root = await head(lake)
    made = [await commit(lake, {"a": size}) for size in range(1, 5)]
    error = await refused(lake, root, made[-1])
    assert error.reason is Reason.INVALID_ARGUMENT
    assert "more than 3 commits" in error.message
    assert len((await revert(lake, made[0], made[-1])).undone) == 3
    assert await content(lake) == {"a": 1}


async def test_a_branch_that_moves_meanwhile_gets_the_reverts_on_its_new_head(
    lake: Lake, other: Lake, running: Running
) -> None:
    start = await commit(lake, {"a": 1, "b": 1})
    bad = [await commit(lake, {path: 2}) for path in "ab"]
    gate = hold_change(lake)
    task = running.start(revert(lake, start, bad[-1]))
    await reached(gate)
    await other.put("c", 3)
    newer = await other.commit()
    gate.open()
    made = await task
    assert await content(lake) == {"a": 1, "b": 1, "c": 3}
    assert (await history(lake))[2] == newer.commit_id
    assert made.undone == (bad[1], bad[0])


async def put_beside_a_range(lake: Lake, other: Lake, running: Running) -> None:
    """A put of `c` is acknowledged while the last step of a revert is on its way; then both are committed."""
    start = await commit(lake, {"a": 1, "b": 1})
    bad = [await commit(lake, {path: 2}) for path in "ab"]
    gate = hold_change(lake)
    task = running.start(revert(lake, start, bad[-1]))
    await reached(gate)
    await other.put("c", 3)
    gate.open()
    await task
    assert await content(lake) == {"a": 1, "b": 1}, (
        "the range is undone, and the put is not committed"
    )
    await lake.commit(allow_empty=True)
    await lake.drop_everything_removed()


async def test_a_put_beside_a_range_is_kept_on_top_of_it(
    lake: Lake, other: Lake, running: Running
) -> None:
    await put_beside_a_range(lake, other, running)
    assert await content(lake) == {"a": 1, "b": 1, "c": 3}


async def test_a_range_that_forgets_the_replaced_token_loses_a_put(
    lake: Lake, other: Lake, running: Running
) -> None:
    with switched_off(GUARD["move-keeps-rows"]):
        await put_beside_a_range(lake, other, running)
    assert await content(lake) == {"a": 1, "b": 1}


async def create_beside_a_range(lake: Lake, other: Lake, running: Running) -> None:
    """A creation of `a` judges the branch without it; a range brings it back before the row lands."""
    start = await commit(lake, {"a": 1})
    bad = [await commit(lake, {"a": None}), await commit(lake, {"b": 2})]
    await lake.graveler.conditional.stage(lake.main, "warm", mine(1, "warm"), NEW)
    await commit(lake, {"c": 3})
    gate = lake.kv.hold("set_if", lake.row_key("a"))
    create = running.start(lake.graveler.conditional.stage(lake.main, "a", mine(9, "mine"), NEW))
    await reached(gate)
    await revert(other, start, bad[-1])
    assert await content(other) == {"a": 1, "c": 3}
    gate.open()
    await create


async def test_a_creation_beside_a_range_that_brings_the_object_back_is_not_acknowledged(
    lake: Lake, other: Lake, running: Running
) -> None:
    with pytest.raises(TarnError) as caught:
        await create_beside_a_range(lake, other, running)
    assert caught.value.reason is Reason.OUTCOME_UNKNOWN


async def test_a_range_that_keeps_the_token_lets_the_creation_win_as_well(
    lake: Lake, other: Lake, running: Running
) -> None:
    with switched_off(GUARD["move-seals"]):
        await create_beside_a_range(lake, other, running)
    assert await lake.get("a") == 9


async def test_uncommitted_changes_refuse_a_range_and_are_named(lake: Lake) -> None:
    start = await commit(lake, {"a": 1})
    bad = await commit(lake, {"a": 2})
    await lake.put("f", 6)
    error = await refused(lake, start, bad)
    assert error.reason is Reason.BRANCH_DIRTY
    assert "uncommitted changes: f." in error.message


async def test_a_lost_answer_is_settled_by_the_history(lake: Lake) -> None:
    start = await commit(lake, {"a": 1})
    bad = [await commit(lake, {"a": size}) for size in (2, 3)]
    lake.kv.lose("set_if", lake.branch_key, applied=True)
    made = await revert(lake, start, bad[-1])
    assert await head(lake) == made.head.commit_id
    assert await content(lake) == {"a": 1}


async def test_a_store_that_fails_between_two_reverts_leaves_the_branch_as_it_is(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = await commit(lake, {"a": 1})
    bad = [await commit(lake, {"a": size}) for size in (2, 3)]
    before = await head(lake)
    set_many, writes = lake.kv.set_many, 0

    async def failing(partition: object, groups: list[Group]) -> object:
        nonlocal writes
        writes += 1
        if writes == 2:
            raise OSError("the disk is full")
        return await set_many(partition, groups)  # type: ignore[arg-type]

    monkeypatch.setattr(lake.kv, "set_many", failing)
    with pytest.raises(OSError, match="full"):
        await revert(lake, start, bad[-1])
    monkeypatch.setattr(lake.kv, "set_many", set_many)
    assert (writes, await head(lake)) == (2, before)
    assert await content(lake, "main") == {"a": 3}


# ---- against dictionaries


def undo(
    old: dict[str, int], new: dict[str, int], present: dict[str, int]
) -> dict[str, int] | None:
    """Undoes the change from `old` to `new`; None for a conflict."""
    result = dict(present)
    for path in PATHS:
        before, after, now = old.get(path), new.get(path), present.get(path)
        if before in (after, now):
            continue
        if now != after:
            return None
        if before is None:
            del result[path]
        else:
            result[path] = before
    return result


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_random_ranges_are_undone_as_over_dictionaries(lake: Lake, seed: int) -> None:
    rng = Random(seed)
    line, contents = [await head(lake)], [dict[str, int]()]
    for size in range(1, 13):
        now = dict(contents[-1])
        changes: Changes = {}
        for path in rng.sample(PATHS, rng.randint(1, 2)):
            changes[path] = None if path in now and rng.random() < 0.4 else size
        for path, value in changes.items():
            if value is None:
                del now[path]
            else:
                now[path] = value
        line.append(await commit(lake, changes))
        contents.append(now)
    for _ in range(10):
        first = rng.randint(1, len(line) - 1)
        last = rng.randint(first, len(line) - 1)
        expected: dict[str, int] | None = contents[-1]
        states = [contents[-1]]
        for number in range(last, first - 1, -1):
            assert expected is not None
            expected = undo(contents[number - 1], contents[number], expected)
            if expected is None:
                break
            states.append(expected)
        squash = rng.random() < 0.5
        changed = [after for before, after in pairwise(states) if before != after]
        if expected is None or not changed or (squash and expected == contents[-1]):
            error = await refused(lake, line[first - 1], line[last], squash=squash)
            wanted = Reason.MERGE_CONFLICT if expected is None else Reason.NOTHING_TO_COMMIT
            assert error.reason is wanted
            continue
        made = await revert(lake, line[first - 1], line[last], squash=squash)
        assert await content(lake) == expected
        assert len(made.undone) == len(changed)
        added = [expected] if squash else changed
        line += reversed((await history(lake))[: len(added)])
        contents += added


async def test_a_range_that_changes_too_much_is_refused_and_names_a_part_that_is_not(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = await commit(lake, {"a": 1})
    bad = [await commit(lake, {path: 2}) for path in "bcd"]
    monkeypatch.setattr(range_reverts, "RANGES_WRITTEN_MAX", 0)
    error = await refused(lake, start, bad[-1])
    assert error.reason is Reason.INVALID_ARGUMENT
    assert f"{bad[1]}..{bad[2]}" in error.message
    await revert(lake, bad[1], bad[2])
    assert await content(lake) == {"a": 1, "b": 2, "c": 2}


async def whole(_: set[str]) -> bool:
    return True


async def none_expired(_: set[CommitId]) -> None:
    pass


async def test_the_ranges_that_reverts_write_are_counted(lake: Lake) -> None:
    """Each revert of the range writes one: the listing without the commit's change has never existed."""
    await commit(lake, {"a": 1})
    newest = await commit(lake, {"b": 2})
    commits, merges = lake.graveler.commits, lake.graveler.merges
    undone = await commits.get(lake.main.repository, newest)
    parent = await commits.get(lake.main.repository, undone.parents[0])
    later = await commits.get(lake.main.repository, await commit(lake, {"a": 3}))
    sides = MergeSides(undone.metarange_id, parent.metarange_id, later.metarange_id)
    into = Destination("branch", MAIN)
    _, written = await merges.merged(
        lake.main.repository,
        sides,
        REFUSE,
        into,
        BuildBlocks(whole, none_expired, is_beside_sweep=False),
    )
    assert written == 1


@pytest.mark.parametrize("squash", [False, True])
async def test_a_revert_is_refused_if_any_of_its_sources_has_expired(
    lake: Lake, squash: bool
) -> None:
    first = await commit(lake, {"a": 1})
    await commit(lake, {"a": 2})
    third = await commit(lake, {"b": 3})
    await commit(lake, {"c": 4})
    await lake.kv.drop_partition(lake.graveler.repositories.keys_of(lake.repository).reflog)
    await expire(lake, first)  # the source of the older one of the two reverts
    request = RangeRevertRequest(first, PickRequest(third, "ann", "undo"), squash=squash)
    with pytest.raises(TarnError) as raised:
        await lake.graveler.range_reverts.revert(lake.main, request)
    assert raised.value.reason is Reason.EXPIRED_COMMIT
