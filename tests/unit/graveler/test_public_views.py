"""Public-read bucket views: what a gateway may do for anonymous requests, who marks views, and lost answers."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, cast

import pytest
from graveler_service import Service
from lake import Lake, Running, reached

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RepositoryId
from tarn.core.levels import LEVEL_FIRST, FeatureGate
from tarn.kv.keys import InstallationKeys
from tarn.kv.records import BucketView, decode_bucket
from tarn.rpc.wire.call import Call
from tarn.telemetry.audit.note import NOTE, AuditNote
from tarn_graveler.records.bucket_views import etag_of

SALES = RepositoryId("sales")
KEYS = InstallationKeys("test")
ROW = KEYS.repository(SALES)


async def refusal(work: Awaitable[object]) -> TarnError:
    with pytest.raises(TarnError) as raised:
        await work
    return raised.value


async def without_user(service: Service, name: str = "gateway") -> Call:
    """A call of a service for nobody, through the view `sales` as it is now."""
    view = await service.graveler.get_bucket_view(service.admin, "sales")
    token = await service.gateway_token(name)
    return replace(service.admin, caller_token=token, service_token="", bucket=f"sales:{view.etag}")


# ---- what anonymous requests may do


async def test_anonymous_requests_read_what_a_public_view_shows(service: Service) -> None:
    tarn = service.graveler
    await service.put("a", 1)
    made = await tarn.create_bucket_view(service.admin, "sales", "lake", public_read=True)
    assert made.public_read
    call = await without_user(service)
    assert (await tarn.lookup(call, "lake", "main", "a")).entry
    assert list((await tarn.list_entries(call, "lake", "main")).paths) == ["a"]
    assert (await tarn.get_repository(call, "lake")).storage_namespace
    assert (await refusal(tarn.lookup(call, "lake", "main", "b"))).reason is Reason.ENTRY_NOT_FOUND


async def test_pages_of_an_anonymous_listing_go_on_when_the_view_is_marked_again(
    service: Service,
) -> None:
    tarn = service.graveler
    for path in ("a", "b"):
        await service.put(path, 1)
    made = await tarn.create_bucket_view(service.admin, "sales", "lake", public_read=True)
    call = await without_user(service)
    page = await tarn.list_entries(call, "lake", "main", page_size=1)
    for wanted in (False, True):
        marked = await tarn.set_bucket_view_public_read(service.admin, "sales", wanted)
        assert (marked.public_read, marked.etag) == (wanted, made.etag)
    rest = await tarn.list_entries(call, "lake", "main", page_token=page.next_page_token)
    assert [*page.paths, *rest.paths] == ["a", "b"]


async def test_anonymous_requests_do_nothing_else(service: Service) -> None:
    tarn = service.graveler
    await service.put("a", 1)
    await tarn.create_commit(service.admin, "lake", "main", "one")
    await tarn.create_branch(service.admin, "lake", "dev", "main")
    await tarn.create_repository(service.admin, "pond")
    await tarn.create_bucket_view(service.admin, "sales", "lake", public_read=True)
    call = await without_user(service)
    refused: list[Awaitable[object]] = [
        tarn.lookup(call, "lake", "dev", "a"),
        tarn.lookup(call, "lake", "main~0", "a"),
        tarn.list_entries(call, "lake", "main@"),
        tarn.get_branch(call, "lake", "main"),
        tarn.get_commit(call, "lake", "main"),
        tarn.list_branches(call, "lake"),
        tarn.get_settings(call, "lake"),
        service.stage("b", service.entry(2), call=call),
        tarn.unstage(call, "lake", "main", "a"),
        tarn.create_upload(call, "lake", "main", "d", template=service.entry(0)),
    ]
    for work in refused:
        assert (await refusal(work)).kind is Kind.DENIED
    refused = [tarn.lookup(call, "pond", "main", "a"), tarn.get_repository(call, "pond")]
    for work in refused:
        assert (await refusal(work)).reason is Reason.INVALID_ARGUMENT
    (deleted,) = await tarn.unstage_many(call, "lake", "main", ["a"])
    assert deleted is not None
    assert deleted.kind is Kind.DENIED
    by_name = replace(call, bucket="")
    refused = [
        tarn.lookup(by_name, "lake", "main", "a"),
        tarn.list_entries(by_name, "lake", "main"),
        tarn.get_repository(by_name, "lake"),
    ]
    for work in refused:
        assert (await refusal(work)).reason is Reason.ACCESS_DENIED
    assert list((await tarn.list_entries(service.admin, "lake", "main")).paths) == ["a"]


async def test_only_gateways_call_for_nobody(service: Service) -> None:
    tarn = service.graveler
    await service.put("a", 1)
    await tarn.create_bucket_view(service.admin, "sales", "lake", public_read=True)
    compactor = await without_user(service, "compactor")
    assert (await refusal(tarn.lookup(compactor, "lake", "main", "a"))).kind is Kind.DENIED
    nobody = replace(compactor, caller_token="")
    error = await refusal(tarn.lookup(nobody, "lake", "main", "a"))
    assert error.reason is Reason.CALLER_TOKEN_INVALID


async def test_the_mark_of_another_view_says_nothing(service: Service) -> None:
    tarn = service.graveler
    await service.put("a", 1)
    await tarn.create_bucket_view(service.admin, "open", "lake", "main@", public_read=True)
    await tarn.create_bucket_view(service.admin, "sales", "lake")
    call = await without_user(service)
    assert (await refusal(tarn.lookup(call, "lake", "main", "a"))).reason is Reason.ACCESS_DENIED


async def test_the_audit_log_knows_them_as_anonymous(service: Service) -> None:
    """Not as the gateway, whose token the call carries."""
    await service.put("a", 1)
    await service.graveler.create_bucket_view(service.admin, "sales", "lake", public_read=True)
    call = await without_user(service)
    note = AuditNote()
    reset = NOTE.set(note)
    try:
        await service.graveler.lookup(call, "lake", "main", "a")
    finally:
        NOTE.reset(reset)
    assert (note.principal, note.resource) == (
        "anonymous",
        "repository/lake/ref/main/object/a",
    )


async def test_turning_it_off_holds_at_once_on_every_replica(service: Service) -> None:
    tarn = service.graveler
    await service.put("a", 1)
    await tarn.create_bucket_view(service.admin, "sales", "lake", public_read=True)
    call = await without_user(service)
    await tarn.lookup(call, "lake", "main", "a")
    async with service.another_replica() as elsewhere:
        await elsewhere.graveler.set_bucket_view_public_read(service.admin, "sales", False)
    for work in (
        tarn.lookup(call, "lake", "main", "a"),
        tarn.list_entries(call, "lake", "main"),
        tarn.get_repository(call, "lake"),
    ):
        assert (await refusal(work)).reason is Reason.ACCESS_DENIED


async def test_a_view_that_was_pointed_elsewhere_is_moved(service: Service) -> None:
    tarn = service.graveler
    await service.put("a", 1)
    await tarn.create_bucket_view(service.admin, "sales", "lake", public_read=True)
    call = await without_user(service)
    pointed = await tarn.point_bucket_view(service.admin, "sales", "lake", "main@")
    assert pointed.public_read
    for ref in ("main", "main@"):
        error = await refusal(tarn.lookup(call, "lake", ref, "a"))
        assert error.reason is Reason.BUCKET_MOVED, "the gateway resolves it again"


async def test_the_next_repository_of_a_name_is_not_public(service: Service) -> None:
    tarn = service.graveler
    await tarn.create_repository(service.admin, "pond")
    await tarn.create_bucket_view(service.admin, "sales", "pond", public_read=True)
    call = await without_user(service)
    await tarn.list_entries(call, "pond", "main")
    await tarn.delete_repository(service.admin, "pond")
    await tarn.create_repository(service.admin, "pond")
    error = await refusal(tarn.list_entries(call, "pond", "main"))
    assert error.reason is Reason.BUCKET_NOT_FOUND


# ---- who marks views


async def test_administrators_mark_views(service: Service) -> None:
    tarn = service.graveler
    await tarn.create_bucket_view(service.admin, "sales", "lake")
    developer = replace(await service.as_user("dev", "Developer"), service_token="")
    for work in (
        tarn.set_bucket_view_public_read(developer, "sales", True),
        tarn.create_bucket_view(developer, "mine", "lake", public_read=True),
    ):
        assert (await refusal(work)).reason is Reason.ACCESS_DENIED
    assert not (await tarn.get_bucket_view(service.admin, "sales")).public_read


async def test_a_mark_is_about_the_version_that_was_seen(service: Service) -> None:
    tarn = service.graveler
    made = await tarn.create_bucket_view(service.admin, "sales", "lake")
    await tarn.point_bucket_view(service.admin, "sales", "lake", "main@")
    late = tarn.set_bucket_view_public_read(service.admin, "sales", True, etag=made.etag)
    assert (await refusal(late)).reason is Reason.BUCKET_MOVED
    none = tarn.set_bucket_view_public_read(service.admin, "lake", True)
    assert (await refusal(none)).reason is Reason.BUCKET_NOT_FOUND


async def test_a_name_made_again_is_not_public(service: Service) -> None:
    tarn = service.graveler
    await tarn.create_bucket_view(service.admin, "sales", "lake", public_read=True)
    await tarn.delete_bucket_view(service.admin, "sales")
    assert not (await tarn.create_bucket_view(service.admin, "sales", "lake")).public_read


async def test_a_view_becomes_public_only_at_the_feature_level(service: Service) -> None:
    """A replica of the first level would remove the mark; taking it off is always possible."""
    tarn = service.graveler
    await tarn.create_bucket_view(service.admin, "sales", "lake", public_read=True)
    for endpoint in service.endpoints:
        if hasattr(endpoint.handler, "SetBucketViewPublicRead"):
            cast("Any", endpoint.handler)._features = FeatureGate.at(LEVEL_FIRST)
    for work in (
        tarn.set_bucket_view_public_read(service.admin, "sales", True),
        tarn.create_bucket_view(service.admin, "more", "lake", public_read=True),
    ):
        assert (await refusal(work)).reason is Reason.FEATURE_LEVEL
    assert not (await tarn.set_bucket_view_public_read(service.admin, "sales", False)).public_read


# ---- changes whose answers are lost, or that run beside others


async def create(lake: Lake) -> BucketView:
    return await lake.graveler.bucket_views.create(SALES, lake.repository, "main")


async def test_a_view_that_is_pointed_elsewhere_beside_it_is_not_marked(
    lake: Lake, other: Lake, running: Running
) -> None:
    """Its caller may read the ref that the view showed, and decided about that."""
    views = lake.graveler.bucket_views
    seen = await create(lake)
    held = lake.kv.hold("get_many", ROW)
    marking = running.start(views.set_public_read(seen, True))
    await reached(held)
    await other.graveler.bucket_views.point(SALES, other.repository, "main@")
    held.open()
    assert (await refusal(marking)).reason is Reason.BUCKET_MOVED
    assert not (await views.get(SALES)).is_public_read


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not-applied"])
async def test_a_mark_whose_answer_is_lost_is_settled(lake: Lake, applied: bool) -> None:
    views = lake.graveler.bucket_views
    seen = await create(lake)
    lake.kv.lose("set_if", ROW, applied=applied)
    marked = await views.set_public_read(seen, True)
    assert (marked.is_public_read, etag_of(marked)) == (True, etag_of(seen))
    assert await views.get(SALES) == marked


async def test_a_lost_mark_does_not_undo_a_later_one(
    lake: Lake, other: Lake, running: Running
) -> None:
    """Another administrator sees the mark and takes it off: a second attempt must not make the view public again."""
    views, theirs = lake.graveler.bucket_views, other.graveler.bucket_views
    seen = await create(lake)
    lake.kv.lose("set_if", ROW, applied=True)
    first = lake.kv.hold("get_many", ROW)
    marking = running.start(views.set_public_read(seen, True))
    await reached(first)
    again = lake.kv.hold("get_many", ROW)
    first.open()
    await reached(again)
    (row,) = await other.kv.get_many(KEYS.graveler, [ROW], settle=True)
    assert row is not None
    marked = decode_bucket(row.value)
    assert isinstance(marked, BucketView)
    assert marked.is_public_read
    await theirs.set_public_read(marked, False)
    again.open()
    assert (await refusal(marking)).kind is Kind.UNKNOWN_OUTCOME
    assert not (await views.get(SALES)).is_public_read


async def test_rules_and_marks_leave_each_other_alone(lake: Lake) -> None:
    views = lake.graveler.bucket_views
    await views.set_public_read(await create(lake), True)
    await views.set_cors(SALES, "[]")
    pointed = await views.point(SALES, lake.repository, "main@")
    assert (pointed.is_public_read, pointed.cors_json) == (True, "[]")
