"""Every header that changes the meaning of a request is honoured or refused, for every operation.

For each row and operation a request is sent with a value of the header that no operation can honour silently.
If the operation does not honour it, the request is refused before anything is read or done. If it does, the
answer or what is stored differs from that of the same request without the header.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.loaders import Loader
from gateway_lake import GatewayLake
from s3_multipart import listed

from tarn_gateway.documents import xml_out
from tarn_gateway.documents.tagging import tagging_document
from tarn_gateway.http import Headers
from tarn_gateway.operation import COPY_SOURCE, About, Operation
from tarn_gateway.operations.settings import OWNERSHIP, PUBLIC_ACCESS
from tarn_gateway.operations.table import BY_NAME, OPERATIONS
from tarn_gateway.requests.header_table import ALL, HEADERS, HeaderRow, check_headers, row_of
from tarn_gateway.s3error import CODES, S3Error

BODIES = {
    "PutBucketAcl": xml_out.access_control_policy("akiaadmin"),
    "PutObjectAcl": xml_out.access_control_policy("akiaadmin"),
    "PutBucketOwnershipControls": xml_out.settings(OWNERSHIP.root, OWNERSHIP.values),
    "PutObjectTagging": tagging_document((("a", "1"),)),
    "PutPublicAccessBlock": xml_out.settings(PUBLIC_ACCESS.root, PUBLIC_ACCESS.values),
}
UNSET = {
    "NoSuchBucketPolicy",
    "NoSuchTagSet",
    "NoSuchLifecycleConfiguration",
    "ServerSideEncryptionConfigurationNotFoundError",
    "NoSuchWebsiteConfiguration",
    "ReplicationConfigurationNotFoundError",
    "ObjectLockConfigurationNotFoundError",
}
"""The answers to valid requests for settings that no bucket has."""
DELETE = b"<Delete><Object><Key>main/other</Key></Object></Delete>"
CORS = (
    b"<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod></CORSRule>"
    b"</CORSConfiguration>"
)
EPOCH = "Thu, 01 Jan 1970 00:00:00 GMT"
FUTURE = "Fri, 01 Jan 2100 00:00:00 GMT"
OWNERS = ("x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner")
AUTHENTICATION = {
    "authorization",
    "date",
    "x-amz-date",
    "x-amz-content-sha256",
    "x-amz-security-token",
}

NOTICED = {
    "if-match": '"0"',
    "if-none-match": "*",
    "if-modified-since": FUTURE,
    "if-unmodified-since": EPOCH,
    "x-amz-copy-source-if-match": '"0"',
    "x-amz-copy-source-if-none-match": "*",
    "x-amz-copy-source-if-modified-since": FUTURE,
    "x-amz-copy-source-if-unmodified-since": EPOCH,
    "range": "bytes=1-1",
    "if-range": '"0"',
    "x-amz-copy-source": "/lake/v1/absent",
    "x-amz-copy-source-range": "bytes=1-1",
    "x-amz-metadata-directive": "MOVE",
    "content-md5": base64.b64encode(bytes(16)).decode(),
    "x-amz-checksum-*": base64.b64encode(bytes(4)).decode(),
    "x-amz-sdk-checksum-algorithm": "SHA1",
    "x-amz-trailer": "x-amz-checksum-crc32",
    "x-amz-checksum-algorithm": "SHA1",
    "x-amz-checksum-type": "NONE",
    "x-amz-checksum-mode": "ENABLED",
    "x-amz-mp-object-size": "999",
    "referer": "https://audit.example.org/hadoop/1/op_create/",
    "x-amz-storage-class": "GLACIER",
    "x-amz-optional-object-attributes": "Owner",
    "x-amz-acl": "public-read",
    "x-amz-object-ownership": "ObjectWriter",
    "x-amz-request-payer": "owner",
    "x-amz-tagging-directive": "REPLACE",
    "x-amz-object-annotation-directive": "REPLACE",
}
"""Values whose effect shows; of all other headers, the value `noticed` shows or is refused."""
EXAMPLES = {
    "x-amz-if-*": "x-amz-if-match-owner",
    "x-amz-meta-*": "x-amz-meta-noticed",
    "x-amz-checksum-*": "x-amz-checksum-crc32",
    "x-amz-server-side-encryption*": "x-amz-server-side-encryption-customer-key",
    "x-amz-copy-source-*": "x-amz-copy-source-server-side-encryption-customer-key",
    "x-amz-object-lock-*": "x-amz-object-lock-mode",
    "x-amz-grant-*": "x-amz-grant-read",
    "x-amz-rename-source*": "x-amz-rename-source",
}

NAMED = {"CreateBucket": "/made", "DeleteBucket": "/gone"}

NAMES = [name for row in HEADERS for name in row.names.split()]


def row_and_header(name: str) -> tuple[HeaderRow, str, str]:
    """Returns the row of a name of the table, a header that it stands for, and the value to send."""
    (row,) = (row for row in HEADERS if name in row.names.split())
    return row, EXAMPLES.get(name, name), NOTICED.get(name, "noticed")


def others(row: HeaderRow, name: str) -> list[Operation]:
    """Returns the operations that do not honour a header."""
    # A PUT with this header is a copy: it selects another operation.
    return [
        operation
        for operation in OPERATIONS
        if not row.honours(operation.name)
        and not (name == COPY_SOURCE and operation.method == "PUT")
    ]


def reads_of(operation: Operation) -> int:
    """Reads of the body before a request is refused: a form has its signature there."""
    return 1 if operation.about is About.FORM else 0


def row_names(operation: Operation) -> set[str]:
    """The headers that an operation honours, by an example of each."""
    rows = [row for row in HEADERS if row.honoured_by != ALL and row.honours(operation.name)]
    return {EXAMPLES.get(name, name) for row in rows for name in row.names.split()}


class Client:
    """Sends a valid request of each operation to a lake that has what they need."""

    def __init__(self, lake: GatewayLake) -> None:
        self.lake = lake
        self.upload = ""

    async def prepare(self) -> None:
        """Makes an object with a checksum and an object tag, a tag with another one, and an upload with a part."""
        lake = self.lake
        repo = lake.graveler.repos["lake"]
        repo.branches["main"].clear()
        lake.graveler.cors["lake"] = (
            '{"CORSRules":[{"AllowedOrigins":["*"],"AllowedMethods":["GET"]}]}'
        )
        headers = {"x-amz-checksum-crc32": "O4unxw==", "x-amz-tagging": "team=ada"}
        await lake.ask("PUT", "/lake/main/a", body=b"text", headers=headers)
        repo.tags["v1"]["source"] = repo.branches["main"]["a"]
        sums = {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "FULL_OBJECT"}
        begun = await lake.ask("POST", "/lake/main/a", "uploads", headers=sums)
        self.upload = begun.all("UploadId")[0]
        lake.graveler.point("gone", "lake", "dev")  # an empty branch
        await lake.ask("PUT", "/lake/main/a", f"partNumber=1&uploadId={self.upload}", b"text")
        lake.graveler.calls.clear()
        lake.graveler.staged.clear()

    async def ask(self, operation: Operation, headers: dict[str, str]) -> Any:
        names = [name for name in operation.selected_by.split() if name != COPY_SOURCE]
        values = {"partNumber": "1", "uploadId": self.upload}
        query = "&".join(f"{name}={values[name]}" if name in values else name for name in names)
        if operation.about is About.REF:
            query += "&prefix=main/"
        target = (
            NAMED.get(operation.name)
            or {"/": "/", "b": "/lake", "k": "/lake/main/a"}[
                "k"
                if operation.addressed.value == "an object"
                else "b"
                if operation.addressed.value == "a bucket"
                else "/"
            ]
        )
        if operation.about is About.FORM:
            # What a form honours are fields, not headers.
            fields = {
                name: value for name, value in headers.items() if name in row_names(operation)
            }
            rest = {name: value for name, value in headers.items() if name not in fields}
            return await self.lake.post("lake", {"key": "main/a", **fields}, headers=rest)
        sent = dict(headers)
        if COPY_SOURCE in operation.selected_by.split():
            sent = {COPY_SOURCE: "/lake/v1/source", **sent}
        if operation.name == "GetObjectAttributes":
            sent = {"x-amz-object-attributes": "ETag", **sent}
        return await self.lake.ask(
            operation.method, target, query.lstrip("&"), self.body(operation), sent
        )

    def body(self, operation: Operation) -> bytes:
        match operation.name:
            case "DeleteObjects":
                return DELETE
            case "CompleteMultipartUpload":
                return listed((1, "1cb251ec0d568de6a929b520c4aed8d1"), crc32s=["O4unxw=="])
            case "PutBucketCors":
                return CORS
            case "PutObject" | "UploadPart":
                return b"text"
            case name:
                return BODIES.get(name, b"")


def is_done(reply: Any) -> bool:
    """Whether a request was performed."""
    return reply.status in (200, 204) or reply.line["code"] in UNSET


@pytest.fixture
async def client(lake: GatewayLake) -> Client:
    made = Client(lake)
    await made.prepare()
    return made


@pytest.mark.parametrize("name", NAMES)
async def test_an_operation_that_does_not_honour_a_header_refuses_it_by_name(
    client: Client, name: str
) -> None:
    row, header, value = row_and_header(name)
    for operation in others(row, name):
        reply = await client.ask(operation, {header: value})
        if row.accepted is None:  # the header says nothing about such an operation
            assert is_done(reply), (operation.name, reply.body)
            await client.prepare()
            continue
        assert reply.line["code"] == row.code, operation.name
        assert reply.status == CODES[row.code][0]
        if operation.method != "HEAD":
            assert f"<Header>{header}</Header>".encode() in reply.body
        assert client.lake.graveler.calls == []
        assert reply.reads <= reads_of(operation)


def test_every_value_that_is_accepted_passes() -> None:
    for row in HEADERS:
        for value in row.accepted or ():
            for name in row.names.split():
                for operation in OPERATIONS:
                    check_headers(
                        operation.name, Headers([(name, value), ("content-length", "0")]), "ada"
                    )


async def outcome(client: Client, operation: Operation, headers: dict[str, str]) -> tuple[Any, ...]:
    """What a client and later readers see of a request."""
    await client.prepare()
    reply = await client.ask(operation, headers)
    shown = {name: value for name, value in reply.headers.items() if name != "last-modified"}
    stored = [client.lake.entry("lake", "main", "a")] if operation.name != "DeleteObject" else []
    kept: list[object] = [
        (e.content_type, e.metadata, e.cache_control, e.content_encoding, e.content_disposition,
         e.content_language, e.expires, e.lineage, e.checksums, e.tags, e.size, bool(e.operation_id))
        for e in stored
    ]  # fmt: skip
    uploads = list(client.lake.graveler.uploads.values())[-1:]
    kept += [upload.record.template[66:] for upload in uploads]
    kept += [part.size_bytes for upload in uploads for part in upload.parts.values()]
    body = re.sub(rb"<(LastModified|UploadId)>[^<]*", b"", reply.body)
    return reply.status, reply.line["code"], shown, kept, body


@pytest.mark.parametrize("name", NAMES)
async def test_an_operation_that_honours_a_header_shows_it(lake: GatewayLake, name: str) -> None:
    row, header, value = row_and_header(name)
    if row.honoured_by == ALL:
        return  # by the one place that reads requests: other tests
    if name in ("x-amz-decoded-content-length", "amz-sdk-invocation-id", "amz-sdk-request"):
        return  # it shows with aws-chunked or repeated writes only: test_payload, test_conditional_puts and _deletes
    client = Client(lake)
    for operation in map(BY_NAME.__getitem__, row.honoured_by.split()):
        beside = {"range": "bytes=1-1"} if name == "if-range" else {}
        if operation.name == "CopyObject" and name in STORED:
            beside = {"x-amz-metadata-directive": "REPLACE"}
        if operation.name == "CopyObject" and name == "x-amz-tagging":
            beside = {"x-amz-tagging-directive": "REPLACE"}
        without = await outcome(client, operation, beside)
        assert without[0] in (200, 204, 206)
        assert await outcome(client, operation, beside | {header: value}) != without, operation.name


STORED = {
    name for row in HEADERS if "content-type" in row.names.split() for name in row.names.split()
}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
@pytest.mark.parametrize("header", OWNERS)
async def test_the_owner_of_every_bucket_is_the_caller(
    client: Client, operation: Operation, header: str
) -> None:
    reply = await client.ask(operation, {header: "123456789012"})
    assert (reply.status, reply.line["code"]) == (403, "AccessDenied")
    assert client.lake.graveler.calls == []
    assert reply.reads <= reads_of(operation)
    listed = await client.lake.ask("GET", "/")
    owner = listed.all("ID")[0]
    assert is_done(await client.ask(operation, {header: owner}))


@pytest.mark.parametrize("query", ["X-Amz-Security-Token=t", "x-amz-security-token="])
async def test_a_key_pair_with_a_session_token_in_a_presigned_url_is_refused(
    client: Client, query: str
) -> None:
    reply = await client.lake.ask("GET", "/lake/main/a", query, presign_s=60)
    assert (reply.status, reply.code) == (400, "InvalidToken")


async def test_an_expected_owner_in_a_presigned_url_is_judged(client: Client) -> None:
    query = "X-Amz-Expected-Bucket-Owner=123456789012"
    reply = await client.lake.ask("DELETE", "/lake/main/a", query, presign_s=60)
    assert (reply.status, reply.code) == (403, "AccessDenied")
    assert client.lake.graveler.calls == []


@pytest.mark.parametrize("name", ["PutObject", "UploadPart"])
def test_an_upload_without_a_length_is_refused(name: str) -> None:
    with pytest.raises(S3Error, match="MissingContentLength") as caught:
        check_headers(name, Headers([("host", "h")]), "ada")
    assert caught.value.status == 411
    check_headers(name, Headers([("content-length", "0")]), "ada")
    check_headers(name, Headers([("transfer-encoding", "chunked")]), "ada")
    check_headers("CopyObject", Headers([("host", "h")]), "ada")


# ---- the table is complete


def headers_in_the_model() -> Iterator[tuple[str, str]]:
    """Yields operation and header of botocore's description of S3."""
    model: Any = Loader().load_service_model("s3", "service-2")
    for operation in OPERATIONS:
        if operation.about is About.FORM:
            continue  # no SDK sends it
        name = model["operations"][operation.name].get("input", {}).get("shape")
        for about in model["shapes"].get(name, {"members": {}})["members"].values():
            if about.get("location") in ("header", "headers"):
                yield operation.name, about["locationName"].lower()


FRAMING = {"content-length"}


def test_every_header_of_every_operation_has_a_row() -> None:
    """Fails when botocore learns a new header: until it has a row, it may be ignored."""
    missing = {name for _, name in headers_in_the_model() if row_of(name) is None} - FRAMING
    assert missing == set()


def test_rows_name_operations_and_no_header_has_two() -> None:
    names = [name for row in HEADERS for name in row.names.split()]
    assert len(names) == len(set(names))
    for row in HEADERS:
        assert row.honoured_by == ALL or set(row.honoured_by.split()) <= set(BY_NAME), row.names
    on_all = {name for row in HEADERS if row.honoured_by == ALL for name in row.names.split()}
    assert on_all == AUTHENTICATION | set(OWNERS)


def test_a_row_of_its_own_takes_precedence_over_a_beginning() -> None:
    assert row_of("x-amz-copy-source-range") is not row_of("x-amz-copy-source-unknown")
    assert row_of("x-amz-unknown") is None
    check_headers("GetObject", Headers([("x-amz-unknown", "x"), ("x-amz-metadata", "x")]), "ada")
