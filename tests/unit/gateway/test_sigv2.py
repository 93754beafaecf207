"""Signature Version 2, signed by botocore: refused unless it is accepted, and what it covers cannot be changed."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from botocore.auth import HmacV1Auth, HmacV1QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from gateway_lake import GatewayLake

from tarn_gateway.grants import Authenticator
from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.router import _LIST_TYPE, _PARAMETERS
from tarn_gateway.signing.sigv2 import NOT_COVERED, SIGNED, mismatch, parse_sigv2
from tarn_gateway.signing.sigv4 import SigV4Policy

DAY_S = 86_400


@pytest.fixture
def old(lake: GatewayLake) -> GatewayLake:
    """A gateway that accepts version 2."""
    lake.handler._authenticator = Authenticator(
        lake.access, lake.clock, SigV4Policy(), timeout_s=10.0, sigv2_domains=("s3.test",)
    )
    return lake


def signed(
    lake: GatewayLake,
    method: str,
    target: str,
    query: str = "",
    *,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    key: str = "AKIAADMIN",
    auth_path: str | None = None,
    skew_s: float = 0.0,
) -> AWSRequest:
    url = f"http://s3.test{quote(target, safe='/~')}" + (f"?{query}" if query else "")
    request = AWSRequest(method, url, headers=headers or {}, data=body, auth_path=auth_path)
    signer = HmacV1Auth(Credentials(key, lake.secret(key) if key != "AKIANOBODY" else "none"))
    date = formatdate(lake.clock.now_us() / 1e6 + skew_s, usegmt=True)
    signer._get_date = lambda: date
    signer.add_auth(request)
    return request


def presigned(
    lake: GatewayLake,
    method: str,
    target: str,
    query: str = "",
    *,
    headers: dict[str, str] | None = None,
    expires_s: int = 60,
) -> AWSRequest:
    """A request as the holder of a presigned URL sends it: the signed headers are in the URL."""
    url = f"http://s3.test{quote(target, safe='/~')}" + (f"?{query}" if query else "")
    request = AWSRequest(method, url, headers=headers or {})
    signer = HmacV1QueryAuth(Credentials("AKIAADMIN", lake.secret("AKIAADMIN")))
    end = lake.clock.now_us() // 1_000_000 + expires_s
    signer._get_date = lambda: str(end)
    signer.add_auth(request)
    return AWSRequest(method, request.url)


async def test_version_2_is_refused_unless_it_is_accepted(lake: GatewayLake) -> None:
    for request in (signed(lake, "GET", "/lake/main/a"), presigned(lake, "GET", "/lake/main/a")):
        reply = await lake.send(request)
        assert (reply.status, reply.code) == (400, "InvalidRequest")
        assert "AWS4-HMAC-SHA256" in reply.body.decode()


@pytest.mark.parametrize("key", ["main/a", "main/ü b+c", "main/a//b/..", "main/%2F~'(x)"])
async def test_objects_are_written_read_and_listed(old: GatewayLake, key: str) -> None:
    put = signed(
        old,
        "PUT",
        f"/lake/{key}",
        body=b"rows",
        headers={"content-type": "text/csv", "x-amz-meta-b": "2", "x-amz-meta-a": "1"},
    )
    reply = await old.send(put, b"rows")
    assert (reply.status, reply.line["user"], reply.identified) == (200, "akiaadmin", True)
    for request in (signed(old, "GET", f"/lake/{key}"), presigned(old, "GET", f"/lake/{key}")):
        got = await old.send(request)
        assert (got.status, got.body, got.headers["content-type"]) == (200, b"rows", "text/csv")
        assert got.headers["x-amz-meta-a"] == "1"
    listed = await old.send(signed(old, "GET", "/lake", "list-type=2&prefix=main/&max-keys=10"))
    assert listed.all("Key") == [key]
    assert (await old.send(signed(old, "DELETE", f"/lake/{key}"))).status == 204


async def test_the_bucket_may_be_in_the_host(old: GatewayLake) -> None:
    await old.ask("PUT", "/lake/main/a", body=b"1")
    request = signed(old, "GET", "/main/a", auth_path="/lake/main/a")
    assert (await old.send(request, host="lake.s3.test")).status == 200
    request = signed(old, "GET", "/", "uploads", auth_path="/lake/")
    assert (await old.send(request, host="lake.s3.test:8000")).status == 200
    # The same text for another bucket.
    request = signed(old, "GET", "/lake/main/a")
    assert (await old.send(request, host="lake.s3.test")).code == "SignatureDoesNotMatch"


async def test_multipart_uploads_and_deletes_of_many(old: GatewayLake) -> None:
    begun = await old.send(signed(old, "POST", "/lake/main/big", "uploads"))
    (upload_id,) = begun.all("UploadId")
    part = signed(
        old, "PUT", "/lake/main/big", f"partNumber=1&uploadId={quote(upload_id)}", body=b"part"
    )
    etag = (await old.send(part, b"part")).headers["etag"]
    document = (
        f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
        "</CompleteMultipartUpload>"
    ).encode()
    done = signed(old, "POST", "/lake/main/big", f"uploadId={quote(upload_id)}", body=document)
    assert (await old.send(done, document)).status == 200
    keys = b"<Delete><Object><Key>main/big</Key></Object></Delete>"
    deleted = await old.send(signed(old, "POST", "/lake", "delete", body=keys), keys)
    assert deleted.all("Key") == ["main/big"]


async def test_a_body_that_is_not_that_of_content_md5_is_refused(old: GatewayLake) -> None:
    md5 = "1B2M2Y8AsgTpgAmY7PhCfg=="  # of nothing
    request = signed(old, "PUT", "/lake/main/a", body=b"x", headers={"content-md5": md5})
    assert (await old.send(request, b"x")).code == "BadDigest"


async def test_metadata_of_a_presigned_url_is_stored(old: GatewayLake) -> None:
    headers = {"x-amz-meta-a": "1", "content-type": "text/csv"}
    request = presigned(old, "PUT", "/lake/main/a", headers=headers)
    assert (await old.send(request, b"1", length=1)).status == 200
    got = await old.ask("GET", "/lake/main/a")
    assert (got.headers["x-amz-meta-a"], got.headers["content-type"]) == ("1", "text/csv")


async def test_answers_may_be_given_other_headers(old: GatewayLake) -> None:
    await old.ask("PUT", "/lake/main/a", body=b"1")
    query = urlencode({"response-content-disposition": 'attachment; filename="a b.csv"'})
    got = await old.send(presigned(old, "GET", "/lake/main/a", query))
    assert got.headers["content-disposition"] == 'attachment; filename="a b.csv"'


# ---- what is covered


async def test_what_is_signed_cannot_be_changed(old: GatewayLake) -> None:
    await old.ask("PUT", "/lake/main/a", body=b"1")
    headers = {"content-type": "text/csv", "x-amz-meta-a": "1", "content-md5": "x"}

    def changed(name: str, value: str) -> AWSRequest:
        request = signed(old, "GET", "/lake/main/a", headers=headers)
        if name in request.headers:
            del request.headers[name]
        request.headers[name] = value
        return request

    forged = [
        *(changed(name, f"{value}0") for name, value in headers.items()),
        changed("x-amz-meta-b", "1"),
        changed("x-amz-copy-source", "/lake/main/b"),
    ]
    for request in forged:
        assert (await old.send(request)).code == "SignatureDoesNotMatch"
    for make in (signed, presigned):
        for method, url in (
            ("PUT", ""),
            ("DELETE", ""),
            ("GET", "x"),
            ("GET", "?acl"),
            ("GET", "?response-content-type=text/html"),
            ("GET", "?partNumber=1"),
        ):
            request = make(old, "GET", "/lake/main/a")
            path, mark, query = request.url.partition("?")
            more = url.removeprefix("?")
            joined = f"{mark}{query}" + (f"{'&' if mark else '?'}{more}" if more != url else "")
            other = AWSRequest(method, path + (url if more == url else "") + joined)
            for name, value in request.headers.items():
                other.headers[name] = value
            assert (await old.send(other)).code == "SignatureDoesNotMatch", (method, url)


async def test_parameters_that_select_operations_are_covered_or_refused(old: GatewayLake) -> None:
    """Whoever holds a presigned URL could add them."""
    assert _PARAMETERS - SIGNED - {_LIST_TYPE} == NOT_COVERED
    for name in ("attributes", "ownershipControls", "%61ttributes"):
        for make in (signed, presigned):
            reply = await old.send(make(old, "GET", "/lake/main/a", name))
            assert (reply.status, reply.code) == (403, "AccessDenied")


async def test_line_ends_do_not_shift_what_is_signed(old: GatewayLake) -> None:
    """A text of somebody else's choice, such as the name of a file, must not stand for another resource."""
    for query in (
        "response-content-disposition=x%0A/lake/main/secret",
        "x-amz-date=x%0A/lake/main/secret",
        "x-amz-checksum-crc32=x%0Ay",
        "content-type=x%0Ay",
    ):
        reply = await old.send(presigned(old, "GET", "/lake/main/a", query))
        assert reply.status == 400, query


# ---- who, and when


async def test_strangers_and_wrong_secrets_are_refused(old: GatewayLake) -> None:
    unknown = await old.send(signed(old, "GET", "/lake/main/a", key="AKIANOBODY"))
    assert unknown.code == "InvalidAccessKeyId"
    request = signed(old, "GET", "/lake/main/a")
    kept = request.headers["Authorization"]
    for claim, code in (
        (f"{kept[:-28]}{'A' * 27}=", "SignatureDoesNotMatch"),
        ("AWS AKIAADMIN:short", "SignatureDoesNotMatch"),
        ("AWS AKIAADMIN", "InvalidArgument"),
        ("AWS :x", "InvalidArgument"),
        ("AWS a:b:c", "InvalidArgument"),
        (f"AWS {'a' * 129}:x", "InvalidArgument"),
    ):
        del request.headers["Authorization"]
        request.headers["Authorization"] = claim
        reply = await old.send(request)
        assert reply.code == code, claim
        assert "admin-secret" not in reply.body.decode()
        assert not reply.identified


async def test_permissions_are_those_of_the_user(old: GatewayLake) -> None:
    reply = await old.send(signed(old, "PUT", "/lake/main/a", key="AKIAREADER"), b"")
    assert (reply.status, reply.code) == (403, "AccessDenied")


async def test_a_mismatch_shows_what_was_signed_but_no_session_token(old: GatewayLake) -> None:
    request = signed(old, "GET", "/lake/main/a")
    request.headers["x-amz-meta-a"] = "1"
    assert "x-amz-meta-a:1\n/lake/main/a" in (await old.send(request)).body.decode()
    parsed = parse_sigv2(
        Request(
            "GET",
            b"/lake/main/a",
            b"AWSAccessKeyId=a&Expires=99999999999&Signature=%s&x-amz-security-token=hush"
            % (b"A" * 27 + b"%3D"),
            Headers([("host", "s3.test")]),
            BodyReader(0),
        ),
        old.clock.now_us(),
        (),
    )
    assert parsed is not None
    assert "hush" not in str(mismatch(parsed).extra)
    assert b"x-amz-security-token:hush\n" in parsed.strings_to_sign[0]


async def test_a_session_token_goes_to_auth(old: GatewayLake) -> None:
    headers = {"x-amz-security-token": "t"}
    for request in (
        signed(old, "GET", "/lake/main/a", headers=headers),
        presigned(old, "GET", "/lake/main/a", headers=headers),
    ):
        assert (await old.send(request)).code == "InvalidToken"


@pytest.mark.parametrize("skew_s", [-901.0, 901.0, -DAY_S])
async def test_a_request_of_another_time_is_refused(old: GatewayLake, skew_s: float) -> None:
    reply = await old.send(signed(old, "GET", "/lake/main/a", skew_s=skew_s))
    assert (reply.status, reply.code) == (403, "RequestTimeTooSkewed")


async def test_x_amz_date_takes_the_place_of_date(old: GatewayLake) -> None:
    await old.ask("PUT", "/lake/main/a", body=b"1")
    for date in (formatdate(old.clock.now_us() / 1e6, usegmt=True), "nonsense", ""):
        request = AWSRequest("GET", "http://s3.test/lake/main/a", headers={"x-amz-date": date})
        signer = HmacV1Auth(Credentials("AKIAADMIN", old.secret("AKIAADMIN")))
        signer._get_date = str  # the line of the date is empty
        signer.add_auth(request)
        del request.headers["Date"]
        request.headers["Date"] = formatdate(0, usegmt=True)
        reply = await old.send(request)
        assert (reply.status == 200) is date.endswith("GMT")
    request = signed(old, "GET", "/lake/main/a")
    del request.headers["Date"]
    assert (await old.send(request)).code == "AccessDenied"


async def test_a_presigned_url_ends(old: GatewayLake) -> None:
    await old.ask("PUT", "/lake/main/a", body=b"1")
    request = presigned(old, "GET", "/lake/main/a", expires_s=60)
    assert (await old.send(request)).status == 200
    old.clock.advance(62.0)
    assert (await old.send(request)).code == "AccessDenied"


@pytest.mark.parametrize(
    "query",
    [
        "AWSAccessKeyId=AKIAADMIN",
        "AWSAccessKeyId=AKIAADMIN&Expires=99999999999",
        "AWSAccessKeyId=AKIAADMIN&Signature=AAAAAAAAAAAAAAAAAAAAAAAAAAA%3D",
        "AWSAccessKeyId=AKIAADMIN&Signature=AAAAAAAAAAAAAAAAAAAAAAAAAAA%3D&Expires=soon",
        "AWSAccessKeyId=AKIAADMIN&Signature=AAAAAAAAAAAAAAAAAAAAAAAAAAA%3D&Expires=-1",
        "AWSAccessKeyId=&Signature=AAAAAAAAAAAAAAAAAAAAAAAAAAA%3D&Expires=99999999999",
    ],
)
async def test_half_of_a_presigned_url_is_refused(old: GatewayLake, query: str) -> None:
    reply = await old.send(AWSRequest("GET", f"http://s3.test/lake/main/a?{query}"))
    assert (reply.status, reply.code) == (403, "AccessDenied")


async def test_two_kinds_of_authentication_are_refused(old: GatewayLake) -> None:
    request = presigned(old, "GET", "/lake/main/a")
    for claim in ("AWS AKIAADMIN:x", "AWS4-HMAC-SHA256 Credential=x"):
        both = AWSRequest("GET", request.url, headers={"Authorization": claim})
        assert (await old.send(both)).code == "InvalidArgument"


async def test_version_4_is_accepted_beside_it_and_chunks_signed_by_it_are_not(
    old: GatewayLake,
) -> None:
    assert (await old.ask("PUT", "/lake/main/a", body=b"1")).status == 200
    mode = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
    headers = {"x-amz-content-sha256": mode}
    request = signed(old, "PUT", "/lake/main/a", headers=headers)
    assert (await old.send(request, b"1")).code == "InvalidArgument"


@pytest.mark.parametrize("accepts", [False, True])
async def test_version_4a_is_refused_by_name(
    lake: GatewayLake, old: GatewayLake, accepts: bool
) -> None:
    if not accepts:
        lake.handler._authenticator = lake.authenticator
    claim = "AWS4-ECDSA-P256-SHA256 Credential=AKIAADMIN/20261101/s3/aws4_request, Signature=00"
    for request in (
        AWSRequest("GET", "http://s3.test/lake/main/a", headers={"Authorization": claim}),
        AWSRequest(
            "GET",
            "http://s3.test/lake/main/a?X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256&X-Amz-Credential=a"
            "&X-Amz-Date=20261101T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=0",
        ),
    ):
        reply = await lake.send(request)
        assert (reply.status, reply.code) == (400, "InvalidRequest")
        assert "AWS4-HMAC-SHA256" in reply.body.decode()


async def test_the_key_that_a_refused_request_names_is_recorded(audited: Any) -> None:
    lake, records = audited
    await lake.send(signed(lake, "GET", "/lake/main/a"))
    await lake.send(presigned(lake, "GET", "/lake/main/a"))
    found = records()
    assert [each["access_key_id"] for each in found] == ["AKIAADMIN"] * len(found)
