"""Versioning on a real node, through two replicas: merges, resets, reflogs, rules and iterators.

The node alone can show that compare-and-sets of several replicas exclude each other under contention, that settling
reads find what was applied, and that pages over buckets come in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from graveler_service import Service, reason_of
from lake_rules import ALL, protect
from lake_tasks import handler_of, head, repository_of

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb
from tarn_proto.graveler.v1 import settings_service_pb2 as settings_pb
from tarn_proto.graveler.v1.reflog_service_pb2 import HeadChange, HeadOperation

pytestmark = [pytest.mark.cassandra, pytest.mark.timeout(180)]

REPEATED = (Kind.UNAVAILABLE, Kind.EXHAUSTED, Kind.UNKNOWN_OUTCOME)


async def commit(service: Service, branch: str, **sizes: int) -> CommitId:
    for path, size in sizes.items():
        await service.put(path, size, branch)
    made = await service.graveler.create_commit(service.admin, "lake", branch, f"on {branch}")
    return CommitId(made.commit.commit_id)


async def paths(service: Service, ref: str, prefix: str = "") -> list[str]:
    """Returns the paths of a ref, by pages of three."""
    found: list[str] = []
    token = ""
    while True:
        page = await service.graveler.list_entries(
            service.admin, "lake", ref, prefix=prefix, page_size=3, page_token=token
        )
        assert len(page.paths) <= 3
        found += page.paths
        token = page.next_page_token
        if not token:
            return found


async def test_merge_with_conflicts_and_with_a_choice(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await commit(service, "main", a=1, b=1, c=1)
    await graveler.create_branch(admin, "lake", "side", "main")
    source = await commit(service, "side", a=2, b=2, s=2)
    dest = await commit(service, "main", a=3, b=3, m=3)
    async with service.another_replica() as other:
        with pytest.raises(TarnError) as caught:
            await other.graveler.merge(admin, "lake", "main", "side")
        assert caught.value.reason is Reason.MERGE_CONFLICT
        preview = await graveler.preview_merge(admin, "lake", "main", "side")
        assert [each.path for each in preview.conflicts] == ["a", "b"]
        assert await head(service) == dest
        choice = merge_pb.ConflictChoice(pattern="a", side=merge_pb.MERGE_SIDE_SOURCE)
        made = await other.graveler.merge(
            admin, "lake", "main", "side",
            choices=[choice], default_side=merge_pb.MERGE_SIDE_DESTINATION,
        )  # fmt: skip
    assert list(made.parent_ids) == [dest, source]
    sizes = {path: await service.size("main", path) for path in await paths(service, "main")}
    assert sizes == {"a": 2, "b": 3, "c": 1, "m": 3, "s": 2}
    assert await paths(service, dest) == ["a", "b", "c", "m"]


async def test_eight_merges_into_one_branch_at_once_are_all_made_once(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    sources: dict[str, CommitId] = {}
    for number in range(8):
        await graveler.create_branch(admin, "lake", f"b{number}", "main")
        sources[f"b{number}"] = await commit(service, f"b{number}", **{f"p{number}": number})
    async with service.another_replica() as other:

        async def merge(by: Service, name: str) -> None:
            while True:
                try:
                    await by.graveler.merge(admin, "lake", "main", name)
                except TarnError as error:
                    # After an unknown outcome the merge may have been made already.
                    if error.reason is Reason.NOTHING_TO_MERGE:
                        return
                    if error.kind not in REPEATED:
                        raise
                else:
                    return

        async with asyncio.TaskGroup() as group:
            for number, name in enumerate(sources):
                group.create_task(merge((service, other)[number % 2], name))
        page = await other.graveler.list_commits(admin, "lake", "main", first_parent=True)
    merged = [each.parent_ids[1] for each in page.commits if len(each.parent_ids) == 2]
    assert sorted(merged) == sorted(sources.values())
    assert await paths(service, "main") == [f"p{number}" for number in range(8)]
    found = (await graveler.list_reflog(admin, "lake", "main")).entries
    assert (
        len([each for each in found if each.operation == HeadOperation.HEAD_OPERATION_MERGE]) == 8
    )


async def test_reset_of_a_prefix_beside_a_writer(service: Service) -> None:
    """All that was acknowledged before the reset is gone, all that was begun after it stays, the rest is untouched."""
    graveler, admin = service.graveler, service.admin
    await commit(service, "main", **{"raw/committed": 1})
    written: list[int] = []
    stop = asyncio.Event()
    async with service.another_replica() as other:

        async def write() -> None:
            while not stop.is_set():
                number = len(written)
                await other.put(f"raw/{number:04}", 1)
                await other.put(f"rest/{number:04}", 1)
                written.append(number)

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            await _reaches(written, 5)
            before = len(written)
            await graveler.reset_branch(admin, "lake", "main", prefix="raw/")
            after = len(written) + 1  # one pair may be under way
            await _reaches(written, after + 5)
            stop.set()
        raw = await paths(other, "main", "raw/")
    assert raw == await paths(service, "main", "raw/")
    assert raw.pop() == "raw/committed"
    numbers = [int(path.removeprefix("raw/")) for path in raw]
    assert min(numbers) >= before
    assert set(range(after, len(written))) <= set(numbers)
    everything = [f"rest/{number:04}" for number in range(len(written))]
    assert await paths(service, "main", "rest/") == everything
    await graveler.create_commit(admin, "lake", "main", "what is left")
    assert await paths(service, "main@", "rest/") == everything
    assert await paths(service, "main@", "raw/") == [*raw, "raw/committed"]


async def _reaches(written: Sequence[int], count: int) -> None:
    async with asyncio.timeout(60):
        while len(written) < count:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)


async def test_reflog_and_time_travel(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    heads = [await head(service)]
    for size in (1, 2, 3):
        service.clock.advance(60)
        heads.append(await commit(service, "main", a=size))
    service.clock.advance(30)
    async with service.another_replica() as other:
        assert [await other.size(f"main@{{{back}}}", "a") for back in (0, 1, 2)] == [3, 2, 1]
        assert await other.size("main@{80 seconds ago}", "a") == 2
        assert await other.size("main@{140 seconds ago}", "a") == 1
        entries: list[HeadChange] = []
        token = ""
        while True:
            page = await other.graveler.list_reflog(
                admin, "lake", "main", page_size=2, page_token=token
            )
            entries += page.entries
            token = page.next_page_token
            if not token:
                break
        assert [each.new_commit_id for each in entries] == heads[::-1]
        assert [each.old_commit_id for each in entries] == [*heads[:-1][::-1], ""]
        await graveler.create_branch(admin, "lake", "gone", "main@{1}")
        await graveler.delete_branch(admin, "lake", "gone")
        (deleted,) = (await other.graveler.list_deleted_branches(admin, "lake")).branches
        assert deleted.branch_id == "gone"
        await other.graveler.restore_branch(admin, "lake", "gone")
    assert (await graveler.get_branch(admin, "lake", "gone")).commit_id == heads[2]
    assert await service.size("gone", "a") == 2


async def test_rules_are_in_force_on_a_second_replica(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await graveler.create_branch(admin, "lake", "side", "main")
    await commit(service, "side", a=1)
    async with service.another_replica() as other:
        await other.put("warm", 1)  # this replica knows the rules of before
        await protect(service, settings_pb.Protection(pattern="main", blocked=ALL))
        protected = Reason.BRANCH_PROTECTED
        assert await reason_of(other.graveler.merge(admin, "lake", "main", "side")) is protected
        assert await reason_of(other.graveler.create_commit(admin, "lake", "main", "")) is protected
        assert await reason_of(other.graveler.reset_branch(admin, "lake", "main")) is protected
        service.clock.advance(5)
        assert await reason_of(other.put("late", 1)) is protected
        await protect(other)
        await graveler.reset_branch(admin, "lake", "main")
        service.clock.advance(5)
        await service.put("again", 1)
        assert await paths(other, "main") == ["again"]


async def test_iterators_with_paging(service: Service) -> None:
    """Rows of eight buckets come in byte order, once each, by pages of every size."""
    graveler, admin = service.graveler, service.admin
    names = sorted(
        [f"b{number}" for number in range(20)] + ["b-1", "b.1", "b_1", "B1", "c1", "main"]
    )
    for name in names:
        if name != "main":
            await graveler.create_branch(admin, "lake", name, "main")
    tags = sorted(f"t{number}" for number in range(12))
    commits = {await head(service)}
    for name in tags:
        commits.add(await commit(service, "main", a=len(commits)))
        await graveler.create_tag(admin, "lake", name, "main")
    async with service.another_replica() as other:
        for size in (1, 4, 100):

            async def branches(token: str, size: int = size) -> tuple[list[str], str]:
                page = await other.graveler.list_branches(
                    admin, "lake", page_size=size, page_token=token
                )
                return [each.branch_id for each in page.branches], page.next_page_token

            async def tagged(token: str, size: int = size) -> tuple[list[str], str]:
                page = await other.graveler.list_tags(
                    admin, "lake", prefix="t1", page_size=size, page_token=token
                )
                return [each.tag_id for each in page.tags], page.next_page_token

            assert await _pages(branches, size) == names
            assert await _pages(tagged, size) == ["t1", "t10", "t11"]
        iterators = handler_of(other, ".BranchService")._iterators
        repository = await repository_of(other)
        assert await _walk(iterators.commits(repository), 5) == sorted(commits)
        assert await _walk(iterators.line_heads(repository), 5) == [await head(service)]
        cursor = iterators.branches(repository, prefix="b1")
        cursor.seek("b15")
        assert await _walk(cursor, 2) == ["b15", "b16", "b17", "b18", "b19"]


async def _pages(read: Callable[[str], Awaitable[tuple[list[str], str]]], size: int) -> list[str]:
    found: list[str] = []
    token = ""
    while True:
        page, token = await read(token)
        assert len(page) <= size
        found += page
        if not token:
            return found


async def _walk(cursor: Any, size: int) -> list[str]:
    found: list[str] = []
    while True:
        page = await cursor.page(size)
        assert len(page.items) <= size
        found += [key for key, _ in page.items]
        if page.next_after is None:
            return found
        cursor.seek_behind(page.next_after)
