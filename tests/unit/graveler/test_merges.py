"""The results of merges, reverts and cherry-picks (docs/design/versioning.md)."""

from collections.abc import Awaitable, Callable

import pytest
from lake import MAIN, Lake
from tests.support.choices import DEST_WINS, SOURCE_WINS

from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId, CommitId
from tarn.core.listing.choice import REFUSE, Choice, ChoiceRule, Side
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.versioning.merges import (
    CHERRY_PICKED_FROM,
    REVERT_OF,
    MergeRequest,
    PickRequest,
)

SIDE = BranchId("side")
Changes = dict[str, int | None]


async def head(lake: Lake, branch: BranchId = MAIN) -> CommitId:
    return (await lake.graveler.branches.fresh(lake.branch(branch))).branch.commit_id


async def branch_off(lake: Lake, name: BranchId = SIDE) -> None:
    await lake.graveler.branches.create(lake.branch(name), await head(lake))


async def committed(lake: Lake, changes: Changes, branch: BranchId = MAIN) -> CommitId:
    """Commits changes to a branch; None deletes."""
    for path, size in changes.items():
        if size is None:
            await lake.delete(path, branch=branch)
        else:
            await lake.put(path, size, branch)
    request = CommitRequest("bob", f"changes of {branch}")
    return (await lake.graveler.committing.commit(lake.branch(branch), request)).commit_id


async def merge(
    lake: Lake,
    source: CommitId,
    into: BranchId = MAIN,
    *,
    choice: Choice = REFUSE,
    **options: bool,
) -> NewHead:
    request = MergeRequest(source, "ann", "merge", choice=choice, **options)  # type: ignore[arg-type]
    return await lake.graveler.merges.merge(lake.branch(into), request)


def pick(commit_id: CommitId, parent_number: int = 0, **options: object) -> PickRequest:
    return PickRequest(commit_id, "ann", "pick", parent_number, **options)  # type: ignore[arg-type]


async def content(lake: Lake, ref: str = "main@") -> dict[str, int]:
    found = {path: await lake.get(path, ref) for path in "abcdef"}
    return {path: size for path, size in found.items() if size is not None}


async def refused(work: Awaitable[object]) -> TarnError:
    with pytest.raises(TarnError) as caught:
        await work
    return caught.value


# ---- merge


async def test_a_merge_commit_has_both_parents_and_the_greater_generation(lake: Lake) -> None:
    await committed(lake, {"a": 1})
    await branch_off(lake)
    await committed(lake, {"b": 1}, SIDE)
    source = await committed(lake, {"c": 1}, SIDE)
    dest = await committed(lake, {"d": 1})
    new = await merge(lake, source)
    assert new.commit.parents == (dest, source)
    assert new.commit.generation == 4
    assert await content(lake) == {"a": 1, "b": 1, "c": 1, "d": 1}


async def test_a_branch_that_did_not_diverge_still_gets_a_merge_commit(lake: Lake) -> None:
    before = await committed(lake, {"a": 1})
    await branch_off(lake)
    source = await committed(lake, {"a": None, "b": 1}, SIDE)
    new = await merge(lake, source)
    assert new.commit.parents == (before, source)
    assert await content(lake) == {"b": 1}


async def test_fast_forward_moves_the_branch_to_the_source(lake: Lake) -> None:
    await committed(lake, {"a": 1})
    await branch_off(lake)
    source = await committed(lake, {"b": 1}, SIDE)
    new = await merge(lake, source, fast_forward_only=True)
    assert new.commit_id == source == await head(lake)
    dest = await committed(lake, {"c": 1})
    source = await committed(lake, {"d": 1}, SIDE)
    error = await refused(merge(lake, source, fast_forward_only=True))
    assert error.reason is Reason.NOT_FAST_FORWARD
    assert await head(lake) == dest


async def test_a_contained_source_is_nothing_to_merge_unless_empty_merges_are_allowed(
    lake: Lake,
) -> None:
    source = await committed(lake, {"a": 1})
    dest = await committed(lake, {"b": 1})
    assert (await refused(merge(lake, source))).reason is Reason.NOTHING_TO_MERGE
    assert (await refused(merge(lake, dest))).reason is Reason.NOTHING_TO_MERGE
    new = await merge(lake, source, allow_empty=True)
    assert new.commit.parents == (dest, source)
    assert await content(lake) == {"a": 1, "b": 1}


async def test_a_squashed_merge_leaves_the_history_of_the_source_out(lake: Lake) -> None:
    before = await committed(lake, {"a": 1})
    await branch_off(lake)
    source = await committed(lake, {"b": 1}, SIDE)
    new = await merge(lake, source, squash=True)
    assert new.commit.parents == (before,)
    assert await content(lake) == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (SOURCE_WINS, {"b": 2, "c": 2, "d": 3}),
        (DEST_WINS, {"a": 3, "c": 3, "d": 3}),
        (
            Choice(Side.DEST, (ChoiceRule("c", Side.SOURCE),)),
            {"a": 3, "c": 2, "d": 3},
        ),
    ],
    ids=["source", "dest", "per path"],
)
async def test_choices_decide_conflicts_and_nothing_else(
    lake: Lake, choice: Choice, expected: dict[str, int]
) -> None:
    await committed(lake, {"a": 1, "b": 1, "c": 1})
    await branch_off(lake)
    source = await committed(lake, {"a": None, "b": 2, "c": 2}, SIDE)
    await committed(lake, {"a": 3, "b": None, "c": 3, "d": 3})
    error = await refused(merge(lake, source))
    assert error.reason is Reason.MERGE_CONFLICT
    assert error.metadata["conflict_count"] == "3"
    await merge(lake, source, choice=choice)
    assert await content(lake) == expected


async def test_equal_changes_on_both_sides_are_no_conflict(lake: Lake) -> None:
    await committed(lake, {"a": 1, "b": 1})
    await branch_off(lake)
    source = await committed(lake, {"a": 2, "b": None}, SIDE)
    await committed(lake, {"a": 2, "b": None, "c": 1})
    await merge(lake, source)
    assert await content(lake) == {"a": 2, "c": 1}


async def test_after_a_merge_the_source_can_be_merged_again(lake: Lake) -> None:
    """The merge base is the source's head at the last merge, so old changes are not brought back."""
    await committed(lake, {"a": 1})
    await branch_off(lake)
    await merge(lake, await committed(lake, {"a": 2}, SIDE))
    await committed(lake, {"a": 3})
    await merge(lake, await committed(lake, {"b": 2}, SIDE))
    assert await content(lake) == {"a": 3, "b": 2}


async def test_criss_cross_merges_end_in_one_content(lake: Lake) -> None:
    await committed(lake, {"a": 1})
    await branch_off(lake)
    left = await committed(lake, {"b": 1})
    right = await committed(lake, {"c": 1}, SIDE)
    await merge(lake, right)
    await merge(lake, left, SIDE)
    await committed(lake, {"d": 1})
    await merge(lake, await committed(lake, {"e": 1}, SIDE))
    await merge(lake, await head(lake), SIDE)
    assert await content(lake) == await content(lake, "side@")
    assert set(await content(lake)) == set("abcde")


async def test_a_preview_tells_what_the_merge_would_do_and_changes_nothing(lake: Lake) -> None:
    base = await committed(lake, {"a": 1, "b": 1})
    await branch_off(lake)
    source = await committed(lake, {"a": 2, "b": None, "c": 5}, SIDE)
    dest = await committed(lake, {"a": 3})
    preview = await lake.graveler.merges.preview(lake.repository, dest, source, REFUSE, 10)
    changes = preview.merge.changes
    assert preview.bases == (base,)
    assert preview.merge.conflicts.paths == ["a"]
    assert (changes.added, changes.removed, changes.bytes_added) == (1, 1, 5)
    assert await head(lake) == dest
    page = await lake.graveler.merges.conflicts(
        lake.repository, dest, source, REFUSE, after="a", limit=10
    )
    assert (page.paths, page.next_after) == ([], None)


# ---- revert and cherry-pick


async def test_a_revert_undoes_one_commit_and_keeps_what_came_after(lake: Lake) -> None:
    await committed(lake, {"a": 1, "b": 1})
    bad = await committed(lake, {"a": 2, "b": None, "c": 2})
    before = await committed(lake, {"d": 3})
    new = await lake.graveler.merges.revert(lake.main, pick(bad))
    assert await content(lake) == {"a": 1, "b": 1, "d": 3}
    assert new.commit.parents == (before,)
    assert dict(new.commit.metadata)[REVERT_OF] == bad


async def test_a_revert_of_what_changed_again_is_a_conflict(lake: Lake) -> None:
    await committed(lake, {"a": 1})
    bad = await committed(lake, {"a": 2})
    await committed(lake, {"a": 3})
    error = await refused(lake.graveler.merges.revert(lake.main, pick(bad)))
    assert error.reason is Reason.MERGE_CONFLICT


async def test_the_first_commit_can_be_reverted(lake: Lake) -> None:
    first = await head(lake)
    await committed(lake, {"a": 1})
    error = await refused(lake.graveler.merges.revert(lake.main, pick(first)))
    assert error.reason is Reason.NOTHING_TO_COMMIT


async def test_a_cherry_pick_applies_one_commit_and_records_it(lake: Lake) -> None:
    await committed(lake, {"a": 1})
    await branch_off(lake)
    await committed(lake, {"b": 1}, SIDE)
    picked = await committed(lake, {"a": 2, "c": 2}, SIDE)
    new = await lake.graveler.merges.cherry_pick(lake.main, pick(picked))
    assert await content(lake) == {"a": 2, "c": 2}
    assert dict(new.commit.metadata)[CHERRY_PICKED_FROM] == picked
    error = await refused(lake.graveler.merges.cherry_pick(lake.main, pick(picked)))
    assert error.reason is Reason.NOTHING_TO_COMMIT
    again = await lake.graveler.merges.cherry_pick(lake.main, pick(picked, allow_empty=True))
    assert again.commit.metarange_id == new.commit.metarange_id


@pytest.mark.parametrize("of", ["revert", "cherry_pick"])
async def test_a_merge_commit_needs_the_number_of_a_parent(lake: Lake, of: str) -> None:
    await committed(lake, {"a": 1})
    await branch_off(lake)
    source = await committed(lake, {"b": 1}, SIDE)
    await committed(lake, {"c": 1})
    merged = (await merge(lake, source)).commit_id
    apply: Callable[..., Awaitable[NewHead]] = getattr(lake.graveler.merges, of)
    for number in (0, 3, -1):
        error = await refused(apply(lake.main, pick(merged, number)))
        assert error.reason is Reason.INVALID_ARGUMENT
    if of == "revert":
        await apply(lake.main, pick(merged, 1))
        assert await content(lake) == {"a": 1, "c": 1}
        # The merged changes do not come back by another merge of the same commits.
        assert (await refused(merge(lake, source))).reason is Reason.NOTHING_TO_MERGE
    else:
        await committed(lake, {"b": None})
        await lake.graveler.merges.revert(lake.main, pick(await head(lake)))
        await branch_off(lake, BranchId("third"))
        error = await refused(apply(lake.main, pick(merged, 1)))
        assert error.reason is Reason.NOTHING_TO_COMMIT


async def test_a_commit_without_two_parents_takes_number_one_and_no_other(lake: Lake) -> None:
    await committed(lake, {"a": 1})
    bad = await committed(lake, {"a": 2})
    error = await refused(lake.graveler.merges.revert(lake.main, pick(bad, 2)))
    assert error.reason is Reason.INVALID_ARGUMENT
    await lake.graveler.merges.revert(lake.main, pick(bad, 1))
    assert await content(lake) == {"a": 1}


@pytest.mark.parametrize(
    ("of", "note"), [("revert", REVERT_OF), ("cherry_pick", CHERRY_PICKED_FROM)]
)
async def test_a_callers_metadata_does_not_replace_the_note_of_the_commit(
    lake: Lake, of: str, note: str
) -> None:
    commit_id = await committed(lake, {"a": 1})
    apply: Callable[..., Awaitable[NewHead]] = getattr(lake.graveler.merges, of)
    given = (("job", "x"), (note, "0" * 64))
    new = await apply(lake.main, pick(commit_id, metadata=given, allow_empty=True))
    assert new.commit.metadata == (("job", "x"), (note, commit_id))
