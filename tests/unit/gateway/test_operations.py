"""Requests in general: permissions, refusals and the log; and buckets."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from gateway_lake import GatewayLake

from tarn.core.errors import Kind, Reason
from tarn.core.quota import Limits, QuotaKind
from tarn.gate.rates import RateLimits
from tarn_gateway.documents.xml_in import COMPLETE_BYTES_MAX, DELETE_BYTES_MAX

BIG = bytes(70_000)

REQUESTS = [
    ("GET", "/", ""),
    ("HEAD", "/lake", ""),
    ("GET", "/lake", "location"),
    ("GET", "/lake", "versioning"),
    ("GET", "/lake", "prefix=main/"),
    ("GET", "/lake", "list-type=2&prefix=main/"),
    ("GET", "/lake", "uploads"),
    ("GET", "/lake/main/a", ""),
    ("HEAD", "/lake/main/a", ""),
    ("GET", "/lake/main/a", "uploadId=0123456789abcdef0123456789abcdef"),
]
WRITES = [
    ("PUT", "/lake/main/a", ""),
    ("DELETE", "/lake/main/a", ""),
    ("POST", "/lake/main/a", "uploads"),
    ("PUT", "/lake/main/a", "partNumber=1&uploadId=0123456789abcdef0123456789abcdef"),
    ("POST", "/lake/main/a", "uploadId=0123456789abcdef0123456789abcdef"),
    ("DELETE", "/lake/main/a", "uploadId=0123456789abcdef0123456789abcdef"),
]


@pytest.mark.parametrize(("method", "target", "query"), REQUESTS + WRITES)
async def test_unsigned_requests_are_denied(
    lake: GatewayLake, method: str, target: str, query: str
) -> None:
    reply = await lake.ask(method, target, query, key="")
    assert reply.status == 403
    assert reply.line["code"] == "AccessDenied"
    assert lake.graveler.calls == []


@pytest.mark.parametrize(("method", "target", "query"), WRITES)
async def test_a_reader_may_not_write(
    lake: GatewayLake, method: str, target: str, query: str
) -> None:
    reply = await lake.ask(method, target, query, b"body", key="AKIAREADER")
    assert (reply.status, reply.code) == (403, "AccessDenied")
    assert lake.graveler.calls == []
    assert reply.reads == 0


async def test_a_reader_may_not_delete_many(lake: GatewayLake) -> None:
    body = b"<Delete><Object><Key>main/a</Key></Object></Delete>"
    reply = await lake.ask("POST", "/lake", "delete", body, key="AKIAREADER")
    assert (reply.status, reply.code) == (403, "AccessDenied")
    assert lake.graveler.calls == []
    assert reply.reads == 0, "the document is not received from a caller who may delete nothing"


async def test_whoever_may_delete_some_keys_has_each_checked(lake: GatewayLake) -> None:
    body = b"<Delete>%b</Delete>" % b"".join(
        b"<Object><Key>%b</Key></Object>" % key for key in (b"main/a", b"dev/b")
    )
    reply = await lake.ask("POST", "/lake", "delete", body, key="AKIAPARTIAL")
    assert (reply.status, reply.all("Code")) == (200, ["AccessDenied"])
    assert reply.all("Key") == ["main/a", "dev/b"]
    other = await lake.ask("POST", "/other", "delete", body, key="AKIAPARTIAL")
    assert (other.status, other.reads) == (403, 0)


@pytest.mark.parametrize(
    ("target", "query", "limit"),
    [("/lake", "delete", DELETE_BYTES_MAX), ("/lake/main/a", "uploadId=u1", COMPLETE_BYTES_MAX)],
)
async def test_documents_beyond_the_budget_are_not_received(
    lake: GatewayLake, target: str, query: str, limit: int
) -> None:
    if "uploadId" in query:
        created = await lake.ask("POST", target, "uploads")
        query = f"uploadId={created.all('UploadId')[0]}"
    with lake.backend.documents.budget.hold("another", 32 * 1024**2):
        with lake.backend.documents.budget.hold("a third", 32 * 1024**2 - 3):
            reply = await lake.ask("POST", target, query, b"<a/>")
        assert (reply.status, reply.code, reply.reads) == (503, "SlowDown", 0)
        assert reply.headers["retry-after"] == "2"
        # Without a length, the largest one is taken from the budget.
        with lake.backend.documents.budget.hold("a third", 32 * 1024**2 - limit + 1):
            reply = await lake.ask("POST", target, query, b"<a/>", length=None)
        assert (reply.code, reply.reads) == ("SlowDown", 0)
        reply = await lake.ask("POST", target, query, b"<a/>", length=None)
        assert reply.code == "MalformedXML"
    assert lake.backend.documents.budget.held == 0


async def test_no_document_is_received_for_an_upload_that_does_not_exist(lake: GatewayLake) -> None:
    reply = await lake.ask("POST", "/lake/main/a", "uploadId=none", b"<a/>")
    assert (reply.code, reply.reads) == ("NoSuchUpload", 0)


@pytest.mark.parametrize(
    ("changes", "identified"),
    [
        ({}, True),
        ({"presign_s": 60}, True),
        ({"key": "AKIAREADER"}, True),
        ({"key": ""}, False),
        ({"tamper": "0"}, False),
        ({"secret": "another"}, False),
        ({"key": "AKIAUNKNOWN"}, False),
    ],
)
async def test_a_verified_signature_identifies_the_client_of_a_connection(
    lake: GatewayLake, changes: dict[str, Any], identified: bool
) -> None:
    """Also if the request is refused afterwards: the connection is that of a user."""
    reply = await lake.ask("GET", "/lake/main/none", **changes)
    assert reply.status in (403, 404)
    assert reply.identified is identified


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tamper": "0"}, "SignatureDoesNotMatch"),
        ({"secret": "another"}, "SignatureDoesNotMatch"),
        ({"key": "AKIAUNKNOWN"}, "InvalidAccessKeyId"),
    ],
)
async def test_wrong_keys_and_signatures_are_refused(
    lake: GatewayLake, changes: dict[str, Any], code: str
) -> None:
    reply = await lake.ask("PUT", "/lake/main/a", body=BIG, **changes)
    assert (reply.status, reply.code) == (403, code)
    assert lake.graveler.calls == []
    assert await lake.blocks_of("lake") == []
    assert reply.reads == 0


async def test_a_refusal_says_what_was_not_accepted(lake: GatewayLake) -> None:
    unknown = await lake.ask("GET", "/lake/main/a", key="AKIAUNKNOWN")
    assert unknown.element("AWSAccessKeyId") == "AKIAUNKNOWN"
    wrong = await lake.ask("GET", "/lake/main/a", tamper="0")
    assert wrong.element("AWSAccessKeyId") == "AKIAADMIN"
    assert wrong.element("SignatureProvided") == "0" * 64
    for name in ("StringToSign", "CanonicalRequest"):
        shown = bytes.fromhex(wrong.element(f"{name}Bytes")).decode()
        assert shown == wrong.element(name)
        assert shown.startswith(("AWS4-HMAC-SHA256\n", "GET\n/lake/main/a\n"))


async def test_what_a_long_refused_request_signed_is_shown_once(lake: GatewayLake) -> None:
    wrong = await lake.ask("GET", "/lake/main/a", "x=" + "y" * 9000, tamper="0")
    assert "y" * 9000 in wrong.element("CanonicalRequest")
    assert wrong.element("CanonicalRequestBytes") == ""


async def test_a_session_token_is_not_shown(lake: GatewayLake) -> None:
    for presign_s in (0, 60):
        query = "X-Amz-Security-Token=secret" if presign_s else ""
        headers = {} if presign_s else {"x-amz-security-token": "secret"}
        wrong = await lake.ask(
            "GET", "/lake/main/a", query, headers=headers, presign_s=presign_s, secret="wrong"
        )
        assert wrong.status in (400, 403)
        assert b"secret" not in wrong.body.replace(b"holds a session token", b"")
        assert b"73 65 63 72 65 74" not in wrong.body


async def test_a_clock_that_is_off_is_refused(lake: GatewayLake) -> None:
    lake.clock.advance(16 * 60)
    reply = await lake.ask("GET", "/lake/main/a")
    assert (reply.status, reply.code) == (403, "RequestTimeTooSkewed")


async def test_a_presigned_url_works_until_it_expires(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=b"text")
    assert (await lake.ask("GET", "/lake/main/a", presign_s=60)).body == b"text"
    lake.clock.advance(90)
    late = await lake.ask("GET", "/lake/main/a", presign_s=60)
    assert (late.status, late.code) == (403, "AccessDenied")


@pytest.mark.parametrize("name", ["analytics", "torrent", "abac", "retention"])
@pytest.mark.parametrize("target", ["/lake", "/lake/main/a"])
async def test_sub_resources_that_are_not_offered_are_named(
    lake: GatewayLake, target: str, name: str
) -> None:
    reply = await lake.ask("GET", target, f"{name}=")
    assert (reply.status, reply.code) == (501, "NotImplemented")
    assert name.encode() in reply.body.lower()


async def test_put_with_a_sub_resource_is_no_put_object(lake: GatewayLake) -> None:
    reply = await lake.ask("PUT", "/lake/main/a", "legal-hold=", body=b"<LegalHold/>")
    assert (reply.status, reply.code) == (501, "NotImplemented")
    assert lake.graveler.calls == []


async def test_encryption_is_refused_by_name(lake: GatewayLake) -> None:
    headers = {"x-amz-server-side-encryption": "AES256"}
    reply = await lake.ask("PUT", "/lake/main/a", body=b"x", headers=headers)
    assert (reply.status, reply.code) == (501, "NotImplemented")
    assert b"x-amz-server-side-encryption" in reply.body
    assert await lake.blocks_of("lake") == []


@pytest.mark.parametrize(
    ("kind", "reason", "status", "code"),
    [
        (Kind.UNAVAILABLE, Reason.UNAVAILABLE, 503, "ServiceUnavailable"),
        (Kind.EXHAUSTED, Reason.OVERLOADED, 503, "SlowDown"),
        (Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, 503, "ServiceUnavailable"),
        (Kind.DENIED, Reason.ACCESS_DENIED, 403, "AccessDenied"),
        (Kind.CORRUPT, Reason.DATA_CORRUPT, 500, "InternalError"),
    ],
)
async def test_failures_of_graveler_become_s3_codes(
    lake: GatewayLake, failure: Any, kind: Kind, reason: Reason, status: int, code: str
) -> None:
    lake.graveler.fail["lookup"] = [failure(kind, reason)]
    reply = await lake.ask("GET", "/lake/main/a")
    assert (reply.status, reply.code) == (status, code)


async def test_a_write_beyond_a_quota_leaves_no_block(lake: GatewayLake, failure: Any) -> None:
    lake.graveler.fail["stage"] = [failure(Kind.EXHAUSTED, Reason.QUOTA_EXCEEDED)]
    reply = await lake.ask("PUT", "/lake/main/a", body=b"x")
    assert (reply.status, reply.code) == (403, "QuotaExceeded")
    assert await lake.blocks_of("lake") == []


async def test_a_bug_is_an_internal_error_that_tells_nothing(lake: GatewayLake) -> None:
    lake.graveler.fail["lookup"] = [RuntimeError("the secret plan")]
    reply = await lake.ask("GET", "/lake/main/a")
    assert (reply.status, reply.code) == (500, "InternalError")
    assert b"secret" not in reply.body


async def test_one_line_says_what_was_done_and_no_secret(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/dir/a", body=b"text")
    reply = await lake.ask("GET", "/lake/main/dir/a", "x-id=GetObject", presign_s=60)
    line = reply.line
    assert line["operation"] == "GetObject"
    assert (line["repo"], line["ref"], line["path"]) == ("lake", "main", "dir/a")
    assert (line["code"], line["status"], line["bytes_out"]) == ("OK", 200, 4)
    assert line["user"] == "akiaadmin"
    text = repr(line)
    assert "X-Amz" not in text
    assert "admin-secret" not in text


async def test_answers_carry_an_extended_request_id(lake: GatewayLake) -> None:
    assert "x-amz-id-2" in (await lake.ask("HEAD", "/lake")).headers
    assert "x-amz-id-2" in (await lake.ask("HEAD", "/nothere")).headers


async def test_buckets_are_repositories(lake: GatewayLake) -> None:
    lake.create("pond")
    listed = await lake.ask("GET", "/")
    assert listed.all("Name") == ["lake", "pond"]
    assert (await lake.ask("HEAD", "/pond")).status == 200
    assert (await lake.ask("HEAD", "/", host="pond.s3.test")).status == 200
    gone = await lake.ask("HEAD", "/river")
    assert (gone.status, gone.line["code"]) == (404, "NoSuchBucket")
    location = await lake.ask("GET", "/lake", "location")
    assert b"LocationConstraint" in location.body
    versioning = await lake.ask("GET", "/lake", "versioning")
    assert b"VersioningConfiguration" in versioning.body
    assert (await lake.ask("GET", "/river", "location")).code == "NoSuchBucket"


UPLOAD = "uploadId=0123456789abcdef0123456789abcdef"
SELF = {"x-amz-copy-source": "lake/main/a"}
SUM = "x-amz-checksum-"


@pytest.mark.parametrize(
    ("method", "query", "headers", "code", "sentence"),
    [
        ("GET", "partNumber=0", {}, "InvalidArgument",
         "Part number must be an integer between 1 and 10000, inclusive."),
        ("GET", "partNumber=1", {"range": "bytes=0-0"}, "InvalidRequest",
         "Cannot specify both Range header and partNumber query parameter"),
        ("PUT", "", SELF, "InvalidRequest",
         "This copy request is illegal because it is trying to copy an object to itself without "
         "changing the object's metadata, storage class, website redirect location or encryption "
         "attributes."),
        ("PUT", "", {**SELF, "x-amz-metadata-directive": "NONE"}, "InvalidArgument",
         "Unknown metadata directive."),
        ("PUT", "", {"x-amz-copy-source": "lake"}, "InvalidArgument",
         "Invalid copy source object key"),
        ("PUT", "", {f"{SUM}crc32": "x"}, "InvalidRequest",
         "Value for x-amz-checksum-crc32 header is invalid."),
        ("PUT", "", {f"{SUM}none": "x"}, "InvalidRequest",
         "The algorithm type you specified in x-amz-checksum- header is invalid."),
        ("PUT", "", {f"{SUM}crc32": "AAAAAA==", f"{SUM}crc32c": "AAAAAA=="}, "InvalidRequest",
         "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."),
        ("PUT", "", {"x-amz-sdk-checksum-algorithm": "CRC32"}, "InvalidRequest",
         "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or "
         "x-amz-trailer headers were found."),
        ("PUT", "", {f"{SUM}crc32": "AAAAAA==", "x-amz-sdk-checksum-algorithm": "SHA1"},
         "InvalidRequest", "Value for x-amz-sdk-checksum-algorithm header is invalid."),
        ("POST", "uploads", {f"{SUM}type": "COMPOSITE"}, "InvalidRequest",
         "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header."),
        ("POST", "uploads", {f"{SUM}algorithm": "SHA1", f"{SUM}type": "FULL_OBJECT"},
         "InvalidRequest",
         "The FULL_OBJECT checksum type cannot be used with the sha1 checksum algorithm."),
        ("POST", UPLOAD, {f"{SUM}type": "NONE"}, "InvalidRequest",
         "Value for x-amz-checksum-type header is invalid."),
        ("POST", UPLOAD, {"x-amz-mp-object-size": "-1"}, "InvalidRequest",
         "Value for x-amz-mp-object-size header is less than zero: '-1'"),
        ("POST", UPLOAD, {"x-amz-mp-object-size": "x"}, "InvalidRequest",
         "Value for x-amz-mp-object-size header is invalid: 'x'"),
        ("POST", UPLOAD, {f"{SUM}crc32": "AAAAAA==-2a"}, "InvalidRequest",
         "Value for x-amz-checksum-crc32 header is invalid."),
        ("POST", "uploads", {f"{SUM}algorithm": "MD4"}, "InvalidRequest",
         "Checksum algorithm provided is unsupported. Please try again with any of the valid "
         "types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]"),
        ("POST", "uploads", {f"{SUM}type": "HALF"}, "InvalidRequest",
         "Value for x-amz-checksum-type header is invalid."),
        ("PUT", "", {f"{SUM}crc32": "x", f"{SUM}crc32c": "x"}, "InvalidRequest",
         "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."),
        ("GET", f"max-parts=x&{UPLOAD}", {}, "InvalidArgument",
         "Provided max-parts not an integer or within integer range"),
        ("GET", f"max-parts=-1&{UPLOAD}", {}, "InvalidArgument",
         "Argument max-parts must be an integer between 0 and 2147483647"),
    ],
)  # fmt: skip
async def test_a_refusal_has_the_sentence_of_s3(
    lake: GatewayLake, method: str, query: str, headers: dict[str, str], code: str, sentence: str
) -> None:
    await lake.ask("PUT", "/lake/main/a", body=b"text")
    reply = await lake.ask(method, "/lake/main/a", query, b"x" * (method == "PUT"), headers)
    assert (reply.status, reply.code) == (400, code)
    assert reply.message.startswith(sentence)


async def test_an_expired_url_says_when_it_expired(lake: GatewayLake) -> None:
    lake.clock.advance(300)
    reply = await lake.ask("GET", "/lake/main/a", presign_s=60)
    assert (reply.status, reply.message) == (403, "Request has expired")
    assert reply.element("X-Amz-Expires") == "60"
    expired, now = reply.element("Expires"), reply.element("ServerTime")
    for text in (expired, now):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", text)
    assert expired < now


COPY = {"x-amz-copy-source": "river/main/a"}
ATTRIBUTES = {"x-amz-object-attributes": "ETag"}


@pytest.mark.parametrize("key", ["a", "a b", "~", "/a", "main/a", "main/", "a" * 1000])
@pytest.mark.parametrize(
    ("method", "query", "headers"),
    [
        ("PUT", "", {}),
        ("PUT", "", COPY),
        ("PUT", "acl", {"x-amz-acl": "private"}),
        ("GET", "", {}),
        ("GET", "acl", {}),
        ("GET", "attributes", ATTRIBUTES),
        ("GET", "attributes", {}),
        ("DELETE", "", {}),
        ("POST", "uploads", {}),
        ("PUT", f"partNumber=1&{UPLOAD}", {}),
        ("POST", UPLOAD, {}),
        ("DELETE", UPLOAD, {}),
        ("DELETE", "uploadId=none", {}),
        ("GET", UPLOAD, {}),
    ],
)
async def test_a_bucket_that_is_nothing_is_told_before_its_key(
    lake: GatewayLake, method: str, query: str, headers: dict[str, str], key: str
) -> None:
    reply = await lake.ask(method, f"/river/{key}", query, headers=headers)
    assert (reply.status, reply.code) == (404, "NoSuchBucket")


async def test_a_key_of_a_repository_is_still_refused_for_what_it_is(lake: GatewayLake) -> None:
    put = await lake.ask("PUT", "/lake/a", body=b"1")
    assert (put.status, put.code) == (400, "InvalidArgument")
    assert (await lake.ask("GET", "/lake/main/none")).code == "NoSuchKey"


async def test_who_may_not_read_learns_no_name(lake: GatewayLake, failure: Any) -> None:
    lake.graveler.fail["GetRepository"] = [failure(Kind.DENIED, Reason.ACCESS_DENIED)] * 2
    for bucket in ("lake", "river"):
        reply = await lake.ask("PUT", f"/{bucket}/a", body=b"1", key="AKIAWRITER")
        assert (reply.status, reply.code) == (400, "InvalidArgument")


async def test_who_may_not_read_deletes_the_root_of_a_branch(
    lake: GatewayLake, failure: Any
) -> None:
    lake.graveler.fail["GetRepository"] = [failure(Kind.DENIED, Reason.ACCESS_DENIED)]
    assert (await lake.ask("DELETE", "/lake/main/", key="AKIAWRITER")).status == 204


async def test_buckets_come_in_pages_when_asked(lake: GatewayLake) -> None:
    lake.create("pond")
    first = await lake.ask("GET", "/", "max-buckets=1")
    assert first.all("Name") == ["lake"]
    (token,) = first.all("ContinuationToken")
    second = await lake.ask("GET", "/", f"max-buckets=1&continuation-token={token}")
    assert second.all("Name") == ["pond"]
    assert second.all("ContinuationToken") == []


async def test_a_name_that_no_repository_can_have_is_an_invalid_bucket(lake: GatewayLake) -> None:
    reply = await lake.ask("GET", "/Under_Score/main/a")
    assert (reply.status, reply.code) == (400, "InvalidBucketName")


async def test_a_request_beyond_a_rate_is_counted_apart_from_failures(
    lake: GatewayLake, failure: Any
) -> None:
    """Both answers are 503 SlowDown; only the second is a failure."""
    rates = RateLimits(lake.client, cast("Any", None), lake.clock, gateways=1)
    rates._known[QuotaKind.REPOSITORY, "lake"] = Limits(requests_per_second=1)
    rates.is_on = True
    lake.handler._rates = rates
    lake.graveler.fail["lookup"] = [failure(Kind.EXHAUSTED, Reason.OVERLOADED)]
    for _ in range(2):
        reply = await lake.ask("GET", "/lake/main/a")
        assert (reply.status, reply.code) == (503, "SlowDown")
    throttled = {tuple(each.values()): n for each, n in lake.meters.samples("gateway.throttled")}
    assert throttled.pop(("repository", "requests_per_second")) == 1
    assert set(throttled.values()) == {0}
