"""ReflogService as its callers see it: over the in-process transport, with the real auth."""

from __future__ import annotations

import pytest
from graveler_service import Service, reason_of

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import HeadChange
from tarn.core.ids import BranchId
from tarn.kv.records import Repository
from tarn_graveler.refs.reflog import Reflog
from tarn_proto.graveler.v1 import reflog_service_pb2 as pb


async def commit(service: Service, size: int, branch: str = "main") -> str:
    await service.put("a", size, branch)
    made = await service.graveler.create_commit(service.admin, "lake", branch, f"commit {size}")
    return made.commit.commit_id


async def everything(service: Service, branch: str, page_size: int) -> list[pb.HeadChange]:
    found: list[pb.HeadChange] = []
    token = ""
    while True:
        page = await service.graveler.list_reflog(
            service.admin, "lake", branch, page_size=page_size, page_token=token
        )
        assert len(page.entries) <= page_size
        found += page.entries
        token = page.next_page_token
        if not token:
            return found


async def test_each_rpc_that_moves_a_head_records_its_caller(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    dev = await service.as_user("dee", "Developer")
    first = (await graveler.get_branch(admin, "lake", "main")).commit_id
    await graveler.create_branch(dev, "lake", "dev", "main")
    await service.put("a", 1, "dev")
    made = (await graveler.create_commit(dev, "lake", "dev", "m")).commit.commit_id
    reverted = (await graveler.revert(dev, "lake", "dev", made)).commit_id
    picked = (await graveler.cherry_pick(dev, "lake", "dev", made)).commit_id
    await graveler.create_branch(admin, "lake", "other", "main")
    await service.put("b", 1, "other")
    await graveler.create_commit(admin, "lake", "other", "m")
    merged = (await graveler.merge(dev, "lake", "dev", "other")).commit_id
    for force in (False, True):
        head = (await graveler.get_branch(dev, "lake", "dev")).commit_id
        target = made if force else first
        await graveler.move_branch(dev, "lake", "dev", target, expected_commit_id=head, force=force)
    await graveler.delete_branch(dev, "lake", "dev")
    await graveler.restore_branch(dev, "lake", "dev")
    found = await everything(service, "dev", 100)
    assert {each.user_id for each in found} == {"dee"}
    names = [pb.HeadOperation.Name(each.operation)[15:].lower() for each in reversed(found)]
    assert names == [
        *("create", "commit", "revert", "cherry_pick", "merge", "move", "move", "delete"),
        "restore",
    ]
    heads = [each.new_commit_id for each in reversed(found)]
    assert heads == [first, made, reverted, picked, merged, first, made, "", made]
    (creation,) = (each for each in await everything(service, "main", 100))
    assert creation.user_id == "root", "of the repository"


@pytest.mark.parametrize("page_size", [1, 2, 1000])
async def test_pages_hold_every_entry_once_also_beside_commits(
    service: Service, page_size: int
) -> None:
    commits = [await commit(service, number) for number in range(4)]
    found = await everything(service, "main", page_size)
    assert [each.new_commit_id for each in found[:-1]] == commits[::-1]
    first = await service.graveler.list_reflog(service.admin, "lake", "main", page_size=2)
    await commit(service, 9)
    rest = await service.graveler.list_reflog(
        service.admin, "lake", "main", page_token=first.next_page_token
    )
    assert [*first.entries, *rest.entries] == found


async def test_a_page_token_belongs_to_its_branch_and_its_caller(service: Service) -> None:
    await commit(service, 1)
    await service.graveler.create_branch(service.admin, "lake", "dev", "main")
    page = await service.graveler.list_reflog(service.admin, "lake", "main", page_size=1)
    ann = await service.as_user("ann", "Analyst")
    for call, branch in ((service.admin, "dev"), (ann, "main")):
        work = service.graveler.list_reflog(call, "lake", branch, page_token=page.next_page_token)
        with pytest.raises(TarnError) as raised:
            await work
        assert raised.value.kind is Kind.INVALID


async def test_what_cannot_be_listed_or_restored_is_refused(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    missing = Reason.BRANCH_NOT_FOUND
    assert await reason_of(graveler.list_reflog(admin, "lake", "never")) is missing
    assert await reason_of(graveler.restore_branch(admin, "lake", "never")) is missing
    exists = Reason.BRANCH_EXISTS
    assert await reason_of(graveler.restore_branch(admin, "lake", "main")) is exists
    invalid = Reason.INVALID_ARGUMENT
    for name in ("", "a/b", "main@{1}", "x" * 129, "log/../x"):
        for work in (
            graveler.list_reflog(admin, "lake", name),
            graveler.restore_branch(admin, "lake", name),
        ):
            with pytest.raises(TarnError) as raised:
                await work
            assert raised.value.kind in (Kind.INVALID, Kind.DENIED), name
    assert await reason_of(graveler.list_reflog(admin, "lake", "a b")) is invalid
    await graveler.create_branch(admin, "lake", "dev", "main")
    await graveler.delete_branch(admin, "lake", "dev")
    await graveler.create_tag(admin, "lake", "dev", "main")
    assert await reason_of(graveler.restore_branch(admin, "lake", "dev")) is Reason.TAG_EXISTS


async def test_restoring_needs_the_permission_to_write(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await graveler.create_branch(admin, "lake", "dev", "main")
    head = await commit(service, 5, "dev")
    await service.put("a", 6, "dev")
    await graveler.delete_branch(admin, "lake", "dev")
    ann = await service.as_user("ann", "Analyst")
    assert await reason_of(graveler.restore_branch(ann, "lake", "dev")) is Reason.ACCESS_DENIED
    (found,) = (await graveler.list_deleted_branches(ann, "lake")).branches
    assert (found.branch_id, found.commit_id, found.user_id) == ("dev", head, "root")
    assert (await graveler.restore_branch(admin, "lake", "dev")).commit_id == head
    assert await service.size("dev", "a") == 5, "what was uncommitted is lost"
    assert list((await graveler.list_deleted_branches(ann, "lake")).branches) == []
    assert await reason_of(graveler.restore_branch(admin, "lake", "dev")) is Reason.BRANCH_EXISTS


async def test_a_moment_is_a_ref_for_readers_and_not_for_writers(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    for size in (1, 2, 3):
        await commit(service, size)
    assert [await service.size(f"main@{{{back}}}", "a") for back in range(3)] == [3, 2, 1]
    await graveler.create_branch(admin, "lake", "old", "main@{2}")
    assert await service.size("old", "a") == 1
    await graveler.create_tag(admin, "lake", "v2", "main@{1}~0")
    assert await service.size("v2", "a") == 2
    stage = service.stage("a", service.entry(1), "main@{0}")
    with pytest.raises(TarnError) as raised:
        await stage
    assert raised.value.kind is Kind.INVALID
    work = graveler.create_commit(admin, "lake", "main@{0}", "m")
    assert await reason_of(work) is Reason.INVALID_ARGUMENT


async def test_a_restore_does_not_bring_back_an_older_head_than_the_last_one(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its two steps the branch is restored, takes a commit and is deleted again."""
    graveler, admin = service.graveler, service.admin
    await graveler.create_branch(admin, "lake", "dev", "main")
    await graveler.delete_branch(admin, "lake", "dev")
    read = Reflog.deletion
    made = []

    async def slow(self: Reflog, repository: Repository, branch_id: BranchId) -> HeadChange | None:
        found = await read(self, repository, branch_id)
        monkeypatch.setattr(Reflog, "deletion", read)
        await graveler.restore_branch(admin, "lake", "dev")
        made.append(await commit(service, 1, "dev"))
        await graveler.delete_branch(admin, "lake", "dev")
        return found

    monkeypatch.setattr(Reflog, "deletion", slow)
    assert await reason_of(graveler.restore_branch(admin, "lake", "dev")) is Reason.REF_MOVED
    assert [(await graveler.restore_branch(admin, "lake", "dev")).commit_id] == made
