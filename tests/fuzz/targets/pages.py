"""Page tokens, of the rpcs and of S3 listings, and caller tokens."""

from __future__ import annotations

import base64
import random

from tests.fuzz.targets.refusals import gateway
from tests.support.fuzz.target import PropertyError, Target

from tarn.core.access.caller_token import issue, verify
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import AccessKeyId, UserId
from tarn.rpc.wire.pagination import Argument, PageTokens
from tarn_gateway.bucket_cache import Place
from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.operations import listing
from tarn_gateway.s3error import S3Error

__all__ = ["TARGET"]

_REQUEST = Request("GET", b"/lake", b"", Headers([]), BodyReader(0))
_KEY = bytes(range(32))
_PLACE, _VIEW = Place("lake"), Place("lake", "main", f"sales:{0:032x}:7")
_ARGUMENTS: dict[str, Argument] = {
    "repository": "lake",
    "prefix": "a/",
    "limit": 7,
    "is_deep": True,
}
_TOKENS = PageTokens((_KEY,), "ann", "Entries", **_ARGUMENTS)
_OTHERS = (
    PageTokens((_KEY,), "eve", "Entries", **_ARGUMENTS),
    PageTokens((_KEY,), "ann", "Commits", **_ARGUMENTS),
    PageTokens((_KEY,), "ann", "Entries", **{**_ARGUMENTS, "prefix": "b/"}),
    PageTokens((bytes(32),), "ann", "Entries", **_ARGUMENTS),
)


def _check(data: bytes) -> str:
    token = data.decode("utf-8", "replace")
    words = []
    for read in (_of_rpc, _of_s3, _of_caller):
        try:
            words.append(read(token))
        except (TarnError, S3Error):
            words.append("refused")
    return " ".join(words)


def _of_rpc(token: str) -> str:
    try:
        key = _TOKENS.decode(token)
    except TarnError as error:
        if error.kind is not Kind.INVALID:
            raise PropertyError(f"a token is answered {error!r}") from error
        raise
    if not key:
        if token:
            raise PropertyError("a token that is there begins anew")
        return "first"
    if _TOKENS.decode(_TOKENS.encode(key)) != key:
        raise PropertyError(f"another key comes back than {key!r}")
    for other in _OTHERS:
        try:
            other.decode(token)
        except TarnError:
            continue
        raise PropertyError("a token of one listing is good for another one")
    return "page"


def _of_s3(token: str) -> str:
    """The place decides by itself which tokens are its own: no token is good for a repository and for a view."""
    is_of_view = token.startswith("M")  # of the version 2, in base64
    place, other = (_VIEW, _PLACE) if is_of_view else (_PLACE, _VIEW)
    key = gateway(_REQUEST, lambda: listing._decode_token(place, token))
    again = listing._encode_token(place, place.root + key)
    if listing._decode_token(place, again) != key:
        raise PropertyError(f"another key comes back than {key!r}")
    try:
        listing._decode_token(other, token)
    except S3Error:
        return "page of a view" if is_of_view else "page"
    raise PropertyError("a token of a repository is good for a view, or the other way round")


def _of_caller(token: str) -> str:
    try:
        found = verify(_KEY, token, 0)
    except TarnError as error:
        if error.kind is not Kind.UNAUTHENTICATED:
            raise PropertyError(f"a caller token is answered {error!r}") from error
        raise
    again = issue(
        _KEY,
        found.user_id,
        found.user_uid,
        found.access_key_id,
        found.issue_time_us,
        found.expire_time_us,
        is_session=found.is_session,
    )
    if again != token:
        raise PropertyError("a caller token has two spellings")
    return "caller"


def _of_any_key(rng: random.Random, data: bytes) -> bytes:
    """Returns a valid page token of an rpc with the input as its key."""
    text = data.decode("utf-8", "replace")[:3000]
    tokens = _TOKENS if rng.random() < 0.8 else rng.choice(_OTHERS)
    return tokens.encode(text or "a").encode()


def _continued(rng: random.Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")[:3000]
    version = rng.choice(("1", "1", "1", f"2{_VIEW.version}/", f"2{_VIEW.version}/", "2", ""))
    return base64.urlsafe_b64encode((version + text).encode())


def _inside(rng: random.Random, data: bytes) -> bytes:
    """Changes bytes and encodes them as valid base64."""
    try:
        raw = bytearray(base64.urlsafe_b64decode(data + b"=" * (-len(data) % 4)))
    except ValueError:
        return data
    if raw:
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    token = base64.urlsafe_b64encode(bytes(raw))
    return token.rstrip(b"=") if rng.random() < 0.5 else token


def _issued(rng: random.Random, data: bytes) -> bytes:
    name = data.decode("latin-1")[:60]
    user_id, key_id = UserId(name), AccessKeyId(rng.choice(("AKIA", "")))
    uid, end_us = rng.randbytes(16), rng.choice((1, 10**15, -1))
    is_session = rng.random() < 0.5
    return issue(_KEY, user_id, uid, key_id, 0, end_us, is_session=is_session).encode()


TARGET = Target(
    "pages",
    _check,
    refusals=(TarnError, S3Error),
    traced=(
        "tarn.rpc.wire.pagination",
        "tarn.core.access.caller_token",
        "tarn_gateway.operations.listing",
    ),
    mutations=(_of_any_key, _continued, _inside, _issued),
    tokens=(b"=", b"==", b"-_", b"+/", b"t1.", b"t1..", "é".encode(), b"\xed\xa0\x80"),
    input_bytes_max=12_000,
)
