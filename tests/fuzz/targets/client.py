"""Requests signed by an SDK must be accepted: botocore signs, the gateway verifies.

An input is a list of lines: a line whose length chooses the method, the key, the query (`name=value&…`,
not escaped), then user metadata (`name:value`).
"""

from __future__ import annotations

from urllib.parse import urlsplit

import botocore.auth
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.utils import percent_encode, percent_encode_sequence
from tests.fuzz.targets.requests import request_of
from tests.fuzz.targets.signing import ACCESS, KEY, NOW, NOW_US, REGION, SECRET
from tests.support.fuzz.target import PropertyError, Target

from tarn_gateway.http.head import HeadError
from tarn_gateway.requests.address import parse_address
from tarn_gateway.requests.query import parse_query
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.sigv4 import SigV4Policy, parse_authorization, verify

__all__ = ["TARGET"]

_CREDENTIALS = Credentials(ACCESS, SECRET)
_METHODS = ("GET", "PUT", "POST", "DELETE", "HEAD")


class _NoCallError(Exception):
    """The input is not a request that an SDK would send."""


def _check(data: bytes) -> str:
    botocore.auth.get_current_datetime = lambda **_: NOW.replace(tzinfo=None)
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        raise _NoCallError from None
    method = _METHODS[len(lines[0]) % len(_METHODS)]
    key = lines[1] if len(lines) > 1 else ""
    pairs = [piece.split("=", 1) for piece in lines[2].split("&")] if len(lines) > 2 else []
    parameters = [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and pair[0]]
    names = [name for name, _ in parameters]
    if "\0" in key or len(set(names)) < len(names) or any(_is_taken(name) for name in names):
        raise _NoCallError
    headers = {}
    for line in lines[3:]:
        name, _, value = line.partition(":")
        if name.isalnum() and name.isascii() and value.isascii():
            headers[f"x-amz-meta-{name.lower()}"] = "".join(
                letter for letter in value if letter.isprintable()
            ).strip()
    try:
        return _sent(method, key, parameters, headers, in_query=bool(len(data) % 2))
    except S3Error as error:
        if error.code == "SignatureDoesNotMatch":
            raise PropertyError(f"what botocore signs is refused: {error.extra}") from error
        raise


def _is_taken(name: str) -> bool:
    return name.lower().startswith("x-amz-") or name == "AWSAccessKeyId"


def _sent(
    method: str,
    key: str,
    parameters: list[tuple[str, str]],
    headers: dict[str, str],
    *,
    in_query: bool,
) -> str:
    url = f"http://localhost/lake/{percent_encode(key, safe='/~')}"
    if parameters:
        url += "?" + percent_encode_sequence(parameters)
    request = AWSRequest(method=method, url=url, headers=headers, data=b"")
    if in_query:
        S3SigV4QueryAuth(_CREDENTIALS, "s3", REGION, expires=3600).add_auth(request)
    else:
        S3SigV4Auth(_CREDENTIALS, "s3", REGION).add_auth(request)
    prepared = request.prepare()
    parts = urlsplit(prepared.url)
    target = parts.path + ("?" + parts.query if parts.query else "")
    head = [f"{method} {target} HTTP/1.1", f"host: {parts.netloc}"]
    head += [f"{name}: {_text(value)}" for name, value in prepared.headers.items()]
    wire = request_of("\r\n".join([*head, "", ""]).encode("latin-1"))
    verify(parse_authorization(wire, NOW_US, SigV4Policy()), KEY)
    if parse_address("localhost", wire.raw_path).key != key:
        raise PropertyError(f"the key {key!r} arrives as another one: {wire.raw_path!r}")
    query = parse_query(wire.raw_query)
    if any(query.get(name) != value for name, value in parameters):
        raise PropertyError(f"the query {parameters!r} arrives as another one: {wire.raw_query!r}")
    return method


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


TARGET = Target(
    "client",
    _check,
    refusals=(S3Error, HeadError, _NoCallError),
    traced=(
        "tarn_gateway.signing.sigv4",
        "tarn_gateway.signing.canonical",
        "tarn_gateway.requests.query",
    ),
    tokens=(b"\n", b"+", b"%2F", b"//", b"../", b"~", b" ", "ü€😀".encode(), b"x-amz-meta-a:b  c"),
    input_bytes_max=2048,
    share=0.5,
)
