"""CORS rules of buckets: who may set them, what they leave alone, and changes whose answers are lost."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, cast

import pytest
from graveler_service import Service
from lake import Lake

from tarn.core.cors import CorsRule, cors_to_json
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import RepositoryId
from tarn.core.levels import LEVEL_FIRST, FeatureGate
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import OutcomeUnknownError
from tarn.kv.records import BucketView, decode_bucket

KEYS = InstallationKeys("test")
SALES = RepositoryId("sales")
ONE = cors_to_json([CorsRule(("https://a.example",), ("GET",))])
TWO = cors_to_json([CorsRule(("*",), ("GET", "PUT"), max_age_s=60)])


async def refusal(work: Awaitable[object]) -> TarnError:
    with pytest.raises(TarnError) as raised:
        await work
    return raised.value


async def test_a_repository_and_a_view_have_rules_of_their_own(service: Service) -> None:
    tarn, call = service.graveler, service.admin
    await tarn.create_bucket_view(call, "sales", "lake")
    for name, rules, is_view in (("lake", ONE, False), ("sales", TWO, True)):
        assert (await tarn.get_bucket_cors(call, name)).rules_json == ""
        await tarn.set_bucket_cors(call, name, rules, is_view=is_view)
        found = await tarn.get_bucket_cors(call, name)
        assert (found.rules_json, found.is_view) == (rules, is_view)
    await tarn.set_bucket_cors(call, "lake", "", is_view=False)
    assert (await tarn.get_bucket_cors(call, "lake")).rules_json == ""
    assert (await tarn.get_bucket_cors(call, "sales")).rules_json == TWO


async def test_rules_are_no_version_of_a_view_and_outlive_point(service: Service) -> None:
    tarn, call = service.graveler, service.admin
    made = await tarn.create_bucket_view(call, "sales", "lake")
    await tarn.set_bucket_cors(call, "sales", ONE, is_view=True)
    assert await tarn.get_bucket_view(call, "sales") == made
    await tarn.point_bucket_view(call, "sales", "lake", "main@", etag=made.etag)
    assert (await tarn.get_bucket_cors(call, "sales")).rules_json == ONE
    await tarn.delete_bucket_view(call, "sales")
    await tarn.create_bucket_view(call, "sales", "lake")
    assert (await tarn.get_bucket_cors(call, "sales")).rules_json == ""


async def test_only_administrators_set_rules_and_readers_and_gateways_see_them(
    service: Service,
) -> None:
    tarn = service.graveler
    await tarn.create_bucket_view(service.admin, "sales", "lake")
    await tarn.set_bucket_cors(service.admin, "sales", ONE, is_view=True)
    developer = replace(await service.as_user("dev", "Developer"), service_token="")
    for name, is_view in (("sales", True), ("lake", False)):
        error = await refusal(tarn.set_bucket_cors(developer, name, TWO, is_view=is_view))
        assert error.reason is Reason.ACCESS_DENIED
    assert (await tarn.get_bucket_cors(developer, "sales")).rules_json == ONE
    gateway = replace(service.admin, caller_token=await service.gateway_token(), service_token="")
    assert (await tarn.get_bucket_cors(gateway, "sales")).rules_json == ONE
    assert (await refusal(tarn.get_bucket_cors(gateway, "none"))).reason is Reason.BUCKET_NOT_FOUND


async def test_the_kind_of_a_bucket_must_fit(service: Service) -> None:
    tarn, call = service.graveler, service.admin
    await tarn.create_bucket_view(call, "sales", "lake")
    error = await refusal(tarn.set_bucket_cors(call, "lake", ONE, is_view=True))
    assert error.reason is Reason.BUCKET_NOT_FOUND
    error = await refusal(tarn.set_bucket_cors(call, "sales", ONE, is_view=False))
    assert error.reason is Reason.REPOSITORY_NOT_FOUND


async def test_rules_are_checked_and_wait_for_the_level(service: Service) -> None:
    tarn, call = service.graveler, service.admin
    error = await refusal(tarn.set_bucket_cors(call, "lake", '{"CORSRules": []}', is_view=False))
    assert error.reason is Reason.INVALID_ARGUMENT
    for endpoint in service.endpoints:
        if hasattr(endpoint.handler, "SetRepositoryCors"):
            cast("Any", endpoint.handler)._features = FeatureGate.at(LEVEL_FIRST)
    error = await refusal(tarn.set_bucket_cors(call, "lake", ONE, is_view=False))
    assert error.reason is Reason.FEATURE_LEVEL


async def test_a_read_only_repository_takes_rules(service: Service) -> None:
    tarn, call = service.graveler, service.admin
    await tarn.set_read_only(call, "lake", True)
    await tarn.set_bucket_cors(call, "lake", ONE, is_view=False)
    assert (await tarn.get_bucket_cors(call, "lake")).rules_json == ONE


# ---- lost answers


@pytest.mark.parametrize("is_view", [True, False])
async def test_a_lost_answer_beneath_rules_of_another_is_unknown(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_view: bool
) -> None:
    """They must not be buried by a second attempt."""
    views, repositories = lake.graveler.bucket_views, lake.graveler.repositories
    if is_view:
        await views.create(SALES, lake.repository, "main")
    name = SALES if is_view else lake.repository.repository_id

    def set_to(rules: str) -> Awaitable[None]:
        if is_view:
            return views.set_cors(SALES, rules)
        return repositories.set_cors(lake.repository, rules)

    original = lake.kv.set_if
    lost: list[bytes] = []

    async def lose(*args: Any) -> object:
        done = await original(*args)
        if not lost:
            lost.append(b"")
            await set_to(TWO)
            raise OutcomeUnknownError("lost")
        return done

    monkeypatch.setattr(lake.kv, "set_if", lose)
    with pytest.raises(OutcomeUnknownError):
        await set_to(ONE)
    (row,) = await lake.kv.get_many(KEYS.graveler, [KEYS.repository(name)])
    assert row is not None
    holder = decode_bucket(row.value)
    assert (holder.cors_json, isinstance(holder, BucketView)) == (TWO, is_view)


async def test_a_lost_answer_alone_is_found(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    original = lake.kv.set_if
    lost: list[bytes] = []

    async def lose(*args: Any) -> object:
        done = await original(*args)
        if not lost:
            lost.append(b"")
            raise OutcomeUnknownError("lost")
        return done

    monkeypatch.setattr(lake.kv, "set_if", lose)
    await lake.graveler.repositories.set_cors(lake.repository, ONE)
    current = await lake.graveler.repositories.read(lake.repository.repository_id)
    assert current.cors_json == ONE
