"""Uploads by HTML forms: what is stored, what a policy allows, and what nobody may send."""

from __future__ import annotations

import base64
import json
import urllib.parse
from contextlib import nullcontext
from typing import Any

import boto3
import pytest
from botocore.config import Config
from gateway_lake import GatewayLake, GivenBody

from tarn.core.errors import Kind, Reason, TarnError
from tarn.objects import bodies
from tarn_gateway.bodies.form import READING_MAX
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.post_policy import check_policy

KEY = {"key": "main/dir/a b"}
BUCKET = {"bucket": "lake"}


async def test_a_form_stores_an_object(lake: GatewayLake) -> None:
    fields = {
        "Key": "main/dir/a b",
        "Content-Type": "image/png",
        "x-amz-meta-Who": "ü",
        "Cache-Control": "no-cache",
        "x-ignore-this": "1",
        "acl": "private",
    }
    reply = await lake.post("lake", fields, b"bytes\r\n--limi")
    assert (reply.status, reply.body, reply.identified) == (204, b"", True)
    entry = lake.entry("lake", "main", "dir/a b")
    assert (entry.size, entry.content_type, entry.cache_control) == (13, "image/png", "no-cache")
    assert dict(entry.metadata) == {"who": "ü"}
    assert reply.headers["etag"] == f'"{entry.etag}"'
    assert reply.headers["location"] == "http://s3.test/lake/main%2Fdir%2Fa%20b"
    got = await lake.ask("GET", "/lake/main/dir/a b")
    assert got.body == b"bytes\r\n--limi"
    assert reply.line["operation"] == "PostObject"
    assert (reply.line["ref"], reply.line["path"]) == ("main", "dir/a b")


@pytest.mark.parametrize("size", [0, 1, 70_000, 700_000])
async def test_files_of_all_sizes(lake: GatewayLake, size: int) -> None:
    assert (await lake.post("lake", KEY, b"\r" * size)).status == 204
    assert (await lake.ask("GET", "/lake/main/dir/a b")).body == b"\r" * size


async def test_no_thread_receives_the_file_of_a_form(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread takes all bytes that come for those of the object, and so what ends the form, too."""
    asked: list[None] = []

    async def write_by_thread(_: object) -> None:
        asked.append(None)
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no thread")

    monkeypatch.setattr(bodies, "thread_of", lambda _: write_by_thread)
    monkeypatch.setattr(GivenBody, "by_thread", lambda _: nullcontext(object()))
    file = bytes(700_000)
    assert (await lake.ask("PUT", "/lake/main/a", body=file)).status == 503
    assert len(asked) == 1
    assert (await lake.post("lake", KEY, file)).status == 204
    assert (await lake.ask("GET", "/lake/main/dir/a b")).body == file
    assert len(asked) == 1


async def test_a_form_writes_through_a_view(lake: GatewayLake) -> None:
    lake.graveler.point("sales", "lake", "dev")
    assert (await lake.post("sales", {"key": "a"})).status == 204
    assert lake.entry("lake", "dev", "a").size == 4
    lake.graveler.point("look", "lake", "v1")
    refused = await lake.post("look", {"key": "a"})
    assert (refused.status, refused.code) == (405, "MethodNotAllowed")
    moved = await lake.post("none", {"key": "main/a"})
    assert (moved.status, moved.code) == (404, "NoSuchBucket")


async def test_a_view_that_is_pointed_elsewhere_meanwhile_is_to_be_repeated(
    lake: GatewayLake, failure: Any
) -> None:
    lake.graveler.point("sales", "lake", "dev")
    lake.graveler.fail["Stage"] = [failure(Kind.CONFLICT, Reason.BUCKET_MOVED, bucket="sales")]
    lake.graveler.fail["GetBranch"] = [failure(Kind.CONFLICT, Reason.BUCKET_MOVED, bucket="sales")]
    reply = await lake.post("sales", {"key": "a"}, b"x" * 100_000)
    assert reply.status == 503
    assert lake.graveler.repos["lake"].branches["dev"] == {}


@pytest.mark.parametrize(
    ("key", "filename", "stored"),
    [
        ("main/${filename}", "a.txt", "a.txt"),
        ("main/x-${filename}", "C:\\dir\\b.txt", "x-b.txt"),
        ("main/${filename}", "../../etc/passwd", "passwd"),
        ("main/${filename}", None, "${filename}"),
        ("main/a${filename}", "", "a"),
    ],
)
async def test_the_name_of_the_file(
    lake: GatewayLake, key: str, filename: str | None, stored: str
) -> None:
    starts = [BUCKET, ["starts-with", "$key", "main/"]]
    reply = await lake.post("lake", {"key": key}, filename=filename, conditions=starts)
    assert reply.status == 204
    assert list(lake.graveler.repos["lake"].branches["main"]) == [stored]


async def test_the_policy_is_about_the_key_that_is_stored(lake: GatewayLake) -> None:
    """The name of the file must not lead out of what the policy allows."""
    starts = [BUCKET, ["starts-with", "$key", "main/safe/"]]
    reply = await lake.post("lake", {"key": "${filename}"}, filename="x", conditions=starts)
    assert (reply.status, reply.code) == (403, "AccessDenied")


@pytest.mark.parametrize("wanted", ["200", "201", "204", "404", ""])
async def test_the_status_that_the_form_wants(lake: GatewayLake, wanted: str) -> None:
    reply = await lake.post("lake", {**KEY, "success_action_status": wanted})
    assert reply.status == (int(wanted) if wanted in ("200", "201") else 204)
    if wanted == "201":
        text = reply.body.decode()
        assert "<PostResponse><Location>http://s3.test/lake/main%2Fdir%2Fa%20b</Location>" in text
        assert "<Bucket>lake</Bucket><Key>main/dir/a b</Key><ETag>&quot;" in text
    else:
        assert reply.body == b""


async def test_redirects(lake: GatewayLake) -> None:
    reply = await lake.post("lake", {**KEY, "success_action_redirect": "https://app/done?x=1#top"})
    assert (reply.status, reply.body) == (303, b"")
    parts = urllib.parse.urlsplit(reply.headers["location"])
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "app", "top")
    assert urllib.parse.parse_qsl(parts.query) == [
        ("x", "1"),
        ("bucket", "lake"),
        ("key", "main/dir/a b"),
        ("etag", reply.headers["etag"]),
    ]


@pytest.mark.parametrize(
    "url",
    [
        "/relative",
        "//host/path",
        "javascript:alert(1)",
        "https://",
        "https://a\\@b/",
        "https://a/\r\nSet-Cookie: x=1",
        "https://a/ b",
        "https://ü/",
        "https://[",
        "https://a/" + "x" * 5000,
    ],
)
async def test_a_url_that_cannot_be_one_is_no_redirect(lake: GatewayLake, url: str) -> None:
    reply = await lake.post("lake", {**KEY, "success_action_redirect": url})
    assert reply.status == 204
    assert "\r" not in reply.headers["location"]


# ---- who sends it


@pytest.mark.parametrize(
    ("more", "status", "code"),
    [
        ({"key": "AKIAREADER"}, 403, "AccessDenied"),
        ({"key": "AKIAPARTIAL"}, 403, "AccessDenied"),
        ({"key": "AKIANOBODY"}, 403, "InvalidAccessKeyId"),
        ({"signed_with": "wrong"}, 403, "SignatureDoesNotMatch"),
        ({"replaced": {"x-amz-signature": "0" * 64}}, 403, "SignatureDoesNotMatch"),
        ({"replaced": {"policy": "e30="}}, 403, "SignatureDoesNotMatch"),
        ({"replaced": {"x-amz-signature": None}}, 400, "InvalidArgument"),
        ({"replaced": {"policy": None}}, 400, "InvalidArgument"),
        ({"replaced": {"x-amz-date": None}}, 400, "InvalidArgument"),
        ({"replaced": {"x-amz-date": "20200101T000000Z"}}, 400, "InvalidArgument"),
        ({"replaced": {"x-amz-signature": "x"}}, 403, "SignatureDoesNotMatch"),
        ({"replaced": {"x-amz-signature": ""}}, 403, "SignatureDoesNotMatch"),
        ({"replaced": {"x-amz-signature": "ü" * 9000}}, 403, "SignatureDoesNotMatch"),
        ({"replaced": {"policy": ""}}, 403, "SignatureDoesNotMatch"),
        ({"replaced": {"x-amz-date": ""}}, 400, "InvalidArgument"),
        ({"replaced": {"x-amz-credential": ""}}, 400, "InvalidArgument"),
        ({"replaced": {"x-amz-credential": "a/b"}}, 400, "InvalidArgument"),
        ({"replaced": {"x-amz-algorithm": "AWS4-HMAC-SHA1"}}, 400, "InvalidArgument"),
        ({"replaced": {"x-amz-algorithm": ""}}, 400, "InvalidArgument"),
        ({"replaced": {"AWSAccessKeyId": "a"}}, 400, "InvalidRequest"),
        ({"replaced": {"x-amz-security-token": "a"}}, 400, "InvalidToken"),
        ({"headers": {"authorization": "AWS4-HMAC-SHA256 x"}}, 400, "InvalidArgument"),
    ],
)
async def test_a_form_that_may_not_write_is_refused_before_its_body_is_read(
    lake: GatewayLake, more: dict[str, Any], status: int, code: str
) -> None:
    reply = await lake.post("lake", KEY, b"x" * 500_000, **more)
    assert (reply.status, reply.code) == (status, code)
    assert reply.reads <= 1
    assert lake.graveler.calls == []
    assert await lake.blocks_of("lake") == []


async def test_an_anonymous_form_is_refused(lake: GatewayLake) -> None:
    names = ("policy", "x-amz-signature", "x-amz-date", "x-amz-credential", "x-amz-algorithm")
    reply = await lake.post("lake", KEY, replaced=dict.fromkeys(names))
    assert (reply.status, reply.code, reply.identified) == (403, "AccessDenied", False)


async def test_a_form_is_good_for_its_time_only(lake: GatewayLake) -> None:
    policy = {"expiration": "2020-01-01T00:00:00.000Z", "conditions": []}
    reply = await lake.post("lake", KEY, policy=policy)
    assert (reply.status, reply.code) == (403, "AccessDenied")
    assert b"Invalid according to Policy: Policy expired." in reply.body


# ---- what the policy allows


@pytest.mark.parametrize(
    ("conditions", "fields", "told"),
    [
        ([BUCKET], {}, "Extra input fields: key"),
        ([KEY], {}, "Extra input fields: bucket"),
        ([{"bucket": "pond"}, KEY], {}, 'Policy Condition failed: ["eq", "$bucket", "pond"]'),
        ([["eq", "$bucket", "pond"], KEY], {}, 'Policy Condition failed: ["eq","$bucket","pond"]'),
        ([BUCKET, {"key": "main/b"}], {}, 'Policy Condition failed: ["eq", "$key", "main/b"]'),
        ([BUCKET, KEY, ["starts-with", "$x-amz-meta-a", ""]], {}, "Policy Condition failed"),
        ([BUCKET, KEY, ["eq", "acl", "private"]], {"acl": "private"}, "Policy Condition failed"),
        ([BUCKET, KEY], {"success_action_redirect": "https://evil"}, "Extra input fields"),
        ([BUCKET, KEY], {"x-amz-meta-a": "1"}, "Extra input fields: x-amz-meta-a"),
        ([BUCKET, KEY, ["starts-with", "$Content-Type", "image/"]],
         {"Content-Type": "image/png,text/html"}, "Policy Condition failed"),
        ([BUCKET, KEY, {"bucket": "lake"}], {"bucket": "pond"}, "bucket"),
    ],
)  # fmt: skip
async def test_what_a_policy_does_not_allow(
    lake: GatewayLake, conditions: list[Any], fields: dict[str, str], told: str
) -> None:
    reply = await lake.post("lake", {**KEY, **fields}, conditions=conditions)
    assert (reply.status, reply.code) == (403, "AccessDenied")
    message = reply.body.decode().replace("&quot;", '"')
    assert f"Invalid according to Policy: {told}" in message or told == "bucket"
    assert lake.graveler.calls == []


async def test_what_a_policy_allows(lake: GatewayLake) -> None:
    conditions = [
        {"bUcKeT": "lake"},
        ["StArTs-WiTh", "$KeY", "main/"],
        ["starts-with", "$content-type", "image/"],
        ["starts-with", "$x-amz-meta-any", ""],
        ["content-length-range", 0, 10],
    ]
    fields = {**KEY, "Content-Type": "image/png, image/gif", "X-Amz-Meta-Any": "$x"}
    assert (await lake.post("lake", fields, conditions=conditions)).status == 204


@pytest.mark.parametrize(
    ("size", "bounds", "code"),
    [
        (4, [4, 4], ""),
        (4, ["4", "4"], ""),
        (3, [4, 9], "EntityTooSmall"),
        (10, [4, 9], "EntityTooLarge"),
        (300_000, [4, 200_000], "EntityTooLarge"),
        (1, [0, 0], "EntityTooLarge"),
        (0, [0, 0], ""),
    ],
)
async def test_sizes(lake: GatewayLake, size: int, bounds: list[Any], code: str) -> None:
    conditions = [BUCKET, KEY, ["content-length-range", *bounds]]
    reply = await lake.post("lake", KEY, b"x" * size, conditions=conditions)
    assert (reply.status, code and reply.code) == (400 if code else 204, code)
    if code:
        assert await lake.blocks_of("lake") == []
        assert lake.graveler.repos["lake"].branches["main"] == {}


async def test_a_file_that_must_be_too_large_is_not_received(lake: GatewayLake) -> None:
    conditions = [BUCKET, KEY, ["content-length-range", 0, 10]]
    reply = await lake.post("lake", KEY, b"x" * 900_000, conditions=conditions)
    assert (reply.code, reply.reads) == ("EntityTooLarge", 1)


LATER = "2999-01-01T00:00:00Z"


def only(*conditions: Any) -> dict[str, Any]:
    return {"expiration": LATER, "conditions": list(conditions)}


LIST_OR_OBJECT = "Invalid condition test: must be a List or Object."
ONE = "Invalid Simple-Condition: Simple-Conditions must have exactly one property specified."


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ([1], "Invalid JSON."),
        ({"conditions": []}, "Policy missing expiration."),
        ({"expiration": LATER}, "Policy missing conditions."),
        ({"expiration": LATER, "conditions": {}}, "Invalid 'conditions' value: must be a List."),
        ({"expiration": 5, "conditions": []}, "Invalid JSON."),
        ({"expiration": "2999-13-01T00:00:00Z", "conditions": []},
         "Invalid 'expiration' value: '2999-13-01T00:00:00Z'"),
        ({"expiration": "2999-01-01 00:00:00", "conditions": []},
         "Invalid 'expiration' value: '2999-01-01 00:00:00'"),
        ({"EXPIRATION": LATER, "conditions": []}, 'Unexpected: "EXPIRATION"'),
        ({**only(), "Version": "1"}, 'Unexpected: "Version"'),
        (only({}), ONE),
        (only({"a": "1", "b": "2"}), ONE),
        (only({"key": 1}), "Invalid Simple-Condition: value must be a string."),
        (only([]), "Invalid Condition: missing operation identifier."),
        (only("eq"), LIST_OR_OBJECT),
        (only([1]), "Invalid JSON."),
        (only(["eq", "$key"]), "Invalid eq: wrong number of arguments."),
        (only(["eq", "$key", 1]), "Invalid JSON."),
        (only(["ends-with", "$key", "a"]), "Invalid Condition: unknown operation 'ends-with'."),
        (only(["content-length-range", 0]),
         "Invalid content-length-range: wrong number of arguments."),
        (only(["content-length-range", -1, 0]), "Invalid JSON."),
        (only(["content-length-range", 0, 1.5]), "Invalid JSON."),
        (only(["content-length-range", True, 1]), "Invalid JSON."),
        (only(["content-length-range", "x", "1"]), "Invalid JSON."),
    ],
)  # fmt: skip
async def test_policies_that_cannot_be_read(lake: GatewayLake, policy: Any, told: str) -> None:
    reply = await lake.post("lake", KEY, policy=policy)
    assert (reply.status, reply.code) == (400, "InvalidPolicyDocument")
    assert reply.message == f"Invalid Policy: {told}"
    assert lake.graveler.calls == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "Expecting '{' but found End-of-Input"),
        (b"invalid_base64", "invalid Base64 encoding."),
        (b"aW52YWxpZA==", "Invalid JSON."),
    ],
)
def test_malformed_policies_of_forms_are_refused(text: bytes, told: str) -> None:
    with pytest.raises(S3Error) as caught:
        check_policy({"policy": text.decode()}, "lake", 0)
    assert (caught.value.code, caught.value.message) == (
        "InvalidPolicyDocument",
        f"Invalid Policy: {told}",
    )


@pytest.mark.parametrize(
    ("field", "value", "name", "told"),
    [
        ("x-amz-signature", None, "x-amz-signature", "Bucket POST must contain a field named"),
        ("x-amz-algorithm", "none", "X-Amz-Algorithm", "Only AWS4-HMAC-SHA256 is supported"),
        ("x-amz-date", "now", "X-Amz-Date", "X-Amz-Date must be formated via ISO8601 Long format"),
        ("x-amz-credential", "a", "x-amz-credential", "the Credential is mal-formed; expecting"),
        ("x-amz-credential", "a/20200101/r/iam/aws4_request", "x-amz-credential",
         'incorrect service "iam". This endpoint belongs to "s3".'),
    ],
)  # fmt: skip
async def test_a_field_of_the_signature_is_named(
    lake: GatewayLake, field: str, value: str | None, name: str, told: str
) -> None:
    reply = await lake.post("lake", KEY, replaced={field: value})
    assert (reply.status, reply.code) == (400, "InvalidArgument")
    assert reply.message.startswith(told)
    assert reply.element("ArgumentName") == name
    assert reply.element("ArgumentValue") == (value or "")


async def test_a_wrong_signature_shows_what_was_to_be_signed(lake: GatewayLake) -> None:
    reply = await lake.post("lake", KEY, replaced={"x-amz-signature": "wrong", "policy": "e30="})
    shown = {
        "AWSAccessKeyId": "AKIAADMIN",
        "StringToSign": "e30=",
        "StringToSignBytes": "65 33 30 3d",
        "SignatureProvided": "wrong",
    }
    assert {name: reply.element(name) for name in shown} == shown
    assert b"CanonicalRequest" not in reply.body


# ---- the form


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "InvalidArgument"),
        ({"key": ""}, "InvalidArgument"),
        ({"key": "main/"}, "InvalidArgument"),
        ({"key": "main/a\x00"}, "InvalidArgument"),
        ({"key": "/a"}, "InvalidArgument"),
        ({"key": "main/" + "a" * 1200}, "KeyTooLongError"),
        ({**KEY, "x-amz-meta-a": "1\r\nX-Evil: 2"}, "InvalidArgument"),
        ({**KEY, "x-amz-meta-a b": "1"}, "InvalidArgument"),
        ({**KEY, "x-amz-unknown": "1"}, "InvalidArgument"),
        ({**KEY, "x-amz-checksum-crc32": "AAAAAA=="}, "BadDigest"),
        ({**KEY, "content-md5": "AAAA"}, "InvalidDigest"),
        ({**KEY, "x-amz-meta-a": "x" * 3000}, "MetadataTooLarge"),
        ({**KEY, "x-ignore-a": "x" * 30_000}, "MaxPostPreDataLengthExceededError"),
    ],
)
async def test_forms_that_are_refused(lake: GatewayLake, fields: dict[str, str], code: str) -> None:
    reply = await lake.post("lake", fields)
    assert (reply.status, reply.code) == (400, code)
    assert await lake.blocks_of("lake") == []
    assert lake.graveler.repos["lake"].branches["main"] == {}


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({"acl": "public-read"}, {}),
        ({}, {"x-amz-tagging": "a=1"}),
        ({"x-amz-server-side-encryption": "AES256"}, {}),
        ({"x-amz-storage-class": "GLACIER"}, {}),
        ({}, {"x-amz-meta-a": "1"}),
        ({}, {"x-amz-security-token": "t"}),
        ({}, {"x-amz-checksum-crc32": "AAAAAA=="}),
        ({}, {"if-none-match": "*"}),
    ],
)
async def test_what_a_form_cannot_ask_for(
    lake: GatewayLake, fields: dict[str, str], headers: dict[str, str]
) -> None:
    reply = await lake.post("lake", {**KEY, **fields}, headers=headers)
    code = {"public-read": "AccessControlListNotSupported", "GLACIER": "InvalidStorageClass"}.get(
        next(iter(fields.values()), ""), "NotImplemented"
    )
    assert (reply.status, reply.code) == (501 if code == "NotImplemented" else 400, code)
    assert lake.graveler.calls == []


async def test_a_checksum_is_verified_and_stored(lake: GatewayLake) -> None:
    reply = await lake.post("lake", {**KEY, "x-amz-checksum-crc32": "O4unxw=="})
    assert (reply.status, reply.headers["x-amz-checksum-crc32"]) == (204, "O4unxw==")


async def test_a_form_that_breaks_off_stores_nothing(lake: GatewayLake) -> None:
    whole = await lake.post("lake", {"key": "main/first"})
    assert whole.status == 204
    for received in (b"--limit\r\n", b"--limit\r\nContent-Disposition: form-data; name=a\r\n\r\n1"):
        reply = await lake.post("lake", KEY, received=received)
        assert (reply.status, reply.code) == (400, "IncompleteBody")
    assert list(lake.graveler.repos["lake"].branches["main"]) == ["first"]


async def test_a_form_without_its_end_stores_nothing(lake: GatewayLake) -> None:
    """Content-Length fits, but the last boundary is missing."""
    reply = await lake.post("lake", KEY, b"text\r\n--limit", replaced={})
    assert reply.code == "MalformedPOSTRequest"
    assert await lake.blocks_of("lake") == []


async def test_a_post_that_is_no_form(lake: GatewayLake) -> None:
    reply = await lake.ask("POST", "/lake", body=b"key=main/a")
    assert (reply.status, reply.code) == (412, "PreconditionFailed")
    assert b"enclosure-type multipart/form-data" in reply.body
    anonymous = await lake.ask("POST", "/lake", body=b"key=main/a", key="")
    assert (anonymous.status, anonymous.code) == (403, "AccessDenied")
    form = {"content-type": "multipart/form-data"}
    broken = await lake.ask("POST", "/lake", body=b"x", headers=form, key="")
    assert (broken.status, broken.code) == (400, "MalformedPOSTRequest")


async def test_only_so_many_forms_are_received_for_strangers(lake: GatewayLake) -> None:
    lake.handler._forms.reading = READING_MAX
    reply = await lake.post("lake", KEY)
    assert (reply.status, reply.code, reply.reads) == (503, "SlowDown", 0)
    lake.handler._forms.reading = READING_MAX - 1
    assert (await lake.post("lake", KEY)).status == 204
    assert (await lake.post("lake", {})).status == 400
    assert lake.handler._forms.reading == READING_MAX - 1


async def test_a_page_of_an_allowed_origin_may_read_the_answer_of_a_form(lake: GatewayLake) -> None:
    lake.graveler.cors["lake"] = json.dumps(
        {"CORSRules": [{"AllowedOrigins": ["*"], "AllowedMethods": ["POST"]}]}
    )
    for fields, status in ((KEY, 204), ({}, 400)):
        reply = await lake.post("lake", fields, headers={"origin": "https://app"})
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (status, "*")


async def test_a_form_is_audited_as_a_write(audited: Any) -> None:
    lake, records = audited
    await lake.post("lake", KEY)
    (record,) = records()
    resource = "repository/lake/branch/main/object/dir/a b"
    assert (record["operation"], record["resource"]) == ("s3:PostObject", resource)


async def test_boto3_signs_forms_that_are_accepted(lake: GatewayLake) -> None:
    client = boto3.client(
        "s3",
        endpoint_url="http://s3.test",
        aws_access_key_id="AKIAADMIN",
        aws_secret_access_key=lake.secret("AKIAADMIN"),
        region_name="us-east-1",
        config=Config(signature_version="s3v4"),
    )
    signed = client.generate_presigned_post(
        "lake",
        "main/up/${filename}",
        Fields={"Content-Type": "text/plain"},
        Conditions=[["starts-with", "$Content-Type", "text/"], ["content-length-range", 1, 9]],
    )
    assert signed["url"] == "http://s3.test/lake"
    body = b"".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in signed["fields"].items()
    )
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f.txt"\r\n\r\n'
    body += head + b"text\r\n--b--\r\n"
    kind = {"content-type": "multipart/form-data; boundary=b"}
    reply = await lake.ask("POST", "/lake", body=body, headers=kind, key="")
    assert reply.status == 204, reply.body
    assert lake.entry("lake", "main", "up/f.txt").content_type == "text/plain"
    policy = json.loads(base64.b64decode(signed["fields"]["policy"]))
    assert ["starts-with", "$key", "main/up/"] in policy["conditions"]
