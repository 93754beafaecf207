"""Put, get, head and delete. Copies: `test_operations_copies.py`."""

from __future__ import annotations

import base64
import hashlib
import zlib
from dataclasses import replace
from typing import Any

import pytest
from gateway_lake import GatewayLake

from tarn.core.collection import LIMITS
from tarn.core.entry import Checksum
from tarn.core.errors import Kind, Reason, TarnError
from tarn.objects import copying

SMALL = b"hello, lake\n"
LARGE = bytes(range(256)) * 1024  # 256 KiB


def crc32(body: bytes) -> str:
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


def md5(body: bytes) -> str:
    return hashlib.md5(body).hexdigest()


@pytest.mark.parametrize("body", [b"", SMALL, bytes(65_536), bytes(65_537), LARGE])
async def test_an_object_that_was_put_can_be_read(lake: GatewayLake, body: bytes) -> None:
    put = await lake.ask("PUT", "/lake/main/dir/ü & +%20.csv", body=body)
    assert (put.status, put.headers["etag"]) == (200, f'"{md5(body)}"')
    got = await lake.ask("GET", "/lake/main/dir/ü & +%20.csv")
    assert (got.status, got.body) == (200, body)
    assert got.headers["etag"] == put.headers["etag"]
    assert got.headers["content-type"] == "binary/octet-stream"
    assert got.headers["accept-ranges"] == "bytes"
    head = await lake.ask("HEAD", "/lake/main/dir/ü & +%20.csv")
    assert (head.status, head.headers["content-length"]) == (200, str(len(body)))
    entry = lake.entry("lake", "main", "dir/ü & +%20.csv")
    assert (entry.size, entry.mtime_us) == (len(body), lake.clock.now_us())
    assert await lake.blocks_of("lake") == [lake.block("lake", entry).path]


async def test_directory_markers_are_ordinary_objects(lake: GatewayLake) -> None:
    headers = {"Content-Type": "application/x-directory"}
    await lake.ask("PUT", "/lake/main/table/", headers=headers)
    assert (await lake.ask("HEAD", "/lake/main/table/")).headers["content-type"] == (
        "application/x-directory"
    )
    assert (await lake.ask("HEAD", "/lake/main/table")).status == 404


async def test_headers_and_metadata_are_kept(lake: GatewayLake) -> None:
    headers = {
        "Content-Type": "text/csv",
        "Cache-Control": "no-cache",
        "Content-Disposition": "attachment; filename=a.csv",
        "Content-Encoding": "gzip",
        "Content-Language": "de",
        "Expires": "Thu, 01 Dec 2033 16:00:00 GMT",
        "x-amz-meta-Job": "nightly",
        "Referer": "https://audit.example.org/hadoop/1/op_create/s/?ji=7",
    }
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=headers)
    got = await lake.ask("GET", "/lake/main/a")
    for name in sorted(headers.keys() - {"Referer"}):
        assert got.headers[name.lower()] == headers[name], name
    assert lake.entry("lake", "main", "a").lineage.endswith("ji=7")
    over = await lake.ask("GET", "/lake/main/a", "response-content-type=text%2Fplain")
    assert over.headers["content-type"] == "text/plain"


async def test_checksums_are_verified_stored_and_given(lake: GatewayLake) -> None:
    headers = {"x-amz-checksum-crc32": crc32(SMALL)}
    put = await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=headers)
    assert put.headers["x-amz-checksum-crc32"] == crc32(SMALL)
    assert lake.entry("lake", "main", "a").checksums == (Checksum("CRC32", crc32(SMALL)),)
    assert "x-amz-checksum-crc32" not in (await lake.ask("GET", "/lake/main/a")).headers
    mode = {"x-amz-checksum-mode": "ENABLED"}
    whole = await lake.ask("HEAD", "/lake/main/a", headers=mode)
    assert whole.headers["x-amz-checksum-crc32"] == crc32(SMALL)
    assert whole.headers["x-amz-checksum-type"] == "FULL_OBJECT"
    part = await lake.ask("GET", "/lake/main/a", headers=mode | {"Range": "bytes=0-1"})
    assert "x-amz-checksum-crc32" not in part.headers


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Content-MD5": base64.b64encode(bytes(16)).decode()}, "BadDigest"),
        ({"Content-MD5": "nonsense"}, "InvalidDigest"),
        ({"x-amz-checksum-crc32": crc32(b"other")}, "BadDigest"),
        ({"x-amz-checksum-sha256": "AAAA"}, "InvalidRequest"),
        ({"x-amz-meta-long": "x" * 2049}, "MetadataTooLarge"),
        ({"If-None-Match": '"abc"'}, "NotImplemented"),
        ({"If-None-Match": "*", "If-Match": '"abc"'}, "NotImplemented"),
        ({"If-Unmodified-Since": "Sun, 06 Nov 1994 08:49:37 GMT"}, "NotImplemented"),
    ],
)
@pytest.mark.parametrize("body", [SMALL, LARGE])
async def test_a_refused_put_leaves_nothing(
    lake: GatewayLake, headers: dict[str, str], code: str, body: bytes
) -> None:
    reply = await lake.ask("PUT", "/lake/main/a", body=body, headers=headers)
    assert reply.code == code
    assert "stage" not in lake.graveler.calls
    assert await lake.blocks_of("lake") == []


@pytest.mark.parametrize("body", [SMALL, LARGE])
async def test_a_truncated_body_leaves_nothing(lake: GatewayLake, body: bytes) -> None:
    reply = await lake.ask("PUT", "/lake/main/a", body=body, received=body[:-5])
    assert (reply.status, reply.code) == (400, "IncompleteBody")
    assert "stage" not in lake.graveler.calls
    assert await lake.blocks_of("lake") == []


@pytest.mark.parametrize("body", [SMALL, LARGE])
@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("/river/main/a", 404, "NoSuchBucket"),
        ("/lake/nobranch/a", 404, "NoSuchBucket"),
        ("/lake/v1/a", 405, "MethodNotAllowed"),
        (f"/lake/{'0' * 64}/a", 405, "MethodNotAllowed"),
        ("/lake/main~1/a", 405, "MethodNotAllowed"),
        ("/lake/main@/a", 405, "MethodNotAllowed"),
        ("/lake/a b/a", 400, "InvalidArgument"),
        ("/lake/main/" + "k" * 1025, 400, "KeyTooLongError"),
        ("/lake/main", 400, "InvalidArgument"),
        ("/lake/main/", 400, "InvalidArgument"),
    ],
)
async def test_only_paths_on_branches_take_writes(
    lake: GatewayLake, target: str, status: int, code: str, body: bytes
) -> None:
    reply = await lake.ask("PUT", target, body=body)
    assert (reply.status, reply.code) == (status, code)
    assert all(not branch for branch in lake.graveler.repos["lake"].branches.values())
    assert await lake.blocks_of("lake") == []


async def test_a_large_body_for_no_branch_is_not_received(lake: GatewayLake) -> None:
    for target in ("/lake/nobranch/a", "/lake/v1/a"):
        reply = await lake.ask("PUT", target, body=LARGE)
        assert (reply.status >= 400, reply.reads) == (True, 0)


async def test_a_writer_who_may_not_read_the_branch_is_not_stopped_early(
    lake: GatewayLake, failure: Any
) -> None:
    lake.graveler.fail["GetBranch"] = [failure(Kind.DENIED, Reason.ACCESS_DENIED)]
    assert (await lake.ask("PUT", "/lake/main/a", body=LARGE)).status == 200


@pytest.mark.parametrize(
    ("kind", "reason", "status", "kept"),
    [
        (Kind.DENIED, Reason.ACCESS_DENIED, 403, False),
        (Kind.NOT_FOUND, Reason.BRANCH_NOT_FOUND, 404, False),
        (Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, 503, True),
        (Kind.UNAVAILABLE, Reason.UNAVAILABLE, 503, True),
        (Kind.INTERNAL, Reason.INTERNAL, 500, True),
    ],
)
async def test_a_block_goes_only_when_nothing_can_refer_to_it(
    lake: GatewayLake, failure: Any, kind: Kind, reason: Reason, status: int, kept: bool
) -> None:
    lake.graveler.fail["stage"] = [failure(kind, reason)]
    assert (await lake.ask("PUT", "/lake/main/a", body=SMALL)).status == status
    assert bool(await lake.blocks_of("lake")) is kept


async def test_a_re_created_repository_is_detected(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    lake.create("lake")
    first = await lake.ask("PUT", "/lake/main/b", body=SMALL)
    assert (first.status, first.code) == (503, "ServiceUnavailable")
    again = await lake.ask("PUT", "/lake/main/b", body=SMALL)
    assert again.status == 200
    assert list(lake.graveler.repos["lake"].branches["main"]) == ["b"]


async def test_repositories_are_remembered_for_seconds_and_refs_never(lake: GatewayLake) -> None:
    for _ in range(3):
        await lake.ask("PUT", "/lake/main/a", body=SMALL)
    assert lake.graveler.calls.count("GetRepository") == 1
    lake.clock.advance(6)
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    assert lake.graveler.calls.count("GetRepository") == 2
    assert lake.graveler.calls.count("stage") == 4


@pytest.mark.parametrize(
    ("wanted", "status", "body", "content_range"),
    [
        ("bytes=0-4", 206, b"hello", "bytes 0-4/12"),
        ("bytes=7-", 206, b"lake\n", "bytes 7-11/12"),
        ("bytes=-5", 206, b"lake\n", "bytes 7-11/12"),
        ("bytes=7-9999", 206, b"lake\n", "bytes 7-11/12"),
        ("bytes=9-3", 200, SMALL, None),
        ("lines=1-2", 200, SMALL, None),
    ],
)
async def test_ranges(
    lake: GatewayLake, wanted: str, status: int, body: bytes, content_range: str | None
) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    got = await lake.ask("GET", "/lake/main/a", headers={"Range": wanted})
    assert (got.status, got.body) == (status, body)
    assert got.headers.get("content-range") == content_range
    head = await lake.ask("HEAD", "/lake/main/a", headers={"Range": wanted})
    assert (head.status, head.headers["content-length"]) == (status, str(len(body)))


async def test_a_range_of_a_large_object_is_streamed(lake: GatewayLake) -> None:
    body = LARGE * 20  # 5 MiB: more than one chunk
    await lake.ask("PUT", "/lake/main/a", body=body)
    got = await lake.ask("GET", "/lake/main/a", headers={"Range": "bytes=1000-3000000"})
    assert (got.status, got.body) == (206, body[1000:3000001])


async def test_a_range_behind_the_end_is_416(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    got = await lake.ask("GET", "/lake/main/a", headers={"Range": "bytes=12-"})
    assert (got.status, got.code) == (416, "InvalidRange")
    assert got.headers["content-range"] == "bytes */12"


async def test_reads_are_conditional(lake: GatewayLake) -> None:
    etag = (await lake.ask("PUT", "/lake/main/a", body=SMALL)).headers["etag"]

    async def get(headers: dict[str, str]) -> Any:
        return await lake.ask("GET", "/lake/main/a", headers=headers)

    assert (await get({"If-Match": etag})).status == 200
    assert (await get({"If-Match": '"other"'})).code == "PreconditionFailed"
    unchanged = await get({"If-None-Match": etag})
    assert (unchanged.status, unchanged.headers["etag"]) == (304, etag)
    # If the version differs, a range request gets the whole new object.
    assert (await get({"Range": "bytes=0-0", "If-Range": '"old"'})).status == 200
    assert (await get({"Range": "bytes=0-0", "If-Range": etag})).status == 206


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/lake/main/missing", "NoSuchKey"),
        ("/lake/nobranch/a", "NoSuchKey"),
        ("/lake/.hidden/a", "NoSuchKey"),
        ("/lake/main", "NoSuchKey"),
        ("/river/main/a", "NoSuchBucket"),
        ("/lake/main/" + "k" * 1025, "KeyTooLongError"),
    ],
)
async def test_missing_objects_refs_and_repositories(
    lake: GatewayLake, target: str, code: str
) -> None:
    got = await lake.ask("GET", target)
    assert got.code == code
    assert (await lake.ask("HEAD", target)).status == got.status


async def test_the_root_of_a_ref_is_a_directory(lake: GatewayLake) -> None:
    for target in ("/lake/main/", "/lake/v1/"):
        head = await lake.ask("HEAD", target)
        assert (head.status, head.headers["content-type"]) == (200, "application/x-directory")
    assert (await lake.ask("PUT", "/lake/main/")).status == 200
    assert (await lake.ask("DELETE", "/lake/main/")).status == 204
    assert (await lake.ask("HEAD", "/lake/nobranch/")).status == 404
    assert (await lake.ask("PUT", "/lake/nobranch/")).status == 404
    assert lake.graveler.repos["lake"].branches["main"] == {}


@pytest.mark.parametrize("body", [SMALL, LARGE, LARGE * 20])
async def test_lost_data_does_not_look_like_absence(lake: GatewayLake, body: bytes) -> None:
    await lake.ask("PUT", "/lake/main/a", body=body)
    key = lake.block("lake", lake.entry("lake", "main", "a"))
    await lake.blocks.delete_many(key.namespace, [key.path])
    got = await lake.ask("GET", "/lake/main/a")
    assert (got.status, got.code) == (500, "InternalError")


@pytest.mark.parametrize("body", [SMALL, LARGE, LARGE * 20])
async def test_an_erased_object_is_gone_and_names_its_plan(
    lake: GatewayLake, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GET, CopyObject and UploadPartCopy; graveler is asked only when the block was missed."""
    await lake.ask("PUT", "/lake/main/a", body=body)
    copy = {"x-amz-copy-source": "lake/main/a"}
    assert (await lake.ask("GET", "/lake/main/a")).body == body
    entry = lake.entry("lake", "main", "a")
    key = lake.block("lake", entry)
    monkeypatch.setattr(copying, "YOUNG", replace(LIMITS, staging_us=0))  # copy by bytes
    assert (await lake.ask("PUT", "/lake/main/b", headers=copy)).status == 200
    assert "FindErased" not in lake.graveler.calls
    await lake.blocks.delete_many(key.namespace, [key.path])
    lake.graveler.erased[entry.address] = "ab" * 16
    begun = (await lake.ask("POST", "/lake/main/c", "uploads")).all("UploadId")[0]
    for got in (
        await lake.ask("GET", "/lake/main/a"),
        await lake.ask("PUT", "/lake/main/b", headers=copy),
        await lake.ask("PUT", "/lake/main/c", f"partNumber=1&uploadId={begun}", headers=copy),
    ):
        assert (got.status, got.code) == (410, "ObjectErased")
        assert f"<ErasurePlan>{'ab' * 16}</ErasurePlan>".encode() in got.body
    assert lake.graveler.calls.count("FindErased") == 3
    lake.graveler.fail["FindErased"] = [TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "x")]
    assert (await lake.ask("GET", "/lake/main/a")).status == 503
    lake.graveler.fail["FindErased"] = [TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, "x")]
    assert (await lake.ask("GET", "/lake/main/a")).status == 500, "a replica of the last release"


# Deletes


async def test_deleting_is_idempotent(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    assert (await lake.ask("DELETE", "/lake/main/a")).status == 204
    assert (await lake.ask("DELETE", "/lake/main/a")).status == 204
    assert (await lake.ask("GET", "/lake/main/a")).code == "NoSuchKey"


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/lake/nobranch/a", "NoSuchBucket"),
        ("/lake/v1/a", "MethodNotAllowed"),
        ("/lake/main~1/a", "MethodNotAllowed"),
        ("/river/main/a", "NoSuchBucket"),
    ],
)
async def test_impossible_deletes_are_refused(lake: GatewayLake, target: str, code: str) -> None:
    assert (await lake.ask("DELETE", target)).code == code


def deletion(*keys: str, quiet: bool = False) -> bytes:
    objects = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
    return f"<Delete><Quiet>{str(quiet).lower()}</Quiet>{objects}</Delete>".encode()


async def test_many_keys_of_many_refs_have_an_outcome_each(lake: GatewayLake) -> None:
    for target in ("/lake/main/a", "/lake/main/b", "/lake/dev/a"):
        await lake.ask("PUT", target, body=SMALL)
    keys = ("main/a", "dev/a", "main/missing", "nobranch/a", "v1/a", "main/stubborn", "main/")
    reply = await lake.ask("POST", "/lake", "delete", deletion(*keys))
    assert reply.status == 200
    assert reply.all("Key") == list(keys)
    assert reply.all("Code") == ["NoSuchBucket", "MethodNotAllowed", "SlowDown"]
    assert list(lake.graveler.repos["lake"].branches["main"]) == ["b"]
    assert lake.graveler.calls.count("UnstageEntries") == 4


async def test_a_quiet_deletion_tells_only_failures(lake: GatewayLake) -> None:
    reply = await lake.ask("POST", "/lake", "delete", deletion("main/a", "v1/a", quiet=True))
    assert reply.all("Key") == ["v1/a"]
    assert reply.all("Deleted") == []


async def test_a_deletion_of_many_that_fails_as_a_whole_asks_the_client_to_retry(
    lake: GatewayLake, failure: Any
) -> None:
    lake.graveler.fail["UnstageEntries"] = [failure(Kind.UNAVAILABLE, Reason.UNAVAILABLE)]
    reply = await lake.ask("POST", "/lake", "delete", deletion("main/a", "main/b"))
    assert (reply.status, reply.code) == (503, "ServiceUnavailable")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"<Delete><Object>", "MalformedXML"),
        (b"<Delete></Delete>", "MalformedXML"),
        (b"<Other/>", "MalformedXML"),
        (b"", "MissingRequestBodyError"),
        (deletion(*["main/a"] * 1001), "MalformedXML"),
    ],
)
async def test_deletions_that_cannot_be_read(lake: GatewayLake, body: bytes, code: str) -> None:
    reply = await lake.ask("POST", "/lake", "delete", body)
    assert (reply.status, reply.code) == (400, code)
    assert "UnstageEntries" not in lake.graveler.calls


async def test_a_damaged_deletion_deletes_nothing(lake: GatewayLake) -> None:
    headers = {"Content-MD5": base64.b64encode(bytes(16)).decode()}
    reply = await lake.ask("POST", "/lake", "delete", deletion("main/a"), headers=headers)
    assert reply.code == "BadDigest"
    assert "UnstageEntries" not in lake.graveler.calls
