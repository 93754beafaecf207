"""Requests that tools send before or beside their work, with a real boto3 on a real HTTP server: ACLs, settings of
buckets, versions of objects, pages of buckets, and storage classes."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from gateway_lake import GatewayLake

from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_gateway.http import HttpLimits, HttpServer

pytestmark = pytest.mark.timeout(30)

SECRETS = {"AKIAADMIN": "admin-secret", "AKIAREADER": "reader-secret"}
OWNER = {"ID": "akiaadmin", "DisplayName": "akiaadmin"}
GRANTS = [{"Grantee": {**OWNER, "Type": "CanonicalUser"}, "Permission": "FULL_CONTROL"}]
PUBLIC = {
    "Grantee": {"Type": "Group", "URI": "http://acs.amazonaws.com/groups/global/AllUsers"},
    "Permission": "READ",
}
OTHER = {"Grantee": {"Type": "CanonicalUser", "ID": "eve"}, "Permission": "FULL_CONTROL"}
ALL_BLOCKED = dict.fromkeys(
    ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"), True
)


class Boto:
    """boto3, on threads."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def ask(self, name: str, **arguments: Any) -> dict[str, Any]:
        call = functools.partial(getattr(self.client, name), **arguments)
        answer: dict[str, Any] = await asyncio.to_thread(call)
        answer.pop("ResponseMetadata")
        return answer

    async def refused(self, name: str, **arguments: Any) -> tuple[int, str]:
        """Returns status and code of a refusal."""
        with pytest.raises(ClientError) as caught:
            await self.ask(name, **arguments)
        answer = caught.value.response
        return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]

    async def pages(self, name: str, **arguments: Any) -> list[dict[str, Any]]:
        paginator = self.client.get_paginator(name)
        return await asyncio.to_thread(lambda: list(paginator.paginate(**arguments)))


@pytest.fixture
async def port(lake: GatewayLake) -> AsyncIterator[int]:
    """`lake` with the objects `a`, `b/1`, `b/2` and `d e+ü` on main, which the bucket `sales` shows."""
    clock = SystemClock()
    server = HttpServer(
        lake.handler,
        HttpLimits(),
        clock=clock,
        ids=SystemIds(clock),
        on_error=lake.handler.refuse,
    )
    lake.graveler.point("sales", "lake", "main")
    for path in ("a", "b/1", "b/2", "d e+ü"):
        await lake.ask("PUT", f"/lake/main/{path}", body=b"text")
    async with server:
        yield await server.listen("127.0.0.1", 0)


@functools.cache
def session() -> boto3.session.Session:
    """One for all tests: each reads the description of S3, which takes longer than a test."""
    return boto3.session.Session()


def connect(port: int, access_key_id: str = "AKIAADMIN") -> Boto:
    return Boto(
        session().client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            aws_access_key_id=access_key_id,
            aws_secret_access_key=SECRETS[access_key_id],
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}),
        )
    )


@pytest.fixture
async def boto(port: int) -> AsyncIterator[Boto]:
    made = connect(port)
    yield made
    made.client.close()


# ---- ACLs

NAMED = [
    ("bucket", {"Bucket": "lake"}),
    ("bucket", {"Bucket": "sales"}),
    ("object", {"Bucket": "lake", "Key": "main/a"}),
    ("object", {"Bucket": "lake", "Key": "main/"}),
    ("object", {"Bucket": "sales", "Key": "b/1"}),
]


@pytest.mark.parametrize(("kind", "named"), NAMED)
async def test_the_owner_has_full_control_and_an_acl_that_says_so_is_accepted(
    boto: Boto, lake: GatewayLake, kind: str, named: dict[str, str]
) -> None:
    before = dict(lake.graveler.repos["lake"].branches["main"])
    found = await boto.ask(f"get_{kind}_acl", **named)
    assert found == {"Owner": OWNER, "Grants": GRANTS}
    put = functools.partial(boto.ask, f"put_{kind}_acl", **named)
    await put(AccessControlPolicy=found)
    await put(AccessControlPolicy=dict(reversed(found.items())))
    for canned in ("private", "bucket-owner-full-control"):
        await put(ACL=canned)
    assert lake.graveler.repos["lake"].branches["main"] == before


@pytest.mark.parametrize(("kind", "named"), NAMED)
async def test_any_other_acl_is_refused(boto: Boto, kind: str, named: dict[str, str]) -> None:
    refused = functools.partial(boto.refused, f"put_{kind}_acl", **named)
    told = (400, "AccessControlListNotSupported")
    for canned in ("public-read", "public-read-write", "authenticated-read"):
        assert await refused(ACL=canned) == told
    assert await refused(GrantRead='id="eve"') == told
    assert await refused(GrantFullControl='id="akiaadmin"', ACL="private") == told
    read = [{**GRANTS[0], "Permission": "READ"}]
    for grants in ([], [PUBLIC], [OTHER], read, [*GRANTS, PUBLIC], [*GRANTS, OTHER]):
        document = {"Owner": OWNER, "Grants": grants}
        assert await refused(AccessControlPolicy=document) == told, grants
    document = {"Owner": {"ID": "eve"}, "Grants": GRANTS}
    assert await refused(AccessControlPolicy=document) == told
    document = {"Owner": OWNER, "Grants": GRANTS}
    assert await refused(AccessControlPolicy=document, ACL="private") == (400, "InvalidRequest")
    assert await refused() == (400, "MissingRequestBodyError")


async def test_a_document_that_is_no_acl_is_malformed(boto: Boto, lake: GatewayLake) -> None:
    for body in (
        b"<AccessControlPolicy><Owner><Name>akiaadmin</Name></Owner></AccessControlPolicy>",
        b"<AccessControlPolicy><ID>akiaadmin</ID></AccessControlPolicy>",
        b"<Delete/>",
    ):
        reply = await lake.ask("PUT", "/lake", "acl", body)
        assert (reply.status, reply.code) == (400, "MalformedXML")
    large = b"<AccessControlPolicy>" + b" " * 70_000 + b"</AccessControlPolicy>"
    reply = await lake.ask("PUT", "/lake/main/a", "acl", large)
    assert (reply.status, reply.code) == (400, "MaxMessageLengthExceeded")


async def test_an_acl_is_of_an_object_that_is_there(boto: Boto) -> None:
    for name, more in (("get_object_acl", {}), ("put_object_acl", {"ACL": "private"})):
        for bucket, key in (("lake", "main/none"), ("lake", "main"), ("sales", "main/a")):
            told = await boto.refused(name, Bucket=bucket, Key=key, **more)
            assert told == (404, "NoSuchKey"), (name, key)
        told = await boto.refused(name, Bucket="river", Key="main/a", **more)
        assert told == (404, "NoSuchBucket")
    for name, more in (("get_bucket_acl", {}), ("put_bucket_acl", {"ACL": "private"})):
        assert await boto.refused(name, Bucket="river", **more) == (404, "NoSuchBucket")
    told = await boto.refused("put_object_acl", Bucket="lake", Key="main~1/a", ACL="private")
    assert told == (405, "MethodNotAllowed")


async def test_a_reader_is_the_owner_it_sees_and_changes_nothing(port: int) -> None:
    reader = connect(port, "AKIAREADER")
    for kind, named in (NAMED[0], NAMED[2]):
        found = await reader.ask(f"get_{kind}_acl", **named)
        assert found["Owner"]["ID"] == "akiareader"
        told = await reader.refused(f"put_{kind}_acl", AccessControlPolicy=found, **named)
        assert told == (403, "AccessDenied")
    blocked = {"PublicAccessBlockConfiguration": ALL_BLOCKED}
    told = await reader.refused("put_public_access_block", Bucket="lake", **blocked)
    assert told == (403, "AccessDenied")
    reader.client.close()


@pytest.mark.parametrize("header", ["public-read", "aws-exec-read"])
async def test_an_object_is_not_stored_with_an_acl_that_says_more(
    boto: Boto, lake: GatewayLake, header: str
) -> None:
    told = await boto.refused("put_object", Bucket="lake", Key="main/new", Body=b"x", ACL=header)
    assert told == (400, "AccessControlListNotSupported")
    assert "new" not in lake.graveler.repos["lake"].branches["main"]
    await boto.ask("put_object", Bucket="lake", Key="main/new", Body=b"x", ACL="private")


# ---- settings of buckets

SHOWN: dict[str, Any] = {
    "get_bucket_ownership_controls": {
        "OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    },
    "get_public_access_block": {"PublicAccessBlockConfiguration": ALL_BLOCKED},
    "get_bucket_request_payment": {"Payer": "BucketOwner"},
    "get_bucket_logging": {},
    "get_bucket_notification_configuration": {},
    "get_bucket_accelerate_configuration": {},
    "get_bucket_versioning": {},
}
UNSET = {
    "get_bucket_policy": "NoSuchBucketPolicy",
    "get_bucket_policy_status": "NoSuchBucketPolicy",
    "get_bucket_tagging": "NoSuchTagSet",
    "get_bucket_lifecycle_configuration": "NoSuchLifecycleConfiguration",
    "get_bucket_lifecycle": "NoSuchLifecycleConfiguration",
    "get_bucket_encryption": "ServerSideEncryptionConfigurationNotFoundError",
    "get_bucket_website": "NoSuchWebsiteConfiguration",
    "get_bucket_replication": "ReplicationConfigurationNotFoundError",
    "get_object_lock_configuration": "ObjectLockConfigurationNotFoundError",
}


@pytest.mark.parametrize("name", SHOWN)
async def test_a_setting_that_every_bucket_has_is_shown(boto: Boto, name: str) -> None:
    for bucket in ("lake", "sales"):
        assert await boto.ask(name, Bucket=bucket) == SHOWN[name]
    assert await boto.refused(name, Bucket="river") == (404, "NoSuchBucket")


@pytest.mark.parametrize("name", UNSET)
async def test_a_setting_that_no_bucket_has_is_told_by_its_code(boto: Boto, name: str) -> None:
    for bucket in ("lake", "sales"):
        assert await boto.refused(name, Bucket=bucket) == (404, UNSET[name])
    assert await boto.refused(name, Bucket="river") == (404, "NoSuchBucket")


async def test_what_is_so_may_be_put(boto: Boto) -> None:
    for bucket in ("lake", "sales"):
        await boto.ask(
            "put_public_access_block",
            Bucket=bucket,
            PublicAccessBlockConfiguration=dict(reversed(ALL_BLOCKED.items())),
        )
        await boto.ask(
            "put_bucket_ownership_controls",
            Bucket=bucket,
            OwnershipControls=SHOWN["get_bucket_ownership_controls"]["OwnershipControls"],
        )


async def test_booleans_may_be_in_upper_case(lake: GatewayLake) -> None:
    values = "".join(f"<{name}>TRUE</{name}>\n" for name in ALL_BLOCKED)
    body = f"<PublicAccessBlockConfiguration>{values}</PublicAccessBlockConfiguration>".encode()
    assert (await lake.ask("PUT", "/lake", "publicAccessBlock", body)).status == 200


async def test_what_is_not_so_is_refused_by_name(boto: Boto) -> None:
    told = (501, "NotImplemented")
    for name in ALL_BLOCKED:
        for blocked in ({**ALL_BLOCKED, name: False}, {name: True}):
            refused = boto.refused(
                "put_public_access_block", Bucket="lake", PublicAccessBlockConfiguration=blocked
            )
            assert await refused == told
    for rules in (["ObjectWriter"], ["BucketOwnerPreferred"]):
        controls = {"Rules": [{"ObjectOwnership": rule} for rule in rules]}
        refused = boto.refused(
            "put_bucket_ownership_controls", Bucket="lake", OwnershipControls=controls
        )
        assert await refused == told, rules
    missing = boto.refused(
        "put_bucket_ownership_controls",
        Bucket="river",
        OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
    )
    assert await missing == (404, "NoSuchBucket")


@pytest.mark.parametrize(
    "rules",
    [
        [],
        ["BucketOwnerEnforced"] * 2,
        ["BucketOwnerEnforced", "ObjectWriter"],
        ["Nobody"],
        ["bucketownerenforced"],
        [""],
    ],
)
async def test_controls_of_ownership_that_s3_does_not_know_are_malformed(
    boto: Boto, rules: list[str]
) -> None:
    controls = {"Rules": [{"ObjectOwnership": rule} for rule in rules]}
    refused = boto.refused(
        "put_bucket_ownership_controls", Bucket="lake", OwnershipControls=controls
    )
    assert await refused == (400, "MalformedXML")


@pytest.mark.parametrize("inner", ["<Rule/>", "<Rule><ObjectOwnership>", "<Rules/>", "text"])
async def test_a_document_of_ownership_without_an_owner_is_malformed(
    lake: GatewayLake, inner: str
) -> None:
    body = f"<OwnershipControls>{inner}</OwnershipControls>".encode()
    reply = await lake.ask("PUT", "/lake", "ownershipControls", body)
    assert (reply.status, reply.code) == (400, "MalformedXML")


# ---- versions

KEYS = ["main/a", "main/b/1", "main/b/2", "main/d e+ü"]


async def test_each_object_has_one_version(boto: Boto) -> None:
    found = await boto.ask("list_object_versions", Bucket="lake", Prefix="main/")
    listed = await boto.ask("list_objects", Bucket="lake", Prefix="main/")
    same = ("Key", "ETag", "Size", "LastModified", "StorageClass", "Owner")
    versions = [{name: row[name] for name in same} for row in found["Versions"]]
    assert versions == [{name: row[name] for name in same} for row in listed["Contents"]]
    assert [row["Key"] for row in found["Versions"]] == KEYS
    assert {(row["VersionId"], row["IsLatest"]) for row in found["Versions"]} == {("null", True)}
    assert "DeleteMarkers" not in found
    assert (found["Name"], found["Prefix"], found["IsTruncated"]) == ("lake", "main/", False)


@pytest.mark.parametrize(("bucket", "root"), [("lake", "main/"), ("sales", "")])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 1000])
async def test_versions_come_in_pages(boto: Boto, bucket: str, root: str, size: int) -> None:
    for delimiter, keys, prefixes in (
        ("", ["a", "b/1", "b/2", "d e+ü"], []),
        ("/", ["a", "d e+ü"], ["b/"]),
    ):
        pages = await boto.pages(
            "list_object_versions",
            Bucket=bucket,
            Prefix=root,
            Delimiter=delimiter,
            PaginationConfig={"PageSize": size},
        )
        rows = [row["Key"] for page in pages for row in page.get("Versions", [])]
        rolled = [row["Prefix"] for page in pages for row in page.get("CommonPrefixes", [])]
        assert rows == [root + key for key in keys]
        assert rolled == [root + prefix for prefix in prefixes]
        assert len(pages) == -(-(len(keys) + len(prefixes)) // size)


async def test_the_next_page_of_versions_begins_after_a_key_or_a_common_prefix(boto: Boto) -> None:
    ask = functools.partial(boto.ask, "list_object_versions", Bucket="sales", Delimiter="/")
    first = await ask(MaxKeys=1)
    assert (first["NextKeyMarker"], first["NextVersionIdMarker"]) == ("a", "null")
    second = await ask(MaxKeys=1, KeyMarker="a", VersionIdMarker="null")
    assert (second["KeyMarker"], second["VersionIdMarker"]) == ("a", "null")
    assert (second["NextKeyMarker"], "NextVersionIdMarker" in second) == ("b/", False)
    third = await ask(KeyMarker="b/")
    assert [row["Key"] for row in third["Versions"]] == ["d e+ü"]
    whole = await boto.ask("list_object_versions", Bucket="lake", Delimiter="/")
    assert [row["Prefix"] for row in whole["CommonPrefixes"]] == ["dev/", "main/", "v1/"]
    every = await boto.ask("list_object_versions", Bucket="lake")
    assert [row["Key"] for row in every["Versions"]] == KEYS


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"VersionIdMarker": "null"}, (400, "InvalidArgument")),
        ({"KeyMarker": "main/a", "VersionIdMarker": "3"}, (400, "InvalidArgument")),
        ({"MaxKeys": -1}, (400, "InvalidArgument")),
        ({"Prefix": "nobranch/"}, (404, "NoSuchKey")),
        ({"Bucket": "river"}, (404, "NoSuchBucket")),
    ],
)
async def test_versions_that_cannot_be_listed(
    boto: Boto, arguments: dict[str, Any], told: tuple[int, str]
) -> None:
    assert await boto.refused("list_object_versions", **{"Bucket": "lake", **arguments}) == told


@pytest.mark.parametrize(("bucket", "root"), [("lake", "main/"), ("sales", "")])
async def test_the_version_null_is_read_and_deleted(
    boto: Boto, lake: GatewayLake, bucket: str, root: str
) -> None:
    named = {"Bucket": bucket, "Key": f"{root}a", "VersionId": "null"}
    assert (await boto.ask("head_object", **named))["ContentLength"] == 4
    assert (await boto.ask("get_object_acl", **named))["Grants"] == GRANTS
    got = await boto.ask("get_object", **named)
    assert await asyncio.to_thread(got["Body"].read) == b"text"
    await boto.ask("delete_object", **named)
    versions = (await boto.ask("list_object_versions", Bucket=bucket, Prefix=root))["Versions"]
    objects = [{"Key": row["Key"], "VersionId": row["VersionId"]} for row in versions]
    done = await boto.ask("delete_objects", Bucket=bucket, Delete={"Objects": objects})
    assert (len(done["Deleted"]), "Errors" in done) == (3, False)
    assert lake.graveler.repos["lake"].branches["main"] == {}
    told = await boto.refused("get_object", **{**named, "VersionId": "3sL4kqtJlcpXroDTDmJ"})
    assert told == (501, "NotImplemented")


# ---- pages of buckets


async def test_buckets_come_in_pages_with_their_region(boto: Boto, lake: GatewayLake) -> None:
    for number in range(7):
        lake.create(f"pond-{number}")
    every = ["lake", *(f"pond-{number}" for number in range(7)), "sales"]
    plain = await boto.ask("list_buckets")
    assert [row["Name"] for row in plain["Buckets"]] == every
    assert "BucketRegion" not in plain["Buckets"][0]
    pages = await boto.pages("list_buckets", PaginationConfig={"PageSize": 4})
    assert [[row["Name"] for row in page["Buckets"]] for page in pages] == [
        every[:4],
        every[4:8],
        every[8:],
    ]
    assert {row["BucketRegion"] for page in pages for row in page["Buckets"]} == {"us-east-1"}
    ponds = await boto.ask("list_buckets", Prefix="pond-", MaxBuckets=2)
    assert ([row["Name"] for row in ponds["Buckets"]], ponds["Prefix"]) == (every[1:3], "pond-")
    here = await boto.ask("list_buckets", BucketRegion="us-east-1")
    assert len(here["Buckets"]) == 9
    away = await boto.ask("list_buckets", BucketRegion="eu-west-1", ContinuationToken="x")
    assert (away["Buckets"], "ContinuationToken" in away) == ([], False)


async def test_more_than_a_thousand_buckets_come_at_once(boto: Boto, lake: GatewayLake) -> None:
    for number in range(2100):
        lake.create(f"pond-{number:04}")
    assert len((await boto.ask("list_buckets"))["Buckets"]) == 2102
    some = await boto.ask("list_buckets", MaxBuckets=1500)
    assert len(some["Buckets"]) == 1500
    rest = await boto.ask("list_buckets", ContinuationToken=some["ContinuationToken"])
    assert len(rest["Buckets"]) == 602
    assert "ContinuationToken" not in rest


@pytest.mark.parametrize(
    "query",
    [
        "max-buckets=0",
        "max-buckets=10001",
        "max-buckets=9999999999",
        "max-buckets=many",
        "bucket-region=",
        "bucket-region=US%20East",
        "continuation-token=" + "x" * 1025,
    ],
)
async def test_pages_of_buckets_that_cannot_be(lake: GatewayLake, query: str) -> None:
    reply = await lake.ask("GET", "/", query)
    assert (reply.status, reply.code) == (400, "InvalidArgument")
    assert lake.graveler.calls == []


# ---- storage classes


async def test_the_standard_class_has_two_names(boto: Boto, lake: GatewayLake) -> None:
    for storage_class in ("STANDARD", "REDUCED_REDUNDANCY"):
        named = {"Bucket": "lake", "Key": f"main/{storage_class}", "StorageClass": storage_class}
        await boto.ask("put_object", Body=b"x", **named)
        await boto.ask("copy_object", CopySource="lake/main/a", **named)
        begun = await boto.ask("create_multipart_upload", **named)
        parts = await boto.ask(
            "list_parts", Bucket="lake", Key=named["Key"], UploadId=begun["UploadId"]
        )
        assert parts["StorageClass"] == "STANDARD"
    reply = await lake.ask("PUT", "/lake/main/x", body=b"x", headers={"x-amz-storage-class": ""})
    assert reply.status == 200
    listed = await boto.ask("list_objects_v2", Bucket="lake", Prefix="main/")
    assert {row["StorageClass"] for row in listed["Contents"]} == {"STANDARD"}


async def test_other_classes_are_invalid(boto: Boto, lake: GatewayLake) -> None:
    before = dict(lake.graveler.repos["lake"].branches["main"])
    for storage_class in ("GLACIER", "STANDARD_IA", "standard"):
        named = {"Bucket": "lake", "Key": "main/new", "StorageClass": storage_class}
        for name, more in (
            ("put_object", {"Body": b"x"}),
            ("copy_object", {"CopySource": "lake/main/a"}),
            ("create_multipart_upload", {}),
        ):
            assert await boto.refused(name, **named, **more) == (400, "InvalidStorageClass")
    assert lake.graveler.repos["lake"].branches["main"] == before
    assert lake.graveler.uploads == {}
