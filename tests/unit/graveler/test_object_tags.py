"""Object tags are a part of the object: versioning keeps every change of them, and no write of them hides another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from dumped_lake import another_installation, dump, restore
from graveler_service import Service, reason_of, running_service
from lake import entry
from lake_links import Bucket, issue

from tarn.client.graveler import GravelerClient
from tarn.client.values import ObjectVersion
from tarn.core.condition import ANY, WriteCondition, identity_match
from tarn.core.entry import pack, unpack
from tarn.core.errors import Reason
from tarn.core.levels import LEVEL_FIRST, FeatureGate
from tarn.core.object_tags import Tags
from tarn.core.part_list import PartList, parts_of
from tarn.gate.access import Access
from tarn.rpc.client.inprocess import InProcessTransport
from tarn_graveler.application import endpoints_of

ONE: Tags = (("team", "ada"),)
TWO: Tags = (("team", "bob"),)


async def tags_at(service: Service, ref: str, path: str = "a") -> Tags:
    found = await service.graveler.lookup(service.admin, "lake", ref, path)
    return unpack(found.entry).tags


async def retag(service: Service, tags: Tags, branch: str = "main", operation: str = "op") -> bytes:
    """Writes the object anew with other tags, as a gateway does; returns its entry."""
    found = (await service.graveler.lookup(service.admin, "lake", branch, "a")).entry
    condition = WriteCondition(if_match=identity_match(found))
    address = unpack(service.entry(0)).address
    made = pack(
        replace(unpack(found), tags=tags, address=address, operation_id=operation, parts=b"")
    )
    await service.stage("a", made, branch, condition)
    return made


async def test_a_change_of_tags_is_a_change_that_commits_merges_and_dumps_keep(
    service: Service, tmp_path: Path
) -> None:
    graveler, admin = service.graveler, service.admin
    await service.put("a", 5)
    first = await graveler.create_commit(admin, "lake", "main", "untagged")
    await graveler.create_branch(admin, "lake", "dev", "main")
    await service.put("other", 7, "dev")
    await graveler.create_commit(admin, "lake", "dev", "other")
    made = await retag(service, ONE)
    page = await graveler.diff_uncommitted(admin, "lake", "main")
    assert list(page.paths) == ["a"]
    assert (unpack(page.left_entries[0]).tags, unpack(page.right_entries[0]).tags) == ((), ONE)
    assert ObjectVersion.of("a", made).tags == dict(ONE)
    tagged = await graveler.create_commit(admin, "lake", "main", "tagged")
    await graveler.merge(admin, "lake", "dev", "main")
    await graveler.merge(admin, "lake", "main", "dev")
    for ref in ("main@", tagged.commit.commit_id, "dev@"):
        assert await tags_at(service, ref) == ONE
    assert await tags_at(service, first.commit.commit_id) == ()
    await retag(service, ONE, operation="again")
    assert await reason_of(graveler.create_commit(admin, "lake", "main", "again")) == (
        Reason.NOTHING_TO_COMMIT
    )
    await graveler.revert(admin, "lake", "main", tagged.commit.commit_id)
    assert await tags_at(service, "main") == ()
    await dump(service, tmp_path / "dump")
    async with another_installation(service, tmp_path / "other") as restored:
        await restore(restored, tmp_path / "dump")
        assert await tags_at(restored, "dev") == ONE


async def test_two_changes_of_tags_are_a_conflict_and_none_is_lost(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await service.put("a", 5)
    await graveler.create_commit(admin, "lake", "main", "base")
    await graveler.create_branch(admin, "lake", "dev", "main")
    for branch, tags in (("main", ONE), ("dev", TWO)):
        await retag(service, tags, branch)
        await graveler.create_commit(admin, "lake", branch, "tags")
    assert await reason_of(graveler.merge(admin, "lake", "dev", "main")) is Reason.MERGE_CONFLICT
    assert (await tags_at(service, "main"), await tags_at(service, "dev")) == (ONE, TWO)


# ---- the condition


@pytest.mark.parametrize("is_committed", [False, True])
async def test_a_write_with_an_identity_replaces_that_object_only(
    service: Service, is_committed: bool
) -> None:
    """The other object has the same ETag."""
    await service.put("a", 5)
    read = (await service.graveler.lookup(service.admin, "lake", "main", "a")).entry
    condition = WriteCondition(if_match=identity_match(read))
    tagged = pack(replace(unpack(read), tags=ONE, operation_id="mine"))
    newer = pack(replace(unpack(service.entry(5)), content_type="text/csv"))
    await service.stage("a", newer)
    if is_committed:
        await service.graveler.create_commit(service.admin, "lake", "main", "newer")
    refused = service.stage("a", tagged, condition=condition)
    assert await reason_of(refused) is Reason.PRECONDITION_FAILED
    found = (await service.graveler.lookup(service.admin, "lake", "main", "a")).entry
    assert found == newer
    assert await service.stage("a", await _again(service), condition=await _now(service)) is False
    assert await tags_at(service, "main") == ONE


async def _again(service: Service) -> bytes:
    found = (await service.graveler.lookup(service.admin, "lake", "main", "a")).entry
    return pack(replace(unpack(found), tags=ONE, operation_id="again"))


async def _now(service: Service) -> WriteCondition:
    found = (await service.graveler.lookup(service.admin, "lake", "main", "a")).entry
    return WriteCondition(if_match=identity_match(found))


async def test_an_object_that_was_deleted_does_not_come_back(service: Service) -> None:
    await service.put("a", 5)
    tagged, condition = await _again(service), await _now(service)
    await service.graveler.unstage(service.admin, "lake", "main", "a")
    refused = service.stage("a", tagged, condition=condition)
    assert await reason_of(refused) is Reason.ENTRY_NOT_FOUND


async def test_a_repeated_write_of_tags_is_recognised(service: Service) -> None:
    await service.put("a", 5)
    tagged, condition = await _again(service), await _now(service)
    assert await service.stage("a", tagged, condition=condition) is False
    other = pack(replace(unpack(tagged), address=unpack(service.entry(0)).address))
    assert await service.stage("a", other, condition=condition) is True


# ---- parts


async def test_the_parts_of_an_object_stay_when_it_gets_tags(service: Service) -> None:
    parts = PartList.of([5 << 20, 9])
    size = parts.size
    made = replace(unpack(service.entry(size)), etag_parts=2)
    await service.stage("a", pack(made))
    tagged = pack(replace(made, tags=ONE, operation_id="op"))
    condition = await _now(service)
    for forged in (PartList.of([5 << 20, 8]).encode(), PartList.of([size]).encode(), b"\0"):
        refused = service.stage("a", tagged, condition=condition, parts=forged)
        assert await reason_of(refused) is Reason.INVALID_ARGUMENT
    for other in (WriteCondition(), WriteCondition(if_match=ANY)):
        packed = tagged if other else pack(replace(made, tags=ONE))
        refused = service.stage("a", packed, condition=other, parts=parts.encode())
        assert await reason_of(refused) is Reason.INVALID_ARGUMENT
    await service.stage("a", tagged, condition=condition, parts=parts.encode())
    found = await service.graveler.lookup(service.admin, "lake", "main", "a")
    assert parts_of(unpack(found.entry)) == parts


# ---- feature levels

Way = Callable[[Service, bytes], Awaitable[object]]


async def _stage(service: Service, packed: bytes) -> object:
    return await service.stage("a", packed)


async def _upload(service: Service, packed: bytes) -> object:
    return await service.graveler.create_upload(service.admin, "lake", "main", "a", template=packed)


async def _link(service: Service, packed: bytes) -> object:
    return await issue(service, "a", template=packed)


@pytest.mark.parametrize("way", [_stage, _upload, _link])
async def test_no_tags_are_kept_while_the_last_release_may_run(tmp_path: Path, way: Way) -> None:
    async with running_service(tmp_path, store=Bucket) as service:
        graveler = replace(service.replica, features=FeatureGate.at(LEVEL_FIRST))
        access = Access(service.auth, service.clock)
        transport = InProcessTransport(endpoints_of(graveler, access), service.clock)
        old = replace(service, graveler=GravelerClient(transport))
        plain = service.entry(5) if way is _stage else entry(0)
        tagged = pack(replace(unpack(plain), tags=ONE))
        assert await reason_of(way(old, tagged)) is Reason.FEATURE_LEVEL
        await way(old, plain)
        await way(service, tagged)
        await transport.close()
