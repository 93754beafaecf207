"""SigV4, with botocore as the other side and AWS's published examples as the judge."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from urllib.parse import quote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from tarn_auth.authorizer import signing_key
from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.sigv4 import SigV4Policy, parse_authorization, verify

ACCESS, SECRET, REGION = (
    "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "us-east-1",
)
NOW = dt.datetime(2013, 5, 24, 0, 0, 0, tzinfo=dt.UTC)
NOW_US = int(NOW.timestamp()) * 1_000_000
KEY = signing_key(SECRET, "20130524", REGION, "s3")
POLICY = SigV4Policy()
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def wire(method: str, target: str, headers: dict[str, str]) -> Request:
    path, _, query = target.partition("?")
    pairs = [(name.lower(), value) for name, value in headers.items()]
    return Request(method, path.encode(), query.encode(), Headers(pairs), BodyReader(0))


def check(request: Request, now_us: int = NOW_US, policy: SigV4Policy = POLICY) -> None:
    verify(parse_authorization(request, now_us, policy), KEY)


def code_of(request: Request, now_us: int = NOW_US, policy: SigV4Policy = POLICY) -> str:
    with pytest.raises(S3Error) as caught:
        check(request, now_us, policy)
    return caught.value.code


@pytest.fixture
def frozen_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    freeze(monkeypatch)


def freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda **_: NOW.replace(tzinfo=None))


def botocore_signed(
    method: str, url: str, headers: dict[str, str] | None = None, *, query: bool = False
) -> Request:
    request = AWSRequest(method=method, url=url, headers=headers or {}, data=b"")
    credentials = Credentials(ACCESS, SECRET)
    if query:
        S3SigV4QueryAuth(credentials, "s3", REGION, expires=3600).add_auth(request)
    else:
        S3SigV4Auth(credentials, "s3", REGION).add_auth(request)
    prepared = request.prepare()
    parts = urlsplit(prepared.url)
    target = parts.path + ("?" + parts.query if parts.query else "")
    lines = {name.lower(): _text(value) for name, value in prepared.headers.items()}
    return wire(method, target, {"host": parts.netloc, **lines})


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


# --- AWS's examples ("Examples: Signature Calculations in AWS Signature Version 4", S3 API reference)

AWS_EXAMPLES = [
    (
        "GET",
        "/test.txt",
        {"range": "bytes=0-9", "x-amz-content-sha256": EMPTY},
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    ),
    (
        "PUT",
        "/test%24file.text",
        {
            "date": "Fri, 24 May 2013 00:00:00 GMT",
            "x-amz-storage-class": "REDUCED_REDUNDANCY",
            "x-amz-content-sha256": (
                "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"
            ),
        },
        "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
    ),
    (
        "GET",
        "/?lifecycle",
        {"x-amz-content-sha256": EMPTY},
        "host;x-amz-content-sha256;x-amz-date",
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
    ),
    (
        "GET",
        "/?max-keys=2&prefix=J",
        {"x-amz-content-sha256": EMPTY},
        "host;x-amz-content-sha256;x-amz-date",
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
    ),
]


@pytest.mark.parametrize(("method", "target", "headers", "names", "signature"), AWS_EXAMPLES)
def test_aws_header_examples_verify(
    method: str, target: str, headers: dict[str, str], names: str, signature: str
) -> None:
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={ACCESS}/20130524/us-east-1/s3/aws4_request,"
        f"SignedHeaders={names},Signature={signature}"
    )
    lines = {
        "host": "examplebucket.s3.amazonaws.com",
        "x-amz-date": "20130524T000000Z",
        "authorization": authorization,
        **headers,
    }
    check(wire(method, target, lines))
    assert code_of(wire(method, target + "x", lines)) == "SignatureDoesNotMatch"


PRESIGNED = (
    "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
    "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
    "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
    "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
)
HOST = {"host": "examplebucket.s3.amazonaws.com"}


def test_aws_presigned_example_verifies_until_it_expires() -> None:
    check(wire("GET", PRESIGNED, HOST))
    check(wire("GET", PRESIGNED, HOST), NOW_US + 86_400_000_000)
    late = wire("GET", PRESIGNED, HOST)
    with pytest.raises(S3Error, match="Request has expired"):
        check(late, NOW_US + 86_401_000_000)
    assert code_of(late, NOW_US - 901_000_000) == "AccessDenied"


@pytest.mark.parametrize("expires", ["0", "604801", "-1", "x", "9999999999", ""])
def test_expires_outside_a_week_is_refused(expires: str) -> None:
    target = PRESIGNED.replace("Expires=86400", f"Expires={expires}")
    assert code_of(wire("GET", target, HOST)) == "AuthorizationQueryParametersError"


# --- against botocore

keys = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=60
).filter(lambda key: key not in (".", "..") and "/" not in key[:1])


@given(key=keys, method=st.sampled_from(["GET", "PUT", "HEAD", "DELETE"]), presigned=st.booleans())
def test_any_key_signed_by_botocore_verifies(key: str, method: str, presigned: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        freeze(patch)
        url = "http://127.0.0.1:8000/repo/main/" + quote(key, safe="/~")
        check(botocore_signed(method, url, query=presigned))


@given(
    pairs=st.dictionaries(
        st.sampled_from(["prefix", "delimiter", "start-after", "list-type", "a", "a-b", "uploads"]),
        st.text(st.characters(codec="utf-8"), max_size=20),
        max_size=6,
    )
)
def test_any_query_signed_by_botocore_verifies(pairs: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        freeze(patch)
        query = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in pairs.items())
        check(botocore_signed("GET", f"http://h:1/repo?{query}" if query else "http://h:1/repo"))


@pytest.mark.usefixtures("frozen_botocore")
def test_blanks_and_non_ascii_in_signed_headers() -> None:
    request = botocore_signed(
        "PUT", "http://h/repo/k", {"x-amz-meta-a": "  one   two  ", "x-amz-meta-b": "x"}
    )
    # The wire carries the value as sent; the parser has stripped the outer blanks.
    assert request.headers.text("x-amz-meta-a").strip() == "one   two"
    request.headers = Headers([(name, value.strip()) for name, value in request.headers.pairs])
    check(request)


def test_utf8_blank_lookalikes_are_not_collapsed() -> None:
    # "à" is C3 A0; as Latin-1 its second half is a no-break space.
    value = "à  b".encode().decode("latin-1")
    lines = {"host": "h", "x-amz-meta-a": value}
    from tarn_gateway.signing.canonical import tail_of

    pairs = Headers(lines.items())
    form = tail_of(pairs, ["x-amz-meta-a"], EMPTY)
    assert "x-amz-meta-a:à b\n".encode() in form


@pytest.mark.usefixtures("frozen_botocore")
def test_tampering_is_noticed_everywhere() -> None:
    good = botocore_signed("PUT", "http://h/repo/main/k?partNumber=1&uploadId=u")
    check(good)
    changes: list[Callable[[Request], None]] = [
        lambda r: setattr(r, "method", "DELETE"),
        lambda r: setattr(r, "raw_path", b"/repo/main/other"),
        lambda r: setattr(r, "raw_query", b"partNumber=2&uploadId=u"),
        lambda r: setattr(r, "raw_query", r.raw_query + b"&acl"),
        lambda r: setattr(
            r,
            "headers",
            Headers([(n, "evil" if n == "host" else v) for n, v in r.headers.pairs]),
        ),
    ]
    for change in changes:
        bad = botocore_signed("PUT", "http://h/repo/main/k?partNumber=1&uploadId=u")
        change(bad)
        assert code_of(bad) == "SignatureDoesNotMatch"
    signed = parse_authorization(good, NOW_US, POLICY)
    with pytest.raises(S3Error):
        verify(signed, signing_key(SECRET, "20130524", "eu-west-1", "s3"))


@pytest.mark.usefixtures("frozen_botocore")
@pytest.mark.parametrize(
    ("signed_target", "sent_target"),
    [
        ("/repo/a%20b", "/repo/a b".replace(" ", "%20")),
        ("/repo/a%2Bb", "/repo/a+b"),
        ("/repo/a~b", "/repo/a%7Eb"),
        ("/repo/%C3%A9", "/repo/%c3%a9"),
        ("/repo?prefix=a%20b", "/repo?prefix=a+b"),
        ("/repo?prefix=a%2Fb", "/repo?prefix=a/b"),
        ("/repo?uploads=", "/repo?uploads"),
    ],
)
def test_other_spellings_of_the_same_request_verify(signed_target: str, sent_target: str) -> None:
    request = botocore_signed("GET", "http://h" + signed_target)
    path, _, query = sent_target.partition("?")
    request.raw_path, request.raw_query = path.encode(), query.encode()
    check(request)


# --- refused before the signature is checked


@pytest.mark.usefixtures("frozen_botocore")
@pytest.mark.parametrize("seconds", [-901, 901])
def test_skew_beyond_a_quarter_of_an_hour(seconds: int) -> None:
    request = botocore_signed("GET", "http://h/r/k")
    check(request, NOW_US + (seconds - seconds // abs(seconds)) * 1_000_000)
    assert code_of(request, NOW_US + seconds * 1_000_000) == "RequestTimeTooSkewed"


def altered(**changes: str) -> Request:
    """A request signed by botocore with some headers replaced (None in text form removes)."""
    with pytest.MonkeyPatch.context() as patch:
        freeze(patch)
        request = botocore_signed("GET", "http://h/r/k")
    lines = dict(request.headers.pairs)
    for name, value in changes.items():
        header = name.replace("_", "-")
        if value == "absent":
            lines.pop(header)
        else:
            lines[header] = value
    return wire("GET", "/r/k", lines)


def authorization(replace: str, by: str) -> Request:
    value = altered().headers.text("authorization")
    assert replace in value
    return altered(authorization=value.replace(replace, by))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (wire("GET", "/r/k", {"host": "h"}), "AccessDenied"),
        (wire("GET", "/r/k?X-Amz-Signature=a", {"host": "h"}), "AuthorizationQueryParametersError"),
        (
            wire("GET", "/r/k?X-Amz-Credential=a", {"host": "h"}),
            "AuthorizationQueryParametersError",
        ),
        (wire("GET", PRESIGNED, {"host": "h", "authorization": "x"}), "InvalidArgument"),
        (wire("GET", PRESIGNED, {"host": "other"}), "SignatureDoesNotMatch"),
        (wire("GET", "/r/k", {"host": "h", "authorization": "AWS AKIA:abc="}), "InvalidRequest"),
        (wire("GET", "/r/k", {"host": "h", "authorization": "Basic abc"}), "InvalidArgument"),
        (wire("GET", "/r/k", {"host": "h", "authorization": "AWS HAHAHA"}), "InvalidArgument"),
        (wire("GET", "/r/k", {"host": "h", "authorization": "AWS AKIA:c2ln"}), "InvalidRequest"),
        (wire("GET", "/r/k", {"host": "h", "authorization": ""}), "AccessDenied"),
        (
            wire(
                "GET", "/r/k", {"host": "h", "authorization": "AWS4-ECDSA-P256-SHA256 Credential=a"}
            ),
            "InvalidRequest",
        ),
        (
            wire("GET", "/r/k?AWSAccessKeyId=a&Signature=b&Expires=1", {"host": "h"}),
            "InvalidRequest",
        ),
        (altered(x_amz_acl="public-read"), "AccessDenied"),
        (altered(x_amz_content_sha256="absent"), "InvalidRequest"),
        (
            altered(x_amz_content_sha256="STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"),
            "InvalidArgument",
        ),
        (altered(x_amz_date="20130524"), "AccessDenied"),
        (altered(x_amz_date="20130524T250000Z"), "AccessDenied"),
        (altered(x_amz_date="20130523T235959Z"), "AuthorizationHeaderMalformed"),
        (altered(authorization="AWS4-HMAC-SHA256 Credential=a"), "AuthorizationHeaderMalformed"),
        (authorization("/s3/", "/ec2/"), "AuthorizationHeaderMalformed"),
        (authorization("aws4_request", "aws5_request"), "AuthorizationHeaderMalformed"),
        (authorization("/20130524/", "/20130525/"), "AuthorizationHeaderMalformed"),
        (authorization("host;", ""), "AuthorizationHeaderMalformed"),
        (authorization("Signature=", "Signature=0"), "AuthorizationHeaderMalformed"),
        (authorization(";x-amz-date", ""), "AccessDenied"),
        (authorization("us-east-1", "us-east-2"), "SignatureDoesNotMatch"),
    ],
)
def test_malformed_or_wrong_signatures_are_refused(request_: Request, code: str) -> None:
    assert code_of(request_) == code


def test_a_configured_region_is_named_in_the_refusal() -> None:
    with pytest.raises(S3Error) as caught:
        check(altered(), policy=SigV4Policy(region="eu-central-1"))
    assert caught.value.code == "AuthorizationHeaderMalformed"
    assert caught.value.extra["Region"] == "eu-central-1"


@pytest.mark.usefixtures("frozen_botocore")
def test_headers_moved_into_a_presigned_url_count_except_checksums() -> None:
    url = "http://h/r/k?x-amz-acl=private&x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-meta-a=b%20c"
    request = botocore_signed("PUT", url, query=True)
    check(request)
    assert request.headers.get("x-amz-acl") == "private"
    assert request.headers.get("x-amz-meta-a") == "b c"
    assert "x-amz-checksum-crc32" not in request.headers
    assert "x-amz-signature" not in request.headers


@pytest.mark.usefixtures("frozen_botocore")
def test_a_presigned_url_does_not_take_unsigned_amz_headers() -> None:
    request = botocore_signed("PUT", "http://h/r/k", query=True)
    request.headers = Headers([*request.headers.pairs, ("x-amz-acl", "private")])
    assert code_of(request) == "AccessDenied"
    request = botocore_signed("PUT", "http://h/r/k", query=True)
    request.headers = Headers(
        [
            *request.headers.pairs,
            ("content-type", "text/plain"),
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
        ]
    )
    check(request)


def test_the_secret_text_of_a_request_is_not_in_its_repr() -> None:
    request = wire("GET", PRESIGNED, HOST)
    signed = parse_authorization(request, NOW_US, POLICY)
    assert "Signature" not in repr(request)
    assert "amazonaws" not in repr(signed)


def test_a_date_that_its_zone_moves_out_of_the_calendar_is_refused() -> None:
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={ACCESS}/20130524/{REGION}/s3/aws4_request, "
        f"SignedHeaders=host, Signature={'0' * 64}"
    )
    date = "Fri, 31 Dec 9999 23:59:59 -2300"
    headers = {"host": "h", "date": date, "authorization": authorization}
    assert code_of(wire("GET", "/", headers)) == "AccessDenied"


@pytest.mark.usefixtures("frozen_botocore")
@pytest.mark.parametrize(
    "parameter", ["x-amz-meta-a%0D%0Ab=1", "x-amz-meta-a=1%0D%0Ab", "x-amz-meta-%C3%A9=1"]
)
def test_a_parameter_that_no_header_could_hold_is_refused(parameter: str) -> None:
    request = botocore_signed("PUT", f"http://h/r/k?{parameter}", query=True)
    assert code_of(request) == "AuthorizationQueryParametersError"


@pytest.mark.usefixtures("frozen_botocore")
def test_names_of_signed_headers_beyond_ascii_are_refused() -> None:
    request = botocore_signed("GET", "http://h/r/k", query=True)
    changed = request.raw_query.replace(b"SignedHeaders=host", b"SignedHeaders=host%3B%E2%82%AC")
    assert changed != request.raw_query
    request.raw_query = changed
    assert code_of(request) == "AuthorizationQueryParametersError"
