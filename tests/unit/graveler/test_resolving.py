"""Resolving refs: branches, tags, ids, prefixes, and steps to parents."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from graveler_service import Service, reason_of
from lake import MAIN, Lake

from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId, TagId
from tarn.core.refs import branch_to_write
from tarn_graveler.records.branches import BranchName


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


async def test_a_name_is_preferred_to_a_short_commit_id_and_the_answer_says_so(
    service: Service,
) -> None:
    graveler, admin = service.graveler, service.admin
    await service.put("a", 1)
    old = (await graveler.create_commit(admin, "lake", "main", "one")).commit.commit_id
    await service.put("a", 2)
    new = (await graveler.create_commit(admin, "lake", "main", "two")).commit.commit_id
    short = old[:7]
    assert (await graveler.resolve_ref(admin, "lake", short)).shadowed_commit_id == ""
    assert (await graveler.resolve_ref(admin, "lake", f"{short}~0")).commit.commit_id == old
    await graveler.create_branch(admin, "lake", short, "main")
    for ref, meant in ((short, new), (f"{short}~1", old), (f"{short}@", new)):
        found = await graveler.resolve_ref(admin, "lake", ref)
        assert (found.commit.commit_id, found.shadowed_commit_id) == (meant, old)
    assert await service.size(short, "a") == 2, "every read prefers the name"
    for ref in (old[:8], old, "main", f"{short}@{{0}}"):
        assert (await graveler.resolve_ref(admin, "lake", ref)).shadowed_commit_id == ""
    await graveler.delete_branch(admin, "lake", short)
    await graveler.create_tag(admin, "lake", short, new)
    assert (await graveler.resolve_ref(admin, "lake", short)).shadowed_commit_id == old
    await graveler.delete_tag(admin, "lake", short)
    await graveler.create_tag(admin, "lake", short, old)
    assert (await graveler.resolve_ref(admin, "lake", short)).shadowed_commit_id == ""


async def test_no_new_ref_has_the_form_of_a_commit_id_or_of_a_range(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    invalid = Reason.INVALID_ARGUMENT
    for name in ("AB" * 32, "0f" * 32, "main..dev", "a..", "a...b"):
        assert await reason_of(graveler.create_branch(admin, "lake", name, "main")) is invalid
        assert await reason_of(graveler.create_tag(admin, "lake", name, "main")) is invalid
        made = graveler.create_repository(admin, "other", default_branch_id=name)
        assert await reason_of(made) is invalid
        merged = graveler.create_merge_branch(admin, "lake", name, "main", "main")
        assert await reason_of(merged) is invalid
    assert [each.branch_id for each in (await graveler.list_branches(admin, "lake")).branches] == [
        "main"
    ]


async def test_refs_with_such_names_of_an_older_release_are_read_and_deleted(
    service: Service,
) -> None:
    graveler, admin = service.graveler, service.admin
    await service.put("a", 1)
    head = (await graveler.create_commit(admin, "lake", "main", "one")).commit.commit_id
    replica = service.replicas.made[0]
    repository = await replica.repositories.get("lake")
    for number, name in enumerate(("AB" * 32, "main..dev")):
        branch = BranchName(repository, BranchId(name))
        # As a dump of that release brings it back.
        await replica.branches.create(branch, CommitId(head), create_time_us=1)
        await replica.tags.create(
            repository, TagId(f"v{number}.."), CommitId(head), create_time_us=1
        )
        assert await service.size(name, "a") == 1
        assert (await graveler.get_branch(admin, "lake", name)).commit_id == head
        await service.put("a", 2, name)
        await graveler.create_commit(admin, "lake", name, "two")
        assert await service.size(f"v{number}..", "a") == 1
        await graveler.delete_tag(admin, "lake", f"v{number}..")
        await graveler.delete_branch(admin, "lake", name)
        assert await reason_of(graveler.get_branch(admin, "lake", name)) is Reason.BRANCH_NOT_FOUND
        await graveler.restore_branch(admin, "lake", name)
        assert await service.size(name, "a") == 2


async def test_a_tag_that_took_the_name_of_a_branch_is_found_by_a_replica_that_knew_the_branch(
    service: Service,
) -> None:
    admin, client = service.admin, service.graveler
    head = (await client.create_branch(admin, "lake", "fix", "main")).commit_id

    async def known(other: Service) -> None:
        await client.create_branch(admin, "lake", "fix", "main")
        await other.graveler.list_entries(admin, "lake", "fix", page_size=1)
        await client.delete_branch(admin, "lake", "fix")
        await client.create_tag(admin, "lake", "fix", "main")

    await client.delete_branch(admin, "lake", "fix")
    async with service.another_replica() as other:
        await known(other)
        page = await other.graveler.list_entries(admin, "lake", "fix", page_size=1)
        assert not page.paths
        await client.delete_tag(admin, "lake", "fix")
        await known(other)
        assert (await other.graveler.get_commit(admin, "lake", "fix")).commit_id == head
        await client.delete_tag(admin, "lake", "fix")
        await known(other)
        with pytest.raises(TarnError) as raised:
            await other.graveler.lookup(admin, "lake", "fix", "a")
        assert raised.value.reason is Reason.ENTRY_NOT_FOUND
