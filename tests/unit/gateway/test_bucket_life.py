"""CreateBucket and DeleteBucket: what is made, what a repetition finds, and what is never removed."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import pytest
from gateway_lake import GatewayLake

from tarn.core.errors import Kind, Reason

REGION = "<CreateBucketConfiguration>{}</CreateBucketConfiguration>"


def behind(lake: GatewayLake, bucket: str) -> str:
    """The repository behind a bucket."""
    name: str = lake.graveler.views[bucket].repository_id
    return name


async def create(lake: GatewayLake, bucket: str = "sales", **more: Any) -> Any:
    return await lake.ask("PUT", f"/{bucket}", **more)


async def test_a_new_bucket_has_plain_keys_and_a_repository_with_branch_main(
    lake: GatewayLake,
) -> None:
    made = await create(lake)
    assert (made.status, made.headers["location"]) == (200, "/sales")
    assert made.headers["x-amz-bucket-arn"] == "arn:aws:s3:::sales"
    assert (await lake.ask("PUT", "/sales/2026/a", body=b"1")).status == 200
    repository = behind(lake, "sales")
    assert lake.entry(repository, "main", "2026/a").size == 1
    assert repository.startswith("sales-")
    listed = await lake.ask("GET", "/")
    assert listed.all("Name") == ["lake", "sales", repository]


async def test_creating_a_bucket_again_changes_nothing(lake: GatewayLake) -> None:
    await create(lake)
    await lake.ask("PUT", "/sales/a", body=b"1")
    before = lake.graveler.views["sales"]
    assert (await create(lake)).status == 200
    assert lake.graveler.views["sales"] == before
    assert (await lake.ask("GET", "/sales/a")).body == b"1"


@pytest.mark.parametrize("lost", ["CreateRepository", "CreateBucketView"])
async def test_a_repetition_after_a_failure_leaves_one_repository(
    lake: GatewayLake, failure: Any, lost: str
) -> None:
    lake.graveler.fail[lost] = [failure(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN)]
    assert (await create(lake)).status == 503
    assert (await create(lake)).status == 200
    assert sorted(lake.graveler.repos) == ["lake", behind(lake, "sales")]


async def test_a_name_that_is_taken(lake: GatewayLake) -> None:
    lake.graveler.point("look", "lake", "main")
    for bucket in ("look", "lake"):
        refused = await create(lake, bucket)
        assert (refused.status, refused.code) == (409, "BucketAlreadyOwnedByYou")
        assert refused.element("BucketName") == bucket


async def test_who_may_not_read_a_bucket_learns_only_that_its_name_is_taken(
    lake: GatewayLake, failure: Any
) -> None:
    await create(lake)
    lake.graveler.fail["GetRepository"] = [failure(Kind.DENIED, Reason.ACCESS_DENIED)]
    refused = await create(lake)
    assert (refused.status, refused.code) == (409, "BucketAlreadyExists")
    assert b"sales-" not in refused.body


@pytest.mark.parametrize("key", ["AKIAREADER", "AKIAWRITER"])
async def test_who_may_not_create_gets_nothing(lake: GatewayLake, key: str) -> None:
    assert (await create(lake, key=key)).code == "AccessDenied"
    assert lake.graveler.calls == []
    await create(lake)
    lake.graveler.calls.clear()
    assert (await lake.ask("DELETE", "/sales", key=key)).code == "AccessDenied"
    assert lake.graveler.calls == []


@pytest.mark.parametrize("name", ["Sales", "s", "a.b", "a_b", "x" * 64])
async def test_an_invalid_name(lake: GatewayLake, name: str) -> None:
    assert (await create(lake, name)).code == "InvalidBucketName"


async def test_long_names_have_repositories_of_their_own(lake: GatewayLake) -> None:
    names = ["n" * 60 + "-a", "n" * 60 + "-b"]
    for name in names:
        assert (await create(lake, name)).status == 200
    repositories = {behind(lake, name) for name in names}
    assert len(repositories) == 2
    assert all(len(each) <= 63 for each in repositories)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", ""),
        (REGION.format("<LocationConstraint>us-east-1</LocationConstraint>"), ""),
        (REGION.format("<LocationConstraint/>"), ""),
        (REGION.format(""), ""),
        (REGION.format("<LocationConstraint>EU</LocationConstraint>"), "InvalidLocationConstraint"),
        (REGION.format("<Tags><Tag><Key>a</Key></Tag></Tags>"), "NotImplemented"),
        (REGION.format("<LocationConstraint><a/></LocationConstraint>"), "MalformedXML"),
        ("<Create/>", "MalformedXML"),
        (REGION.format("x" * 5000), "MaxMessageLengthExceeded"),
    ],
)
async def test_the_region_that_a_client_asks_for(lake: GatewayLake, body: str, code: str) -> None:
    reply = await create(lake, body=body.encode())
    if not code:
        assert reply.status == 200
        return
    assert reply.code == code
    assert "CreateRepository" not in lake.graveler.calls


async def test_locks_are_refused_and_private_is_accepted(lake: GatewayLake) -> None:
    locked = await create(lake, headers={"x-amz-bucket-object-lock-enabled": "true"})
    assert locked.code == "NotImplemented"
    assert (await create(lake, headers={"x-amz-acl": "public-read"})).status >= 400
    assert lake.graveler.views == {}
    assert (await create(lake, headers={"x-amz-acl": "private"})).status == 200


# ---- the other modes


def in_mode(lake: GatewayLake, mode: Literal["repository", "refuse"]) -> None:
    lake.handler._backend = dataclasses.replace(lake.backend, bucket_mode=mode)


async def test_a_bucket_can_be_a_repository(lake: GatewayLake) -> None:
    in_mode(lake, "repository")
    for _ in range(2):
        assert (await create(lake)).status == 200
    assert (await lake.ask("PUT", "/sales/main/a", body=b"1")).status == 200
    assert lake.graveler.views == {}
    kept = await lake.ask("DELETE", "/sales")
    assert (kept.status, kept.code) == (501, "NotImplemented")
    lake.graveler.point("look", "lake", "main")
    assert (await create(lake, "look")).code == "BucketAlreadyOwnedByYou"


async def test_no_bucket_is_made_where_that_is_configured(lake: GatewayLake) -> None:
    in_mode(lake, "refuse")
    refused = await create(lake)
    assert (refused.status, refused.code) == (501, "NotImplemented")
    assert lake.graveler.calls == []


# ---- DeleteBucket


async def test_an_empty_bucket_is_deleted_and_its_repository_stays(lake: GatewayLake) -> None:
    await create(lake)
    repository = behind(lake, "sales")
    await lake.ask("PUT", "/sales/a", body=b"1")
    refused = await lake.ask("DELETE", "/sales")
    assert (refused.status, refused.code) == (409, "BucketNotEmpty")
    await lake.ask("DELETE", "/sales/a")
    assert (await lake.ask("DELETE", "/sales")).status == 204
    assert (await lake.ask("GET", "/sales/a")).code == "NoSuchBucket"
    assert (await lake.ask("DELETE", "/sales")).code == "NoSuchBucket"
    assert repository in lake.graveler.repos
    await create(lake)
    assert behind(lake, "sales") == repository  # nothing was written to it


async def test_a_new_bucket_does_not_show_what_an_earlier_one_left(lake: GatewayLake) -> None:
    await create(lake)
    first = behind(lake, "sales")
    lake.graveler.repos[first].parents["main"] = ("1" * 64,)
    assert (await lake.ask("DELETE", "/sales")).status == 204
    await create(lake)
    second = behind(lake, "sales")
    assert second != first
    await lake.ask("PUT", f"/{first}/main/late", body=b"1")
    assert (await lake.ask("GET", "/sales/late")).code == "NoSuchKey"
    assert (await create(lake)).status == 200


async def test_a_new_bucket_does_not_list_uploads_of_an_earlier_one(lake: GatewayLake) -> None:
    await create(lake)
    first = behind(lake, "sales")
    assert (await lake.ask("POST", "/sales/big", "uploads")).status == 200
    assert (await lake.ask("DELETE", "/sales")).status == 204
    await create(lake)
    assert behind(lake, "sales") != first
    assert (await lake.ask("GET", "/sales", "uploads")).all("UploadId") == []


async def test_what_is_written_beside_the_deletion_stays_in_the_repository(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(lake)
    repository = behind(lake, "sales")
    deleted = lake.client.delete_bucket_view

    async def written_before(*arguments: Any, **more: Any) -> None:
        assert (await lake.ask("PUT", "/sales/a", body=b"kept")).status == 200
        await deleted(*arguments, **more)

    monkeypatch.setattr(lake.client, "delete_bucket_view", written_before)
    assert (await lake.ask("DELETE", "/sales")).status == 204
    assert (await lake.ask("GET", f"/{repository}/main/a")).body == b"kept"
    await create(lake)
    assert (await lake.ask("GET", "/sales", "list-type=2")).all("Key") == []


async def test_a_view_that_is_pointed_elsewhere_meanwhile_is_looked_at_again(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(lake)
    deleted = lake.client.delete_bucket_view
    await lake.ask("PUT", "/lake/main/a", body=b"1")

    async def pointed_before(*arguments: Any, **more: Any) -> None:
        monkeypatch.undo()
        lake.graveler.point("sales", "lake", "main")
        await deleted(*arguments, **more)

    monkeypatch.setattr(lake.client, "delete_bucket_view", pointed_before)
    assert (await lake.ask("DELETE", "/sales")).code == "BucketNotEmpty"
    assert "sales" in lake.graveler.views


async def test_a_bucket_whose_target_is_gone_can_be_deleted(lake: GatewayLake) -> None:
    await create(lake)
    del lake.graveler.repos[behind(lake, "sales")]
    assert (await lake.ask("DELETE", "/sales")).status == 204
