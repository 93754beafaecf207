"""Bucket views: one holder of each name, changes by compare-and-set, and calls that confirm what they resolved."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace

import pytest
from graveler_service import Service
from lake import Lake, Running, reached

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RepositoryId
from tarn.kv.keys import InstallationKeys
from tarn.kv.records import BucketView
from tarn.rpc.wire.call import Call
from tarn_graveler.records.bucket_views import etag_of

KEYS = InstallationKeys("test")
SALES = RepositoryId("sales")
ROW = KEYS.repository(SALES)


async def refusal(work: Awaitable[object]) -> TarnError:
    with pytest.raises(TarnError) as raised:
        await work
    return raised.value


def through(call: Call, view: BucketView) -> Call:
    return replace(call, bucket=f"{view.bucket_id}:{etag_of(view)}")


async def create(lake: Lake, ref: str = "main") -> BucketView:
    return await lake.graveler.bucket_views.create(SALES, lake.repository, ref)


# ---- one name, one holder


async def test_a_name_belongs_to_a_repository_or_to_a_view(service: Service) -> None:
    tarn, call = service.graveler, service.admin
    made = await tarn.create_bucket_view(call, "sales", "lake")
    assert (made.repository_id, made.ref) == ("lake", "main")
    assert await tarn.get_bucket_view(call, "sales") == made
    taken = await refusal(tarn.create_repository(call, "sales"))
    assert taken.reason is Reason.REPOSITORY_EXISTS
    assert "bucket view" in taken.message
    for name in ("sales", "lake"):
        again = await refusal(tarn.create_bucket_view(call, name, "lake"))
        assert again.reason is Reason.BUCKET_EXISTS
    assert (await refusal(tarn.get_bucket_view(call, "lake"))).reason is Reason.BUCKET_NOT_FOUND


async def test_a_view_is_no_repository(service: Service) -> None:
    """Nothing that is meant for a repository touches it."""
    tarn, call = service.graveler, service.admin
    await tarn.create_bucket_view(call, "sales", "lake")
    for work in (
        tarn.get_repository(call, "sales"),
        tarn.delete_repository(call, "sales"),
        tarn.list_entries(call, "sales", "main"),
        tarn.create_bucket_view(call, "more", "sales"),
        tarn.get_settings(call, "sales"),
    ):
        assert (await refusal(work)).reason is Reason.REPOSITORY_NOT_FOUND
    assert [each.repository_id for each in (await tarn.list_repositories(call)).repositories] == [
        "lake"
    ]
    assert (await tarn.get_bucket_view(call, "sales")).ref == "main"


async def test_names_are_listed_together(service: Service) -> None:
    tarn, call = service.graveler, service.admin
    for name in ("zoo", "ant"):
        await tarn.create_bucket_view(call, name, "lake")
    first = await tarn.list_buckets(call, page_size=2)
    rest = await tarn.list_buckets(call, page_size=2, page_token=first.next_page_token)
    found = [*first.buckets, *rest.buckets]
    assert [(each.bucket_id, each.view.repository_id) for each in found] == [
        ("ant", "lake"),
        ("lake", ""),
        ("zoo", "lake"),
    ]
    views = await tarn.list_buckets(call, views_only=True)
    assert [each.bucket_id for each in views.buckets] == ["ant", "zoo"]


async def test_a_view_shows_what_exists(service: Service) -> None:
    tarn, call = service.graveler, service.admin
    missing = await refusal(tarn.create_bucket_view(call, "sales", "pond"))
    assert missing.reason is Reason.REPOSITORY_NOT_FOUND
    missing = await refusal(tarn.create_bucket_view(call, "sales", "lake", "nowhere"))
    assert missing.reason is Reason.REF_NOT_FOUND
    await tarn.create_bucket_view(call, "sales", "lake", "main@")
    missing = await refusal(tarn.point_bucket_view(call, "sales", "lake", "nowhere"))
    assert missing.reason is Reason.REF_NOT_FOUND
    assert (await tarn.get_bucket_view(call, "sales")).ref == "main@"


async def test_a_name_is_free_after_its_view_is_deleted(service: Service) -> None:
    tarn, call = service.graveler, service.admin
    await tarn.create_bucket_view(call, "sales", "lake")
    await tarn.delete_bucket_view(call, "sales")
    assert (await refusal(tarn.delete_bucket_view(call, "sales"))).reason is Reason.BUCKET_NOT_FOUND
    await tarn.create_repository(call, "sales")
    assert (await tarn.get_repository(call, "sales")).repository_id == "sales"


# ---- permissions


async def test_views_are_made_by_administrators_and_seen_by_readers(service: Service) -> None:
    tarn = service.graveler
    await tarn.create_bucket_view(service.admin, "sales", "lake")
    developer = replace(await service.as_user("dev", "Developer"), service_token="")
    for work in (
        tarn.create_bucket_view(developer, "mine", "lake"),
        tarn.point_bucket_view(developer, "sales", "lake"),
        tarn.delete_bucket_view(developer, "sales"),
    ):
        assert (await refusal(work)).reason is Reason.ACCESS_DENIED
    assert (await tarn.get_bucket_view(developer, "sales")).repository_id == "lake"


async def test_who_may_not_read_the_repository_does_not_learn_of_its_view(service: Service) -> None:
    tarn = service.graveler
    await tarn.create_bucket_view(service.admin, "sales", "lake")
    gateway = replace(service.admin, caller_token=await service.gateway_token(), service_token="")
    error = await refusal(tarn.get_bucket_view(gateway, "sales"))
    assert (error.reason, "lake" in error.message) == (Reason.BUCKET_NOT_FOUND, False)
    assert list((await tarn.list_buckets(service.admin)).buckets)


# ---- changes


async def test_point_is_a_compare_and_set(lake: Lake) -> None:
    views = lake.graveler.bucket_views
    made = await create(lake)
    pointed = await views.point(SALES, lake.repository, "main@", etag_of(made))
    assert (pointed.ref, pointed.generation, pointed.uid) == ("main@", 2, made.uid)
    late = await refusal(views.point(SALES, lake.repository, "main~1", etag_of(made)))
    assert (late.kind, late.reason) == (Kind.CONFLICT, Reason.BUCKET_MOVED)
    assert (await refusal(views.delete(SALES, etag_of(made)))).reason is Reason.BUCKET_MOVED
    assert (await views.point(SALES, lake.repository, "main")).generation == 3
    await views.delete(SALES)
    assert (await refusal(views.get(SALES))).reason is Reason.BUCKET_NOT_FOUND


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not-applied"])
async def test_a_change_whose_answer_is_lost_is_settled(lake: Lake, applied: bool) -> None:
    views = lake.graveler.bucket_views
    lake.kv.lose("set_if", ROW, applied=applied)
    made = await create(lake)
    assert await views.get(SALES) == made
    lake.kv.lose("set_if", ROW, applied=applied)
    pointed = await views.point(SALES, lake.repository, "main@", etag_of(made))
    assert (pointed.generation, pointed.ref) == (2, "main@")
    assert await views.get(SALES) == pointed
    lake.kv.lose("delete_if", ROW, applied=applied)
    await views.delete(SALES, etag_of(pointed))
    assert (await refusal(views.get(SALES))).reason is Reason.BUCKET_NOT_FOUND


async def test_a_lost_change_beneath_a_later_one_is_not_called_undone(
    lake: Lake, other: Lake, running: Running
) -> None:
    """The settling read shows a *later* record, which says nothing about the change whose answer is lost."""
    views, theirs = lake.graveler.bucket_views, other.graveler.bucket_views
    made = await create(lake)
    lake.kv.lose("set_if", ROW, applied=True)
    first = lake.kv.hold("get_many", ROW)
    pointing = running.start(views.point(SALES, lake.repository, "main@", etag_of(made)))
    await reached(first)
    again = lake.kv.hold("get_many", ROW)
    first.open()
    await reached(again)
    await theirs.point(SALES, other.repository, "main~0")
    again.open()
    error = await refusal(pointing)
    assert error.kind is Kind.UNKNOWN_OUTCOME
    assert (await views.get(SALES)).ref == "main~0"


async def test_a_deletion_spares_the_next_view_of_the_name(
    lake: Lake, other: Lake, running: Running
) -> None:
    """Its answer is lost, and the name is made again: the repetition must not delete that one."""
    views, theirs = lake.graveler.bucket_views, other.graveler.bucket_views
    made = await create(lake)
    lake.kv.lose("delete_if", ROW, applied=True)
    first = lake.kv.hold("get_many", ROW)
    deleting = running.start(views.delete(SALES))
    await reached(first)
    again = lake.kv.hold("get_many", ROW)
    first.open()
    await reached(again)
    next_one = await theirs.create(SALES, other.repository, "main")
    again.open()
    await deleting
    assert next_one.uid != made.uid
    assert await views.get(SALES) == next_one


# ---- calls through a view


async def test_calls_through_a_view_confirm_it(service: Service) -> None:
    tarn, views = service.graveler, service.replica.bucket_views
    await service.put("a", 1)
    await tarn.create_bucket_view(service.admin, "sales", "lake")
    view = await views.get("sales")
    call = through(service.admin, view)
    assert await service.stage("b", service.entry(2), call=call) is False
    assert (await tarn.lookup(call, "lake", "main", "b")).entry
    async with service.another_replica() as elsewhere:
        await elsewhere.graveler.point_bucket_view(service.admin, "sales", "lake", "main@")
    for work in (
        tarn.lookup(call, "lake", "main", "b"),
        tarn.list_entries(call, "lake", "main"),
        service.stage("c", service.entry(3), call=call),
        tarn.unstage(call, "lake", "main", "b"),
        tarn.unstage_many(call, "lake", "main", ["b"]),
        tarn.create_upload(call, "lake", "main", "d", template=service.entry(0)),
        tarn.get_repository(call, "lake"),
    ):
        error = await refusal(work)
        assert (error.reason, error.metadata["bucket"]) == (Reason.BUCKET_MOVED, "sales")
    found = await tarn.list_entries(service.admin, "lake", "main")
    assert list(found.paths) == ["a", "b"]
    await tarn.delete_bucket_view(service.admin, "sales")
    gone = await refusal(tarn.lookup(call, "lake", "main", "b"))
    assert (gone.kind, gone.reason) == (Kind.NOT_FOUND, Reason.BUCKET_NOT_FOUND)


async def test_a_view_is_confirmed_by_the_read_of_the_branch_record(service: Service) -> None:
    """A look-up through a view asks the store as often as one by the key of the repository."""
    tarn, kv = service.graveler, service.replicas.kv
    await service.put("a", 1)
    await tarn.create_bucket_view(service.admin, "sales", "lake")
    by_view = through(service.admin, await service.replica.bucket_views.get("sales"))
    asked: list[list[tuple[str, str]]] = []
    for call in (service.admin, by_view):
        await tarn.lookup(call, "lake", "main", "a")
        kv.calls.clear()
        await tarn.lookup(call, "lake", "main", "a")
        asked.append(list(kv.calls))
    assert asked[0] == asked[1]
    assert asked[0]


async def test_a_view_that_is_pointed_during_a_look_up_is_another(
    service: Service, running: Running
) -> None:
    """What one look-up has confirmed confirms no other: each row of the view is read after its look-up began."""
    tarn, kv = service.graveler, service.replicas.kv
    await service.put("a", 1)
    await tarn.create_bucket_view(service.admin, "sales", "lake")
    call = through(service.admin, await service.replica.bucket_views.get("sales"))
    assert (await tarn.lookup(call, "lake", "main", "a")).entry
    gate = kv.hold("get_many", ROW, after=True)
    early = running.start(tarn.lookup(call, "lake", "main", "a"))
    await reached(gate)
    async with service.another_replica() as elsewhere:
        await elsewhere.graveler.point_bucket_view(service.admin, "sales", "lake", "main@")
    late = tarn.lookup(call, "lake", "main", "a")
    assert (await refusal(late)).reason is Reason.BUCKET_MOVED, "it began after the change"
    gate.open()
    assert (await refusal(early)).reason is Reason.BUCKET_MOVED, "it overlaps with the change"


async def test_a_name_made_again_is_another_view(service: Service) -> None:
    """Its generation is the same, its uid is not."""
    tarn, views = service.graveler, service.replica.bucket_views
    await tarn.create_bucket_view(service.admin, "sales", "lake")
    call = through(service.admin, await views.get("sales"))
    await tarn.delete_bucket_view(service.admin, "sales")
    await tarn.create_bucket_view(service.admin, "sales", "lake", "main@")
    assert (await refusal(tarn.list_entries(call, "lake", "main"))).reason is Reason.BUCKET_MOVED
    await tarn.delete_bucket_view(service.admin, "sales")
    await tarn.create_repository(service.admin, "sales")
    assert (await refusal(tarn.list_entries(call, "lake", "main"))).reason is Reason.BUCKET_MOVED


async def test_a_view_does_not_show_the_next_repository_of_a_name(service: Service) -> None:
    tarn, views = service.graveler, service.replica.bucket_views
    await tarn.create_repository(service.admin, "pond")
    await tarn.create_bucket_view(service.admin, "sales", "pond")
    call = through(service.admin, await views.get("sales"))
    async with service.another_replica() as elsewhere:
        await tarn.list_entries(call, "pond", "main")
        await elsewhere.graveler.delete_repository(service.admin, "pond")
        await elsewhere.graveler.create_repository(service.admin, "pond")
        service.clock.advance(6.0)
        for each in (tarn, elsewhere.graveler):
            error = await refusal(each.list_entries(call, "pond", "main"))
            assert error.reason is Reason.BUCKET_NOT_FOUND
        # A replica that still knows the old repository sees that a view shows the new one.
        await elsewhere.graveler.point_bucket_view(service.admin, "sales", "pond")
        call = through(service.admin, await views.get("sales"))
        await tarn.list_entries(call, "pond", "main")


@pytest.mark.parametrize(
    "bucket", ["sales", "sales:", "sales:xyz:1", "a" * 5000, ":" + "0" * 32 + ":1", "é:1:1"]
)
async def test_a_call_through_nothing_is_invalid(service: Service, bucket: str) -> None:
    call = replace(service.admin, bucket=bucket)
    error = await refusal(service.graveler.lookup(call, "lake", "main", "a"))
    assert (error.kind, error.metadata["field"]) == (Kind.INVALID, "bucket")


async def test_a_call_through_a_view_is_about_its_repository(service: Service) -> None:
    tarn, views = service.graveler, service.replica.bucket_views
    await tarn.create_repository(service.admin, "pond")
    await tarn.create_bucket_view(service.admin, "sales", "lake")
    call = through(service.admin, await views.get("sales"))
    error = await refusal(tarn.list_entries(call, "pond", "main"))
    assert (error.kind, error.metadata["field"]) == (Kind.INVALID, "bucket")
    for work in (
        tarn.list_repositories(call),
        tarn.get_bucket_view(call, "sales"),
        tarn.list_quotas(call),
    ):
        error = await refusal(work)
        assert (error.kind, error.metadata["field"]) == (Kind.INVALID, "bucket")
