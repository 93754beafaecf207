"""Signatures against botocore's."""

import hashlib
from datetime import UTC, datetime
from unittest import mock

import pytest
from bench.load.signing import Signer
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from tests.support.clock import ManualClock

KEY, SECRET = "TARNEXAMPLE", "secretexample"


@pytest.mark.parametrize(
    ("method", "path", "query", "body"),
    [
        ("GET", "/lake/main/a", {}, b""),
        ("PUT", "/lake/main/a b+ü", {}, b"x" * 100),
        ("GET", "/lake", {"list-type": "2", "prefix": "main/a b/", "delimiter": "/"}, b""),
        ("POST", "/lake", {"delete": ""}, b"<Delete/>"),
    ],
)
def test_a_signature_is_the_one_of_botocore(
    method: str, path: str, query: dict[str, str], body: bytes
) -> None:
    clock = ManualClock()
    signer = Signer("127.0.0.1:8000", KEY, SECRET, clock)
    headers = {"content-md5": "x", "x-amz-meta-a": "b"}
    head = signer.request(method, path, query, body, headers=headers).head
    request_line, _, rest = head.partition(b"\r\n")
    ours = dict(line.split(b": ", 1) for line in rest.split(b"\r\n\r\n")[0].split(b"\r\n"))

    url = "http://127.0.0.1:8000" + request_line.split()[1].decode()
    request = AWSRequest(method=method, url=url, data=body, headers=dict(headers))
    digest = hashlib.sha256(body).hexdigest()
    request.headers["X-Amz-Content-SHA256"] = digest
    request.context["payload_signing_enabled"] = True
    now = datetime.fromtimestamp(clock.now_us() / 1e6, UTC)
    with mock.patch("botocore.auth.get_current_datetime", return_value=now.replace(tzinfo=None)):
        S3SigV4Auth(Credentials(KEY, SECRET), "s3", "us-east-1").add_auth(request)
    theirs = request.headers["Authorization"]
    assert ours[b"authorization"].decode() == theirs


def test_large_bodies_are_kept_apart() -> None:
    body = bytes(100_000)
    request = Signer("h:1", KEY, SECRET, ManualClock()).request("PUT", "/a/b/c", body=body)
    assert request.body is body
    assert request.head.endswith(b"content-length: 100000\r\n\r\n")


def test_reserved_characters_are_encoded_once() -> None:
    head = Signer("h:1", KEY, SECRET, ManualClock()).request("GET", "/lake/main/a b+/c").head
    assert head.startswith(b"GET /lake/main/a%20b%2B/c HTTP/1.1\r\n")
