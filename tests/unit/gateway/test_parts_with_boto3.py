"""Multipart uploads and reads of parts with a real client: boto3 over a socket, the gateway's own handler behind it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError
from gateway_lake import GatewayLake

from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_gateway.http import HttpLimits, HttpServer

pytestmark = pytest.mark.timeout(60)
MIB5 = 5 * 1024**2
BODIES = (b"a" * MIB5, b"b" * (MIB5 + 1), b"the end")
WHOLE = b"".join(BODIES)
Client = Callable[..., Any]

FULL, COMPOSITE = "FULL_OBJECT", "COMPOSITE"
TYPES = [
    ("CRC32", COMPOSITE),
    ("CRC32", FULL),
    ("CRC32C", COMPOSITE),
    ("CRC32C", FULL),
    ("CRC64NVME", FULL),
    ("SHA1", COMPOSITE),
    ("SHA256", COMPOSITE),
]


@asynccontextmanager
async def connected(lake: GatewayLake, **settings: str) -> AsyncIterator[Client]:
    """Calls a method of a client in a thread, with `lake` as the bucket."""
    clock = SystemClock()
    server = HttpServer(
        lake.handler, HttpLimits(), clock=clock, ids=SystemIds(clock), on_error=lake.handler.refuse
    )
    async with server:
        port = await server.listen("127.0.0.1", 0)
        client = boto3.session.Session().client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            aws_access_key_id="AKIAADMIN",
            aws_secret_access_key="admin-secret",
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}, **settings),
        )

        async def call(name: str, **arguments: Any) -> Any:
            arguments.setdefault("Bucket", "lake")
            return await asyncio.to_thread(functools.partial(getattr(client, name), **arguments))

        try:
            yield call
        finally:
            client.close()


@pytest.fixture
async def s3(lake: GatewayLake) -> AsyncIterator[Client]:
    async with connected(lake) as client:
        yield client


@pytest.fixture
async def plain(lake: GatewayLake) -> AsyncIterator[Client]:
    """A client that adds no checksum by itself, as those of 2024."""
    async with connected(lake, request_checksum_calculation="when_required") as client:
        yield client


async def body_of(answer: Any) -> bytes:
    return bytes(await asyncio.to_thread(answer["Body"].read))


async def refused(work: Any) -> tuple[int, str]:
    with pytest.raises(ClientError) as caught:
        await work
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


async def uploaded(s3: Client, **begun: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Uploads `BODIES`; returns the arguments of the completion, and what the parts were answered."""
    upload = await s3("create_multipart_upload", Key="main/big", **begun)
    place = {"Key": "main/big", "UploadId": upload["UploadId"]}
    algorithm = begun.get("ChecksumAlgorithm")
    more = {"ChecksumAlgorithm": algorithm} if algorithm else {}
    parts = []
    for number, body in enumerate(BODIES, 1):
        made = await s3("upload_part", **place, PartNumber=number, Body=body, **more)
        kept = {name: made[name] for name in made if name == "ETag" or name.startswith("Checksum")}
        parts.append({"PartNumber": number, **kept})
    return {**place, "MultipartUpload": {"Parts": parts}}, parts


@pytest.mark.parametrize(("algorithm", "kind"), TYPES)
async def test_each_checksum_of_each_type_is_kept_and_told(
    s3: Client, algorithm: str, kind: str
) -> None:
    name = f"Checksum{algorithm}"
    begun = {"ChecksumAlgorithm": algorithm, "ChecksumType": kind}
    completion, parts = await uploaded(s3, **begun)
    (pending,) = (await s3("list_multipart_uploads", Prefix="main/"))["Uploads"]
    listed = await s3("list_parts", Key="main/big", UploadId=completion["UploadId"])
    for told in (pending, listed):
        assert (told["ChecksumAlgorithm"], told["ChecksumType"]) == (algorithm, kind)
    assert [each[name] for each in listed["Parts"]] == [each[name] for each in parts]
    done = await s3("complete_multipart_upload", **completion, MpuObjectSize=len(WHOLE))
    head = await s3("head_object", Key="main/big", ChecksumMode="ENABLED")
    for told in (done, head):
        assert told["ChecksumType"] == kind
        assert told[name].endswith("-3") == (kind == COMPOSITE)
    # boto3 compares a checksum of the whole object, and those of parts, with the bytes that it reads.
    got = await s3("get_object", Key="main/big", ChecksumMode="ENABLED")
    assert await body_of(got) == WHOLE
    for number, body in enumerate(BODIES, 1):
        place = {"Key": "main/big", "PartNumber": number}
        one = await s3("get_object", **place, ChecksumMode="ENABLED")
        assert await body_of(one) == body
        assert (one["PartsCount"], one["ContentLength"]) == (3, len(body))
        assert one.get(name) == (parts[number - 1][name] if kind == COMPOSITE else None)
        assert (await s3("head_object", **place))["ContentRange"] == one["ContentRange"]
    told = await s3("get_object_attributes", Key="main/big", ObjectAttributes=["Checksum"])
    assert told["Checksum"] == {name: done[name].partition("-")[0], "ChecksumType": kind}


async def test_attributes_as_the_client_reads_them(s3: Client) -> None:
    completion, parts = await uploaded(s3, ChecksumAlgorithm="SHA256")
    done = await s3("complete_multipart_upload", **completion)
    names = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]
    told = await s3("get_object_attributes", Key="main/big", ObjectAttributes=names)
    assert told["ETag"] == done["ETag"].strip('"')
    assert (told["ObjectSize"], told["StorageClass"]) == (len(WHOLE), "STANDARD")
    found = told["ObjectParts"]
    assert (found["TotalPartsCount"], found["IsTruncated"]) == (3, False)
    sums = [each["ChecksumSHA256"] for each in parts]
    assert found["Parts"] == [
        {"PartNumber": number, "Size": len(body), "ChecksumSHA256": value}
        for number, (body, value) in enumerate(zip(BODIES, sums, strict=True), 1)
    ]
    page = await s3(
        "get_object_attributes",
        Key="main/big",
        ObjectAttributes=["ObjectParts"],
        MaxParts=1,
        PartNumberMarker=1,
    )
    found = page["ObjectParts"]
    assert [each["PartNumber"] for each in found["Parts"]] == [2]
    assert (found["IsTruncated"], found["NextPartNumberMarker"]) == (True, 2)
    wrong = s3("get_object_attributes", Key="main/big", ObjectAttributes=["Owner"])
    assert await refused(wrong) == (400, "InvalidArgument")
    absent = s3("get_object_attributes", Key="main/absent", ObjectAttributes=["ETag"])
    assert await refused(absent) == (404, "NoSuchKey")


async def test_refusals_of_parts(s3: Client) -> None:
    completion, _ = await uploaded(s3)
    await s3("complete_multipart_upload", **completion)
    for number, told in ((4, (416, "InvalidPartNumber")), (10_001, (400, "InvalidArgument"))):
        assert await refused(s3("get_object", Key="main/big", PartNumber=number)) == told
    both = s3("get_object", Key="main/big", PartNumber=1, Range="bytes=0-1")
    assert await refused(both) == (400, "InvalidRequest")


@pytest.mark.parametrize(
    ("begun", "default", "none"),
    [
        ({}, True, True),
        ({"ChecksumAlgorithm": "CRC32"}, True, False),
        ({"ChecksumAlgorithm": "CRC32", "ChecksumType": FULL}, True, True),
        ({"ChecksumAlgorithm": "CRC64NVME"}, False, True),
        ({"ChecksumAlgorithm": "SHA256"}, False, False),
    ],
)
async def test_a_client_that_names_no_algorithm_for_its_parts(
    s3: Client, plain: Client, begun: dict[str, str], default: bool, none: bool
) -> None:
    """A current one sends a CRC32 with each, an older one sends nothing: accepted where S3 accepts it."""
    upload = await s3("create_multipart_upload", Key="main/big", **begun)
    place = {"Key": "main/big", "UploadId": upload["UploadId"]}
    parts: dict[int, dict[str, Any]] = {}
    for number, client, is_accepted in ((1, s3, default), (2, plain, none)):
        work = client("upload_part", **place, PartNumber=number, Body=BODIES[number - 1])
        if not is_accepted:
            assert await refused(work) == (400, "InvalidRequest")
            continue
        made = await work
        if number == 1:
            assert made["ChecksumCRC32"]
        kept = {name: made[name] for name in made if name == "ETag" or name.startswith("Checksum")}
        parts[number] = {"PartNumber": number, **kept}
    if parts:
        listed = {"Parts": list(parts.values())}
        await s3("complete_multipart_upload", **place, MultipartUpload=listed)
        got = await s3("get_object", Key="main/big")
        assert await body_of(got) == b"".join(BODIES[number - 1] for number in parts)


async def test_every_step_may_be_repeated_after_a_lost_answer(s3: Client) -> None:
    lost = await s3("create_multipart_upload", Key="main/big")
    completion, parts = await uploaded(s3)
    assert lost["UploadId"] != completion["UploadId"]
    place = {"Key": "main/big", "UploadId": completion["UploadId"]}
    again = await s3("upload_part", **place, PartNumber=1, Body=BODIES[0])
    assert again["ETag"] == parts[0]["ETag"]
    wrong = s3("complete_multipart_upload", **completion, MpuObjectSize=len(WHOLE) - 1)
    assert await refused(wrong) == (400, "InvalidRequest")
    first = await s3("complete_multipart_upload", **completion, MpuObjectSize=len(WHOLE))
    again = await s3("complete_multipart_upload", **completion, MpuObjectSize=len(WHOLE))
    assert again["ETag"] == first["ETag"]
    got = await s3("get_object", Key="main/big", PartNumber=2)
    assert await body_of(got) == BODIES[1]
    other = {"Key": "main/big", "UploadId": lost["UploadId"]}
    await s3("abort_multipart_upload", **other)
    assert await refused(s3("abort_multipart_upload", **other)) == (404, "NoSuchUpload")


async def test_a_small_part_before_the_last_is_refused_at_completion(s3: Client) -> None:
    upload = await s3("create_multipart_upload", Key="main/big")
    place = {"Key": "main/big", "UploadId": upload["UploadId"]}
    parts = []
    for number, body in enumerate((BODIES[0][1:], b"end"), 1):
        made = await s3("upload_part", **place, PartNumber=number, Body=body)
        parts.append({"PartNumber": number, "ETag": made["ETag"]})
    whole = s3("complete_multipart_upload", **place, MultipartUpload={"Parts": parts})
    assert await refused(whole) == (400, "EntityTooSmall")
    await s3("complete_multipart_upload", **place, MultipartUpload={"Parts": parts[:1]})
    assert (await s3("head_object", Key="main/big"))["ContentLength"] == MIB5 - 1


async def test_ranges_of_sources_are_copied_as_s3_does(s3: Client) -> None:
    await s3("put_object", Key="main/source", Body=BODIES[1])
    await s3("put_object", Key="main/small", Body=BODIES[0])
    upload = await s3("create_multipart_upload", Key="main/big")
    place = {"Key": "main/big", "UploadId": upload["UploadId"], "PartNumber": 1}

    def copy(source: str, wanted: str) -> Any:
        return s3("upload_part_copy", **place, CopySource=source, CopySourceRange=wanted)

    end = MIB5 + 1
    assert await refused(copy("lake/main/source", f"bytes=0-{end}")) == (400, "InvalidArgument")
    assert await refused(copy("lake/main/source", "bytes=5-")) == (400, "InvalidArgument")
    assert await refused(copy("lake/main/small", "bytes=0-1")) == (400, "InvalidRequest")
    made = await copy("lake/main/source", "bytes=1-3")
    parts = [{"PartNumber": 1, "ETag": made["CopyPartResult"]["ETag"]}]
    del place["PartNumber"]
    await s3("complete_multipart_upload", **place, MultipartUpload={"Parts": parts})
    assert await body_of(await s3("get_object", Key="main/big", PartNumber=1)) == b"bbb"


async def test_a_managed_upload_is_read_back_part_by_part(
    s3: Client, lake: GatewayLake, tmp_path: Any
) -> None:
    path = tmp_path / "body"
    path.write_bytes(WHOLE)
    config = TransferConfig(multipart_threshold=MIB5, multipart_chunksize=MIB5, use_threads=False)
    await s3("upload_file", Filename=str(path), Key="main/big", Config=config)
    count = (await s3("head_object", Key="main/big", PartNumber=1))["PartsCount"]
    pieces = [
        await body_of(await s3("get_object", Key="main/big", PartNumber=number))
        for number in range(1, count + 1)
    ]
    assert (b"".join(pieces), [len(each) for each in pieces]) == (WHOLE, [MIB5, MIB5, 8])


async def test_open_uploads_are_listed_by_prefix_delimiter_and_markers(s3: Client) -> None:
    keys = ["dev/x", "main/a", "main/a", "main/dir/1", "main/dir/2", "main/z", "other"]
    for key in keys[:-1]:
        await s3("create_multipart_upload", Key=key)

    async def pages(most: int, **more: str) -> list[str]:
        seen: list[str] = []
        ids: set[str] = set()
        markers: dict[str, str] = {}
        while True:
            page = await s3("list_multipart_uploads", MaxUploads=most, **more, **markers)
            uploads, prefixes = page.get("Uploads", []), page.get("CommonPrefixes", [])
            assert 0 < len(uploads) + len(prefixes) <= most
            ids |= {each["UploadId"] for each in uploads}
            found = [each["Key"] for each in uploads] + [each["Prefix"] for each in prefixes]
            seen += sorted(found)
            if not page["IsTruncated"]:
                assert len(ids) == len([each for each in seen if not each.endswith("/")])
                return seen
            markers = {"KeyMarker": page["NextKeyMarker"]}
            if page.get("NextUploadIdMarker"):
                markers["UploadIdMarker"] = page["NextUploadIdMarker"]

    for most in (1, 2, 1000):
        assert await pages(most) == keys[:-1]
        assert await pages(most, Prefix="main/dir") == ["main/dir/1", "main/dir/2"]
        rolled = ["main/a", "main/a", "main/dir/", "main/z"]
        assert await pages(most, Prefix="main/", Delimiter="/") == rolled
