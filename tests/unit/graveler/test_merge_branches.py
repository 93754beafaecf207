"""What-if merges and previews: what they show, and what they leave behind."""

from __future__ import annotations

from typing import Any

import pytest
from graveler_service import Service, reason_of
from lake import MAIN, Lake, Replicas
from lake_merges import SIDE, branch_with, head, record
from tests.support.choices import SOURCE_WINS

from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId, CommitId
from tarn.core.listing.choice import REFUSE, Choice
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.versioning.merges import Destination, MergeRequest
from tarn_proto.graveler.v1 import merge_service_pb2 as pb

WHAT_IF = BranchId("what-if")


async def what_if(
    lake: Lake,
    dest: CommitId,
    source: CommitId,
    *,
    choice: Choice = REFUSE,
    allow_empty: bool = False,
    name: BranchId = WHAT_IF,
) -> NewHead:
    request = MergeRequest(source, "ann", "what if", choice=choice, allow_empty=allow_empty)
    return await lake.graveler.merge_branches.create(
        lake.branch(name), dest, Destination("ref", "main"), request
    )


async def written(lake: Lake, replicas: Replicas) -> list[str]:
    """The paths of all ranges, metaranges, commits and notes of the repository."""
    space = lake.repository.storage_namespace
    return [each.path for each in await replicas.blocks.list_page(space, "_tarn/", "", 1000)]


async def parted(lake: Lake) -> tuple[CommitId, CommitId]:
    """Commits on `main` and `side` that conflict at `a`; returns the heads."""
    await lake.put("a", 1)
    await lake.put("b", 1)
    await lake.commit()
    side = await branch_with(lake, {"a": 2, "b": None, "c": 2})
    await lake.put("a", 3)
    return (await lake.commit()).commit_id, side


async def test_a_what_if_merge_is_a_branch_and_changes_no_other(lake: Lake) -> None:
    main, side = await parted(lake)
    await lake.put("dirt", 9)
    before = await record(lake), await record(lake, SIDE)
    new = await what_if(lake, main, side, choice=SOURCE_WINS)
    assert new.commit.parents == (main, side)
    assert new.commit.generation == 3
    assert await head(lake, WHAT_IF) == new.commit_id
    assert [await lake.get(path, "what-if") for path in ("a", "b", "c", "dirt")] == [
        2,
        None,
        2,
        None,
    ]
    assert (await record(lake), await record(lake, SIDE)) == before
    assert [await lake.get(path) for path in ("a", "b", "c", "dirt")] == [3, 1, None, 9]
    # It takes writes, and becomes the real merge by a fast-forward.
    await lake.put("more", 1, WHAT_IF)
    await lake.delete("dirt")
    request = MergeRequest(new.commit_id, "ann", "", fast_forward_only=True)
    assert (await lake.graveler.merges.merge(lake.main, request)).commit_id == new.commit_id
    assert await head(lake) == new.commit_id


async def test_a_refused_what_if_merge_creates_no_branch(lake: Lake) -> None:
    main, side = await parted(lake)
    for work, reason in (
        (what_if(lake, main, side), Reason.MERGE_CONFLICT),
        (what_if(lake, main, main), Reason.NOTHING_TO_MERGE),
    ):
        with pytest.raises(TarnError) as caught:
            await work
        assert caught.value.reason is reason
        assert "ref main" in caught.value.message
        with pytest.raises(TarnError) as missing:
            await head(lake, WHAT_IF)
        assert missing.value.reason is Reason.BRANCH_NOT_FOUND
    empty = await what_if(lake, main, main, allow_empty=True)
    assert empty.commit.parents == (main, main)


async def test_a_taken_name_is_refused_before_the_merge_is_made(
    lake: Lake, replicas: Replicas
) -> None:
    main, side = await parted(lake)
    before = await written(lake, replicas)
    for name in (MAIN, SIDE):
        with pytest.raises(TarnError) as caught:
            await what_if(lake, main, side, choice=SOURCE_WINS, name=name)
        assert caught.value.reason is Reason.BRANCH_EXISTS
    assert await written(lake, replicas) == before
    assert (await head(lake), await head(lake, SIDE)) == (main, side)
    await lake.graveler.tags.create(lake.repository, "v1", main)  # type: ignore[arg-type]
    with pytest.raises(TarnError) as caught:
        await what_if(lake, main, side, choice=SOURCE_WINS, name=BranchId("v1"))
    assert caught.value.reason is Reason.TAG_EXISTS


async def test_a_what_if_branch_leaves_a_note_beside_the_ranges(
    lake: Lake, replicas: Replicas
) -> None:
    main, side = await parted(lake)
    new = await what_if(lake, main, side, choice=SOURCE_WINS)
    notes = [path for path in await written(lake, replicas) if "/refs/what-if/" in path]
    assert len(notes) == 1
    assert new.commit_id in notes[0]


async def test_a_preview_leaves_no_trace(
    lake: Lake, replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes no rows and no blocks, also where ranges are merged."""
    main, side = await parted(lake)
    before = await written(lake, replicas)

    async def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("a preview wrote to the metadata store")

    for name in ("set_many", "set_if", "delete_many", "delete_if", "drop_partition"):
        monkeypatch.setattr(lake.kv, name, refuse)
    merges = lake.graveler.merges
    for choice in (REFUSE, SOURCE_WINS):
        preview = await merges.preview(lake.repository, main, side, choice, 10)
        assert preview.merge.changes.added == 1
        await merges.conflicts(lake.repository, main, side, choice, after="0", limit=10)
    assert await written(lake, replicas) == before


async def conflicting(service: Service) -> list[str]:
    """Writes `side`, whose merge into main has 25 conflicts; returns their paths."""
    graveler, admin = service.graveler, service.admin
    paths = [f"p/{number:02}" for number in range(25)]
    for branch, size in (("main", 1), ("side", 2), ("main", 3)):
        if branch == "side":
            await graveler.create_branch(admin, "lake", "side", "main")
        for path in paths:
            await service.put(path, size, branch)
        await graveler.create_commit(admin, "lake", branch, str(size))
    return paths


async def test_conflicts_are_paged_with_both_sides_and_the_base(service: Service) -> None:
    """Also if the branch moves between two pages: the second one reads the commits of the first."""
    graveler, admin = service.graveler, service.admin
    paths = await conflicting(service)
    first = await graveler.preview_merge(admin, "lake", "main", "side", page_size=10)
    assert (first.conflict_count, len(first.conflicts)) == (25, 10)
    await service.put(paths[12], 2)
    await graveler.create_commit(admin, "lake", "main", "no conflict any more")
    found = [
        each async for each in graveler.all_conflicts(lambda: admin, "lake", first, page_size=10)
    ]
    assert [each.path for each in found] == paths
    sizes = {
        tuple(_size(side) for side in (each.base_entry, each.source_entry, each.destination_entry))
        for each in found
    }
    assert sizes == {(1, 2, 3)}


async def test_a_choice_decides_conflicts_on_every_page(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    paths = await conflicting(service)
    choices = [pb.ConflictChoice(pattern="p/?5", side=pb.MERGE_SIDE_SOURCE)]
    first = await graveler.preview_merge(
        admin, "lake", "main", "side", choices=choices, page_size=10
    )
    assert first.conflict_count == 23
    found = [
        each.path
        async for each in graveler.all_conflicts(
            lambda: admin, "lake", first, choices=choices, page_size=10
        )
    ]
    assert found == [path for path in paths if not path.endswith("5")]


def _size(packed: bytes) -> int:
    from tarn.core.entry import unpack

    return unpack(packed).size


async def test_a_what_if_merge_over_the_wire(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await service.put("a", 1)
    await graveler.create_commit(admin, "lake", "main", "a")
    await graveler.create_branch(admin, "lake", "side", "main~1")
    await service.put("b", 2, "side")
    await graveler.create_commit(admin, "lake", "side", "b")
    made = await graveler.create_merge_branch(
        admin, "lake", "try", "main", "side", metadata={"job": "x"}
    )
    assert (made.message, dict(made.metadata)) == ("Merge side into main", {"job": "x"})
    assert (await graveler.get_branch(admin, "lake", "try")).commit_id == made.commit_id
    assert await service.size("try", "a") + await service.size("try", "b") == 3
    again = graveler.create_merge_branch(admin, "lake", "try", "main", "side")
    assert await reason_of(again) is Reason.BRANCH_EXISTS
    of_commits = await graveler.create_merge_branch(
        admin, "lake", "again", "main~1", "side@", default_side=pb.MERGE_SIDE_SOURCE
    )
    assert len(of_commits.parent_ids) == 2


async def test_a_range_is_reverted_over_the_wire(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    for number in range(4):
        await service.put("a", number + 1)
        await graveler.create_commit(admin, "lake", "main", str(number))
    made = await graveler.revert_range(admin, "lake", "main", "main~2", "main", message="why")
    assert made.commit.message == "why"
    assert len(made.reverted_commit_ids) == 2
    assert await service.size("main", "a") == 2
    single = await graveler.revert(admin, "lake", "main", "main")
    assert single.message.startswith("Revert ")
    squash = graveler.revert_range(admin, "lake", "main", "", "main", squash=True)
    assert await reason_of(squash) is Reason.INVALID_ARGUMENT
    unknown = graveler.revert_range(admin, "lake", "main", "nothing", "main")
    assert await reason_of(unknown) is Reason.REF_NOT_FOUND
