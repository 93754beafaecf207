"""HTTP, signatures and documents with a real client: boto3 signs and sends; a small handler verifies the request,
keeps objects in a dict, and answers with Tarn's documents."""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import urllib.request
from collections.abc import AsyncIterator, Callable
from itertools import repeat
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tarn.core.entry import Entry, listed_of, pack
from tarn.objects.byterange import UnsatisfiableRangeError, parse_range
from tarn.objects.conditions import Verdict
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_auth.authorizer import signing_key
from tarn_gateway.bodies.payload import PayloadPolicy, open_payload
from tarn_gateway.documents import xml_out
from tarn_gateway.documents.xml_in import parse_delete
from tarn_gateway.http import HttpLimits, HttpServer, Request, Response
from tarn_gateway.requests.address import parse_address
from tarn_gateway.requests.condition_headers import read_conditions
from tarn_gateway.requests.query import parse_query
from tarn_gateway.s3error import S3Error, error_response
from tarn_gateway.signing.sigv4 import SigV4Policy, parse_authorization, verify

pytestmark = pytest.mark.timeout(30)
SECRET = "a-secret-of-some-length"


class TinyGateway:
    """Objects in a dict, one version each."""

    def __init__(self, clock: SystemClock) -> None:
        self.clock = clock
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.modes: set[str] = set()

    async def handle(self, request: Request) -> Response:
        signed = parse_authorization(request, self.clock.now_us(), SigV4Policy())
        key = signing_key(SECRET, signed.date, signed.region, "s3")
        verify(signed, key)
        self.modes.add(signed.payload_hash if "-" in signed.payload_hash else "hash")
        address = parse_address(request.headers.text("host"), request.raw_path)
        payload = open_payload(request, signed, key, PayloadPolicy())
        if request.method == "PUT":
            body, sums = await payload.read_all(1 << 30)
            checksums = {
                f"x-amz-checksum-{each.algorithm.lower()}": each.value for each in sums.checksums
            }
            self.objects[address.key] = (body, checksums)
            return Response(200, [("ETag", f'"{sums.md5.hex()}"'), *checksums.items()])
        if request.method == "POST":
            body, _ = await payload.read_all(1 << 20)
            keys = parse_delete(body).keys
            outcomes = [xml_out.DeletedKey(key) for key in keys if self.objects.pop(key, None)]
            return Response(200, [], xml_out.delete_result(outcomes, quiet=False))
        if not address.key:
            url_encoded = parse_query(request.raw_query).text("encoding-type") == "url"
            names = sorted(self.objects)
            bodies = [self.objects[name][0] for name in names]
            digests = [hashlib.md5(body).digest() for body in bodies]
            entries = map(Entry, map(len, bodies), repeat(0), repeat(bytes(16)), digests)
            shown = listed_of(map(pack, entries))
            listing = xml_out.Listing(address.bucket, names, shown, url_encoded=url_encoded)
            return Response(200, [], xml_out.list_objects_v2(listing))
        return self.read(request, address.key)

    def read(self, request: Request, key: str) -> Response:
        if key not in self.objects:
            raise S3Error("NoSuchKey")
        body, checksums = self.objects[key]
        etag = hashlib.md5(body).hexdigest()
        verdict = read_conditions(request.headers).judge(etag, 0)
        if verdict is Verdict.FAILED:
            raise S3Error("PreconditionFailed")
        headers = [("ETag", f'"{etag}"')]
        if verdict is Verdict.NOT_MODIFIED:
            return Response(304, headers)
        try:
            found = parse_range(request.headers.get("range"), len(body))
        except UnsatisfiableRangeError:
            raise S3Error("InvalidRange") from None
        if found is None:
            return Response(200, headers + list(checksums.items()), body)
        part = body[found.start : found.start + found.length]
        return Response(206, [*headers, ("Content-Range", found.content_range)], part)


def refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, S3Error)
    return error_response(error, request)


@pytest.fixture
async def gateway() -> AsyncIterator[tuple[TinyGateway, Callable[..., Any]]]:
    clock = SystemClock()
    tiny = TinyGateway(clock)
    server = HttpServer(
        tiny.handle, HttpLimits(), clock=clock, ids=SystemIds(clock), on_error=refuse
    )
    clients: list[Any] = []

    def client(secret: str = SECRET, **config: Any) -> Any:
        made = boto3.session.Session().client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            aws_access_key_id="AKIAEXAMPLE",
            aws_secret_access_key=secret,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}, **config),
        )
        clients.append(made)
        return made

    async with server:
        port = await server.listen("127.0.0.1", 0)
        try:
            yield tiny, client
        finally:
            for made in clients:
                made.close()


async def call(function: Callable[..., Any], **arguments: Any) -> Any:
    return await asyncio.to_thread(functools.partial(function, Bucket="repo", **arguments))


KEYS = [
    "main/a",
    "main/dt=2026-11-01/ä b+c%&~*'().parquet",
    "main//x/../y",
    "main/日本語",
    "main/a?b#c",
]


async def test_odd_keys_and_bodies_go_there_and_back(
    gateway: tuple[TinyGateway, Callable[..., Any]],
) -> None:
    tiny, make = gateway
    client = make()
    for i, key in enumerate(KEYS):
        body = bytes([i]) * (i * 300_000)
        await call(client.put_object, Key=key, Body=body)
        answer = await call(client.get_object, Key=key)
        assert await asyncio.to_thread(answer["Body"].read) == body
        head = await call(client.head_object, Key=key)
        assert head["ContentLength"] == len(body)
        assert head["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    listed = await call(client.list_objects_v2)
    assert [row["Key"] for row in listed["Contents"]] == sorted(KEYS)
    objects = {"Objects": [{"Key": key} for key in KEYS]}
    deleted = await call(client.delete_objects, Delete=objects)
    assert [row["Key"] for row in deleted["Deleted"]] == KEYS
    assert not tiny.objects


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
async def test_each_checksum_is_taken_and_given_back(
    gateway: tuple[TinyGateway, Callable[..., Any]], algorithm: str
) -> None:
    _, make = gateway
    client = make()
    put = await call(client.put_object, Key="main/k", Body=b"hello", ChecksumAlgorithm=algorithm)
    got = await call(client.get_object, Key="main/k", ChecksumMode="ENABLED")
    assert got[f"Checksum{algorithm}"] == put[f"Checksum{algorithm}"]
    assert base64.b64decode(got[f"Checksum{algorithm}"])
    await asyncio.to_thread(got["Body"].read)  # botocore compares


async def test_ranges_conditions_and_errors(
    gateway: tuple[TinyGateway, Callable[..., Any]],
) -> None:
    _, make = gateway
    client = make()
    await call(client.put_object, Key="main/k", Body=b"0123456789")
    part = await call(client.get_object, Key="main/k", Range="bytes=-3")
    assert await asyncio.to_thread(part["Body"].read) == b"789"
    assert part["ContentRange"] == "bytes 7-9/10"
    for arguments, status, code in [
        ({"Key": "main/none"}, 404, "NoSuchKey"),
        ({"Key": "main/k", "IfMatch": '"x"'}, 412, "PreconditionFailed"),
        ({"Key": "main/k", "IfNoneMatch": "*"}, 304, "304"),
        ({"Key": "main/k", "Range": "bytes=10-"}, 416, "InvalidRange"),
    ]:
        with pytest.raises(ClientError) as caught:
            await call(client.get_object, **arguments)
        error = caught.value.response
        assert error["ResponseMetadata"]["HTTPStatusCode"] == status
        assert error["Error"]["Code"] == code


async def test_a_wrong_secret_is_refused_before_the_body_is_sent(
    gateway: tuple[TinyGateway, Callable[..., Any]],
) -> None:
    tiny, make = gateway
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        await call(make("another").put_object, Key="main/k", Body=bytes(10_000_000))
    assert not tiny.objects


async def test_presigned_urls_work_in_any_http_client(
    gateway: tuple[TinyGateway, Callable[..., Any]],
) -> None:
    tiny, make = gateway
    client = make(signature_version="s3v4")
    key = KEYS[1]
    got = b""
    for method, operation in (("PUT", "put_object"), ("GET", "get_object")):
        url = client.generate_presigned_url(operation, Params={"Bucket": "repo", "Key": key})
        body = b"hello" if method == "PUT" else None

        def fetch(url: str = url, body: bytes | None = body, method: str = method) -> bytes:
            request = urllib.request.Request(url, data=body, method=method)
            with urllib.request.urlopen(request, timeout=10) as answer:
                return bytes(answer.read())

        got = await asyncio.to_thread(fetch)
    assert got == b"hello"
    assert tiny.objects[key][0] == b"hello"


async def test_a_body_without_checksum_is_covered_by_its_hash(
    gateway: tuple[TinyGateway, Callable[..., Any]],
) -> None:
    tiny, make = gateway
    client = make(request_checksum_calculation="when_required")
    await call(client.put_object, Key="main/k", Body=b"x" * 100_000)
    assert tiny.objects["main/k"][0] == b"x" * 100_000
    assert tiny.modes == {"hash"}
