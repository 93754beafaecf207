"""Refuses headers and versions that Tarn does not offer; for operations see `not_offered`.

If a header that requests encryption, a lock or a storage class were ignored, the client would believe that
it was honoured. Each is answered with 501 NotImplemented and the name of the header.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tarn_gateway.http import Headers
from tarn_gateway.requests.query import Query
from tarn_gateway.s3error import S3Error

__all__ = ["refuse_headers", "refuse_version"]

_PREFIXES: Final = (
    "x-amz-server-side-encryption",
    "x-amz-copy-source-server-side-encryption",
    "x-amz-object-lock-",
    "x-amz-grant-",
    "x-amz-bypass-governance-",
)
_NAMES: Final = frozenset(
    {
        "x-amz-mfa",
        "x-amz-tagging",
        "x-amz-website-redirect-location",
        "x-amz-write-offset-bytes",
        "x-amz-rename-source",
    }
)
# Values that every object satisfies anyway; any other value of these headers is refused.
_HARMLESS: Final[Mapping[str, frozenset[str]]] = {
    "x-amz-storage-class": frozenset({"STANDARD"}),
    "x-amz-acl": frozenset({"private", "bucket-owner-full-control"}),
    "x-amz-tagging-directive": frozenset({"COPY"}),
    "x-amz-object-ownership": frozenset({"BucketOwnerEnforced"}),
}


def refuse_headers(headers: Headers) -> None:
    """Refuses headers that Tarn cannot honour.

    Raises:
        S3Error: NotImplemented, naming the header.
    """
    for name in headers.amz_names:
        if name in _NAMES or name.startswith(_PREFIXES):
            raise S3Error("NotImplemented", f"{name} is not implemented.", Header=name)
        harmless = _HARMLESS.get(name)
        if harmless is not None and headers.text(name) not in harmless:
            value = headers.text(name)[:80]
            text = f"{name}: {value} is not implemented."
            raise S3Error("NotImplemented", text, Header=name)


def refuse_version(query: Query) -> None:
    """Refuses a version id of an object, except `null`, which is the version of every object.

    Raises:
        S3Error: NotImplemented for any other version id.
    """
    if query.values.get("versionId", "null") != "null":
        text = (
            "The parameter versionId is not implemented. Versions are commits: name one in the key."
        )
        raise S3Error("NotImplemented", text, Parameter="versionId")
