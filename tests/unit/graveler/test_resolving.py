"""Resolving refs: branches, tags, ids, prefixes, and steps to parents."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from lake import MAIN, Lake

from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, TagId
from tarn_graveler.branch.records import BranchName
from tarn_graveler.history.resolving import branch_to_write


@dataclass(frozen=True)
class Family:
    """A merge commit: the parents of `top` are `left` and `right`, and the parent of `left` is `root`."""

    root: CommitId
    left: CommitId
    right: CommitId
    top: CommitId


@pytest.fixture
async def family(lake: Lake) -> Family:
    commits, repository = lake.graveler.commits, lake.repository
    root = (await lake.graveler.branches.fresh(BranchName(repository, MAIN))).branch.commit_id
    metarange = (await commits.get(repository, root)).metarange_id

    async def child(message: str, generation: int, *parents: CommitId) -> CommitId:
        made = Commit(parents, metarange, "ann", message, 0, generation, ())
        return await commits.add(repository, made)

    left = await child("left", 1, root)
    right = await child("right", 1, root)
    top = await child("top", 2, left, right)
    await lake.graveler.tags.create(repository, TagId("top"), top)
    return Family(root, left, right, top)


async def commit_of(lake: Lake, ref: str) -> CommitId:
    return await lake.graveler.refs.commit_of(lake.repository, ref)


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        ("", "top"),
        ("~0", "top"),
        ("^0", "top"),
        ("~", "left"),
        ("^", "left"),
        ("^1", "left"),
        ("^2", "right"),
        ("~2", "root"),
        ("^2^", "root"),
        ("^2~1", "root"),
        ("~1^1", "root"),
        ("^0~1", "left"),
    ],
)
async def test_steps_lead_to_parents(lake: Lake, family: Family, steps: str, name: str) -> None:
    expected = getattr(family, name)
    assert await commit_of(lake, f"top{steps}") == expected
    assert await commit_of(lake, f"{family.top}{steps}") == expected
    assert await commit_of(lake, f"{family.top[:16]}{steps}") == expected


@pytest.mark.parametrize(
    "ref", ["top~3", "top^3", "top^2^2", "main~1", "main^", "nothing", "abcdef01"]
)
async def test_a_missing_ref_is_not_found(lake: Lake, family: Family, ref: str) -> None:
    with pytest.raises(TarnError) as raised:
        await commit_of(lake, ref)
    assert (raised.value.kind, raised.value.reason) == (Kind.NOT_FOUND, Reason.REF_NOT_FOUND)
    assert raised.value.metadata == {"ref": ref}


async def test_a_branch_is_a_branch_and_its_commit_is_its_newest(lake: Lake) -> None:
    await lake.put("a", 1)
    made = await lake.commit()
    await lake.put("a", 2)
    resolved = await lake.graveler.refs.resolve(lake.repository, "main")
    assert resolved == lake.main
    assert await commit_of(lake, "main") == made.commit_id
    assert (await lake.get("a", "main"), await lake.get("a", "main@")) == (2, 1)


async def test_an_id_of_no_commit_is_not_found(lake: Lake) -> None:
    with pytest.raises(TarnError) as raised:
        await commit_of(lake, "0" * 64)
    assert raised.value.kind is Kind.NOT_FOUND


@pytest.mark.parametrize("ref", ["main@", "main~1", "main^", "0" * 64])
def test_only_branches_are_written_to(ref: str) -> None:
    with pytest.raises(TarnError) as raised:
        branch_to_write(ref)
    assert (raised.value.kind, raised.value.reason) == (Kind.INVALID, Reason.REF_NOT_WRITABLE)
    assert branch_to_write("main") == MAIN
