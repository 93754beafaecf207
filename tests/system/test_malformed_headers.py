"""Requests with missing or wrong headers get S3's status and code, from a running gateway over a raw connection."""

from __future__ import annotations

import re
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from running_tarn import RunningTarn

Case = tuple[dict[str, str | None], int, str]

CASES: list[Case] = [
    ({"content-length": None}, 411, "MissingContentLength"),
    ({"content-length": ""}, 400, "BadRequest"),
    ({"content-length": "-1"}, 400, "BadRequest"),
    ({"content-length": "one"}, 400, "BadRequest"),
    ({"authorization": None}, 403, "AccessDenied"),
    ({"authorization": ""}, 403, "AccessDenied"),
    ({"authorization": "AWS HAHAHA"}, 400, "InvalidArgument"),
    ({"authorization": "AWS AKIA:c2ln"}, 400, "InvalidRequest"),
    (
        {"authorization": "AWS4-HMAC-SHA256 Credential=HAHAHA"},
        400,
        "AuthorizationHeaderMalformed",
    ),
    ({"authorization": "\x07"}, 400, "BadRequest"),
    ({"x-amz-date": None}, 403, "AccessDenied"),
    ({"x-amz-date": ""}, 403, "AccessDenied"),
    ({"x-amz-date": "Bad Date"}, 403, "AccessDenied"),
    ({"x-amz-date": "20000101T000000Z"}, 403, "RequestTimeTooSkewed"),
    ({"x-amz-date": "20990101T000000Z"}, 403, "RequestTimeTooSkewed"),
    ({"x-amz-content-sha256": None}, 400, "InvalidRequest"),
    ({"expect": "200"}, 200, ""),
    ({"expect": ""}, 200, ""),
    ({"content-type": ""}, 200, ""),
    ({"host": None}, 400, "BadRequest"),
]
SIGNED: list[Case] = [
    ({"content-md5": ""}, 400, "InvalidDigest"),
    ({"content-md5": "YWJyYWNhZGFicmE="}, 400, "InvalidDigest"),
    ({"content-md5": "rL0Y20zC+Fzt72VPzMSk2A=="}, 400, "BadDigest"),
]
"""Headers that are signed as they are sent."""


@pytest.mark.in_form("single")
def test_malformed_headers(tarn: RunningTarn, repository: str, s3: Any) -> None:
    for changed, status, code in [*CASES, *SIGNED]:
        is_signed = (changed, status, code) in SIGNED
        answer = _put(tarn, f"/{repository}/main/a", changed, is_signed=is_signed)
        found = re.search(rb"<Code>(.*)</Code>", answer)
        told = (int(answer.split(b" ", 2)[1]), found[1].decode() if found else "")
        assert told == (status, code), (changed, answer)
    assert s3.get_object(Bucket=repository, Key="main/a")["Body"].read() == b"body"


def _put(tarn: RunningTarn, path: str, changed: dict[str, str | None], *, is_signed: bool) -> bytes:
    before = {name: value for name, value in changed.items() if value is not None and is_signed}
    request = AWSRequest("PUT", tarn.endpoint + path, headers=before, data=b"body")
    credentials = Credentials(tarn.access_key_id, tarn.secret_access_key)
    S3SigV4Auth(credentials, "s3", "us-east-1").add_auth(request)
    place = urlsplit(tarn.endpoint)
    headers: dict[str, str | None] = {
        "host": place.netloc,
        "content-length": "4",
        **{name.lower(): value for name, value in request.headers.items()},
        **changed,
    }
    lines = "".join(f"{n}: {v}\r\n" for n, v in headers.items() if v is not None)
    with socket.create_connection((str(place.hostname), place.port or 80), 30) as connection:
        connection.sendall(f"PUT {path} HTTP/1.1\r\n{lines}connection: close\r\n\r\nbody".encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer
