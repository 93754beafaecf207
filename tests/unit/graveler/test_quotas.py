"""Quotas: who may set them, what they refuse by every way of writing, and what always passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from graveler_service import Service, reason_of, running_service
from lake import Lake, entry
from lake_links import Bucket, issue, link, written

from tarn.aio.task_set import TaskSet
from tarn.core.condition import WriteCondition
from tarn.core.entry import pack, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.quota import Limits, Quota, QuotaKind
from tarn_graveler.records.quotas import REFRESH_SECONDS
from tarn_graveler.usage.admission import COUNT_SECONDS

REPOSITORY, USER = QuotaKind.REPOSITORY, QuotaKind.USER


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path, store=Bucket) as service:
        yield service


async def limit(service: Service, **limits: int) -> None:
    await service.graveler.set_quota(service.admin, REPOSITORY, "lake", Limits(**limits))


async def refusal(work: object) -> TarnError:
    with pytest.raises(TarnError) as raised:
        await work  # type: ignore[misc]
    assert raised.value.reason is Reason.QUOTA_EXCEEDED
    assert raised.value.kind is Kind.EXHAUSTED
    return raised.value


async def complete(service: Service, path: str = "up") -> str:
    """Uploads an object of 5 bytes in one part; returns the id of its upload."""
    graveler, admin = service.graveler, service.admin
    upload = await graveler.create_upload(admin, "lake", "main", path, template=entry(0))
    begun = await graveler.begin_complete_upload(admin, "lake", upload.upload_id, bytes(32))
    made = unpack(entry(5))
    packed = pack(replace(made, address=upload.address, operation_id=upload.upload_id))
    await graveler.finish_complete_upload(admin, "lake", upload.upload_id, begun.claim, packed)
    return upload.upload_id


async def test_a_write_beyond_the_objects_is_refused_with_limit_and_use(service: Service) -> None:
    await limit(service, staged_objects=2)
    await service.put("a", 1)
    await service.put("b", 1)
    error = await refusal(service.put("c", 1))
    assert error.metadata == {
        "repository": "lake",
        "limit": "staged_objects",
        "allowed": "2",
        "used": "2",
    }
    assert "commit or reset" in error.message
    assert await reason_of(service.size("main", "c")) is Reason.ENTRY_NOT_FOUND


async def test_a_write_beyond_the_bytes_is_refused(service: Service) -> None:
    await limit(service, staged_bytes=10)
    await service.put("a", 6)
    assert (await refusal(service.put("b", 5))).metadata["limit"] == "staged_bytes"
    await service.put("b", 4)


async def test_every_way_of_writing_is_limited(service: Service) -> None:
    """Also conditional writes, completed uploads and linked objects."""
    graveler, admin = service.graveler, service.admin
    await service.put("a", 1)
    issued = await issue(service)
    await written(service, issued)
    upload = await graveler.create_upload(admin, "lake", "main", "up", template=entry(0))
    await limit(service, staged_objects=1)
    absent = WriteCondition(if_none_match=True)
    await refusal(service.stage("c", service.entry(1, "op"), condition=absent))
    await refusal(link(service, issued.token))
    await refusal(graveler.begin_complete_upload(admin, "lake", upload.upload_id, bytes(32)))
    await refusal(complete(service))
    await refusal(issue(service, "other"))
    assert await reason_of(service.size("main", "up")) is Reason.ENTRY_NOT_FOUND


async def test_a_completion_that_has_begun_is_limited_at_its_end(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    upload = await graveler.create_upload(admin, "lake", "main", "up", template=entry(0))
    begun = await graveler.begin_complete_upload(admin, "lake", upload.upload_id, bytes(32))
    await limit(service, staged_objects=1)
    await service.put("a", 1)
    made = replace(unpack(entry(5)), address=upload.address, operation_id=upload.upload_id)
    finish = graveler.finish_complete_upload
    await refusal(finish(admin, "lake", upload.upload_id, begun.claim, pack(made)))
    await graveler.create_commit(admin, "lake", "main", message="room")
    await finish(admin, "lake", upload.upload_id, begun.claim, pack(made))
    # A lost answer is given again, however much is used now.
    await limit(service, staged_objects=1)
    await finish(admin, "lake", upload.upload_id, begun.claim, pack(made))


async def test_deletes_commits_and_resets_always_pass_and_make_room(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await limit(service, staged_objects=2)
    await service.put("a", 1)
    await service.put("b", 1)
    await refusal(service.put("c", 1))
    await graveler.unstage(admin, "lake", "main", "a")
    await service.put("c", 1)
    await refusal(service.put("d", 1))
    await graveler.create_commit(admin, "lake", "main", message="room")
    await service.put("d", 1)
    await service.put("e", 1)
    await refusal(service.put("f", 1))
    await graveler.reset_branch(admin, "lake", "main")
    await service.put("f", 1)


async def test_a_compaction_makes_no_room(service: Service) -> None:
    await limit(service, staged_objects=2)
    await service.put("a", 1)
    await service.put("b", 1)
    await service.graveler.compact_branch(service.admin, "lake", "main")
    await refusal(service.put("c", 1))


async def test_an_object_that_is_written_again_and_again_is_one_object(service: Service) -> None:
    await limit(service, staged_objects=2)
    for _ in range(5):
        await service.put("a", 1)
    await service.put("b", 1)
    await refusal(service.put("c", 1))


async def test_what_another_replica_writes_is_known_after_the_time_of_a_count(
    service: Service,
) -> None:
    await limit(service, staged_objects=3)
    async with service.another_replica() as other:
        await limit(other, staged_objects=3)
        await other.put("a", 1)
        await service.put("b", 1)
        await service.put("c", 1)
        service.clock.advance(COUNT_SECONDS + 1)
        await other.put("d", 1)  # it has the next count begun
        for _ in range(100):
            await asyncio.sleep(0)
        await refusal(other.put("e", 1))


async def test_a_commit_at_another_replica_makes_room_at_once(service: Service) -> None:
    """A refusal is never told by an old count."""
    await limit(service, staged_objects=1)
    await service.put("a", 1)
    await refusal(service.put("b", 1))
    async with service.another_replica() as other:
        await other.graveler.create_commit(service.admin, "lake", "main", message="room")
    await service.put("b", 1)


async def test_branches_are_limited_by_every_way_of_making_them(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await graveler.create_branch(admin, "lake", "dev", "main")
    await graveler.create_branch(admin, "lake", "old", "main")
    await graveler.delete_branch(admin, "lake", "old")
    await limit(service, branches=2)
    assert (await refusal(graveler.create_branch(admin, "lake", "x", "main"))).metadata == {
        "repository": "lake",
        "limit": "branches",
        "allowed": "2",
        "used": "2",
    }
    await refusal(graveler.restore_branch(admin, "lake", "old"))
    await graveler.delete_branch(admin, "lake", "dev")
    await graveler.restore_branch(admin, "lake", "old")


async def test_open_uploads_are_limited_and_aborts_make_room(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await limit(service, uploads=2)
    first = await graveler.create_upload(admin, "lake", "main", "a", template=entry(0))
    await issue(service)
    for work in (
        graveler.create_upload(admin, "lake", "main", "b", template=entry(0)),
        issue(service, "other"),
    ):
        assert (await refusal(work)).metadata["limit"] == "uploads"
    await graveler.abort_upload(admin, "lake", first.upload_id)
    await complete(service)
    await graveler.create_upload(admin, "lake", "main", "b", template=entry(0))


async def test_quotas_need_a_permission_of_their_own(service: Service) -> None:
    dev = await service.as_user("dev", "Developer")
    graveler = service.graveler
    for work in (
        graveler.set_quota(dev, REPOSITORY, "lake", Limits(branches=9)),
        graveler.get_quota(dev, REPOSITORY, "lake"),
        graveler.list_quotas(dev),
    ):
        assert await reason_of(work) is Reason.ACCESS_DENIED


async def test_quotas_are_shown_listed_and_removed(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await limit(service, branches=5, uploads=7)
    await graveler.set_quota(admin, USER, "ann", Limits(requests_per_second=3))
    await service.put("a", 8)
    shown = await graveler.get_quota(admin, REPOSITORY, "lake")
    assert (shown.is_set, shown.limits.branches, shown.limits.uploads) == (True, 5, 7)
    used = shown.used
    assert (used.staged_objects, used.staged_bytes, used.branches, used.uploads) == (1, 8, 1, 0)
    first = await graveler.list_quotas(admin, page_size=1)
    second = await graveler.list_quotas(admin, page_size=1, page_token=first.next_page_token)
    assert [(q.kind, q.name) for q in (*first.quotas, *second.quotas)] == [
        ("repository", "lake"),
        ("user", "ann"),
    ]
    assert not second.next_page_token
    await graveler.set_quota(admin, REPOSITORY, "lake", Limits())
    assert not (await graveler.get_quota(admin, REPOSITORY, "lake")).is_set
    assert not (await graveler.get_quota(admin, REPOSITORY, "no-such-lake")).HasField("used")


@pytest.mark.parametrize(
    ("kind", "name", "limits"),
    [
        (REPOSITORY, "lake", Limits(branches=-1)),
        (REPOSITORY, "No Name", Limits(branches=1)),
        (USER, "ann", Limits(branches=1)),
        ("group", "x", Limits(requests_per_second=1)),
    ],
)
async def test_invalid_quotas_are_refused(
    service: Service, kind: QuotaKind, name: str, limits: Limits
) -> None:
    with pytest.raises(TarnError) as raised:
        await service.graveler.set_quota(service.admin, kind, name, limits)
    assert raised.value.kind is Kind.INVALID


async def test_another_replica_takes_a_change_over(lake: Lake, other: Lake) -> None:
    """It reads all quotas again every `REFRESH_SECONDS`, and keeps them while the store is out of reach."""
    records, theirs = lake.graveler.admission.records, other.graveler.admission.records
    await records.set(Quota(REPOSITORY, "lake", Limits(branches=4)))
    assert records.of_repository("lake").branches == 4
    assert not theirs.of_repository("lake")
    tasks = TaskSet()
    tasks.spawn(theirs.run())
    await asyncio.sleep(0)
    lake.clock.advance(REFRESH_SECONDS)
    for _ in range(10):
        await asyncio.sleep(0)
    assert theirs.of_repository("lake").branches == 4
    await tasks.close()
