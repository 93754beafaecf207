"""Parses the bucket and key that a request names, and the ref and path that a key names.

In `s3://<repository>/<ref>/<path>` the bucket is the repository, and the key begins with the ref.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from tarn.core.value import hot_value
from tarn_gateway.http import Request
from tarn_gateway.s3error import S3Error

__all__ = [
    "Address",
    "RefPath",
    "bucket_of_host",
    "check_key",
    "object_url",
    "parse_address",
    "parse_copy_source",
    "split_key",
]

_STRAY_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_is_plain: Final = re.compile(rb"[!-$&-~]*").fullmatch
"""Whether there is nothing to decode."""
KEY_BYTES_MAX = 1024 + 1 + 128
"""Limit on a key: a path of 1,024 bytes after a ref of at most 128 characters and `/`."""


@hot_value
class Address:
    """The bucket and key that a request names.

    Attributes:
        bucket: empty for the service itself (ListBuckets).
        key: decoded; empty for the bucket itself.
    """

    bucket: str
    key: str


@hot_value
class RefPath:
    """A key split at its first `/`.

    Attributes:
        ref: not yet checked against the ref grammar; not empty.
        path: empty for the root of the ref (`main` and `main/`, distinguished by `slash`).
        slash: whether a `/` follows the ref.
    """

    ref: str
    path: str
    slash: bool


def _decode(raw: bytes, what: str) -> str:
    try:
        text = (unquote_to_bytes(raw) if b"%" in raw else raw).decode()
    except UnicodeDecodeError:
        raise S3Error("InvalidURI", f"The {what} is not UTF-8.") from None
    if "\x00" in text:
        raise S3Error("InvalidURI", f"The {what} holds a NUL character.")
    return text


@lru_cache(maxsize=256)  # clients use few names; unauthenticated callers cannot fill much
def _bucket_of_host(host: str, domains: tuple[str, ...]) -> str:
    """Returns the labels before one of our domains, or empty. Ignores the port."""
    name = host.lower()
    if not name.startswith("["):
        name = name.partition(":")[0]
    name = name.rstrip(".")
    # The longest domain first: if `s3.a` and `x.s3.a` are both ours, `b.x.s3.a` is bucket `b`.
    for domain in sorted(domains, key=len, reverse=True):
        if name == domain:
            return ""
        if name.endswith("." + domain):
            return name[: -len(domain) - 1]
    return ""


def bucket_of_host(host: str, domains: Sequence[str]) -> str:
    """Returns the bucket that the Host header of a request names; empty if its path names it."""
    return _bucket_of_host(host, tuple(domains)) if domains else ""


def parse_address(host: str, raw_path: bytes, domains: Sequence[str] = ()) -> Address:
    """Returns bucket and key of a request, decoded exactly once.

    Args:
        host: the Host header, including the port.
        raw_path: `Request.raw_path`.
        domains: lower-case names whose subdomains are buckets (`gateways.s3.domain_name`).

    Raises:
        S3Error: InvalidURI (not UTF-8, NUL), KeyTooLongError.
    """
    bucket = _bucket_of_host(host, tuple(domains)) if domains else ""
    if bucket:
        key = _decode(raw_path[1:], "key")
    elif raw_path.isascii() and b"%" not in raw_path and b"\x00" not in raw_path:
        bucket, _, key = (
            raw_path[1:].decode().partition("/")
        )  # nothing to decode, as in most requests
    else:
        raw_bucket, _, raw_key = raw_path[1:].partition(b"/")
        bucket, key = _decode(raw_bucket, "bucket name"), _decode(raw_key, "key")
    if len(key) * 4 > KEY_BYTES_MAX:
        check_key(key)
    return Address(bucket, key)


def check_key(key: str) -> str:
    """Returns a key of a permitted length.

    Raises:
        S3Error: KeyTooLongError.
    """
    if len(key) * 4 > KEY_BYTES_MAX and len(key.encode()) > KEY_BYTES_MAX:
        raise S3Error("KeyTooLongError")
    return key


def split_key(key: str) -> RefPath:
    """Splits a key in a repository's bucket into ref and path.

    Raises:
        S3Error: InvalidArgument if the key is empty or begins with `/`.
    """
    ref, slash, path = key.partition("/")
    if not ref:
        raise S3Error("InvalidArgument", "The key must begin with a branch, tag or commit.")
    return RefPath(ref, path, bool(slash))


def parse_copy_source(value: str) -> Address:
    """Parses the `x-amz-copy-source` header: `[/]bucket/key`, percent-encoded.

    Raises:
        S3Error: InvalidArgument without bucket or key, and for a `%` that encodes nothing; InvalidURI as
            `parse_address`; NotImplemented with `?versionId=`.
    """
    raw, query, version = value.encode("latin-1").lstrip(b"/").partition(b"?versionId=")
    if query and version != b"null":
        raise S3Error("NotImplemented", "x-amz-copy-source with versionId is not implemented.")
    if _STRAY_PERCENT.search(raw):
        text = "Invalid copy source encoding. Write a percent sign of bucket or key as %25."
        raise S3Error("InvalidArgument", text, ArgumentName="x-amz-copy-source")
    bucket, slash, key = _decode(raw, "copy source").partition("/")
    if not (bucket and slash and key):
        told = "Invalid copy source object key" if bucket else "Invalid copy source bucket name"
        raise S3Error(
            "InvalidArgument",
            f"{told}. The copy source must be bucket and key.",
            ArgumentName="x-amz-copy-source",
        )
    return Address(bucket, key)


def object_url(http: Request, address: Address, *, safe: str = "/") -> str:
    """Returns the URL of the object at an address, in the style of the request: the bucket in the host, or in the path.

    Args:
        http: the request.
        address: of the object.
        safe: characters of the key that are not encoded.
    """
    scheme = "https" if http.secure else "http"
    host, in_path = http.headers.text("host"), f"/{address.bucket}"
    names_it = f"{http.raw_path.decode('latin-1')}/".startswith(f"{in_path}/")
    is_in_host = host.lower().startswith(f"{address.bucket}.") and not names_it
    return f"{scheme}://{host}{'' if is_in_host else in_path}/{quote(address.key, safe=safe)}"
