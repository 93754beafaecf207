"""The one table of request headers that change what an S3 request means.

A client whose header is ignored believes that it was honoured: a conditional delete deletes anyway, an object
that was to be encrypted is not. So each header has a row, which names the operations that act on it and says
what every other operation does. `check_headers` enforces the table for all operations, before any of them
runs; the operations that a row names read their headers themselves. A test walks all rows and operations, and
compares the table with botocore's list of the headers of each operation.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

from tarn_gateway.http import Headers
from tarn_gateway.s3error import S3Code, S3Error

__all__ = ["ALL", "HEADERS", "HeaderRow", "check_headers", "row_of"]

ALL: Final = "*"
"""Every operation honours the headers of the row, at the one place that reads requests."""


@dataclass(frozen=True, slots=True, eq=False)
class HeaderRow:
    """Headers that are treated alike.

    Attributes:
        names: in lower case, separated by blanks. A name that ends with `*` stands for all names that begin with
            it and have no row of their own.
        honoured_by: names of the operations that act on the headers, separated by blanks; or `ALL`.
        accepted: the values that every other operation accepts, because they ask for what it does anyway;
            None: any value, because the header says nothing about such an operation. Other values are refused.
        code: of the refusal.
        why: the reason of `accepted` or of the refusal, for people.
    """

    names: str
    honoured_by: str = ""
    accepted: frozenset[str] | None = frozenset()
    code: S3Code = "NotImplemented"
    why: str = ""

    def honours(self, operation: str) -> bool:
        """Returns whether an operation acts on the headers."""
        return self.honoured_by == ALL or operation in self.honoured_by.split()


_READS: Final = "GetObject HeadObject"
_OF_CLIENTS: Final = "PutObject CopyObject CreateMultipartUpload"
_STORES: Final = f"{_OF_CLIENTS} PostObject"
_COPIES: Final = "CopyObject UploadPartCopy"
_BODIES: Final = (
    "PutObject PostObject UploadPart DeleteObjects CompleteMultipartUpload PutBucketCors PutBucketAcl PutObjectAcl "
    "PutObjectTagging PutBucketOwnershipControls PutPublicAccessBlock"
)
_OWNERS: Final = "x-amz-expected-bucket-owner x-amz-source-expected-bucket-owner"


def _only(*values: str) -> frozenset[str]:
    return frozenset(values)


# fmt: off
HEADERS: Final = (
    # conditions
    HeaderRow("if-match", f"{_READS} PutObject CopyObject CompleteMultipartUpload DeleteObject",
              why="the keys of DeleteObjects have conditions of their own"),
    HeaderRow("if-none-match", f"{_READS} PutObject CopyObject CompleteMultipartUpload"),
    HeaderRow("if-modified-since if-unmodified-since", _READS),
    HeaderRow("x-amz-if-match-size x-amz-if-match-last-modified-time", "DeleteObject"),
    HeaderRow("x-amz-if-match-initiated-time x-amz-if-*"),
    HeaderRow("x-amz-copy-source-if-match x-amz-copy-source-if-none-match x-amz-copy-source-if-modified-since "
              "x-amz-copy-source-if-unmodified-since", _COPIES),
    HeaderRow("cf-copy-destination-if-match cf-copy-destination-if-none-match cf-copy-destination-if-modified-since "
              "cf-copy-destination-if-unmodified-since",
              why="other servers' form of `If-Match` and `If-None-Match` for copies, which clients can be set to"),
    HeaderRow(_OWNERS, ALL, why="the owner is the caller: any other user id is 403 `AccessDenied`"),

    # ranges and copies
    HeaderRow("range if-range", _READS, None, why="RFC 9110 defines ranges for reads only"),
    HeaderRow("content-range", why="there are no partial writes"),
    HeaderRow("x-amz-copy-source", _COPIES),
    HeaderRow("x-amz-copy-source-range", "UploadPartCopy"),
    HeaderRow("x-amz-metadata-directive", "CopyObject", _only("REPLACE"), why="there is nothing to copy"),

    # stored with the object
    HeaderRow("cache-control content-disposition content-encoding content-language content-type expires x-amz-meta-*",
              _STORES, None, why="no object is stored"),
    HeaderRow("x-amz-tagging", _STORES, why="PutObjectTagging takes a document"),
    HeaderRow("x-amz-tagging-directive", "CopyObject", _only("COPY"), why="there is no source whose tags are copied"),
    HeaderRow("referer", _OF_CLIENTS, None, why="S3A's audit line is stored with an object"),

    # checksums and sizes
    HeaderRow("content-md5 x-amz-checksum-* x-amz-sdk-checksum-algorithm x-amz-trailer x-amz-decoded-content-length",
              _BODIES, None, why="no body is read"),
    HeaderRow("x-amz-checksum-algorithm", "CopyObject CreateMultipartUpload", None,
              why="the checksum has its own header"),
    HeaderRow("x-amz-checksum-type", "CreateMultipartUpload CompleteMultipartUpload", None,
              why="only multipart checksums have two types"),
    HeaderRow("x-amz-checksum-mode", _READS, None, why="no checksum is read"),
    HeaderRow("x-amz-mp-object-size", "CompleteMultipartUpload"),
    HeaderRow("x-amz-object-attributes x-amz-max-parts x-amz-part-number-marker", "GetObjectAttributes", None,
              why="they say what of an object's attributes is answered"),

    # who asks, and how often
    HeaderRow("authorization date x-amz-date x-amz-content-sha256", ALL),
    HeaderRow("x-amz-security-token", ALL, why="the token of a session key; with a key pair it is 400 `InvalidToken`"),
    HeaderRow("amz-sdk-invocation-id", "PutObject CopyObject DeleteObject DeleteObjects", None,
              why="it names a repeated conditional write"),
    HeaderRow("amz-sdk-request", "DeleteObject DeleteObjects", None,
              why="it says whether a conditional delete is repeated"),
    HeaderRow("x-amz-request-payer", accepted=_only("requester"), why="no request costs anything"),
    HeaderRow("x-amz-mfa"),

    # not offered
    HeaderRow("x-amz-storage-class", accepted=_only("", "STANDARD", "REDUCED_REDUNDANCY"), code="InvalidStorageClass",
              why="the only class is STANDARD, and REDUCED_REDUNDANCY another name of it"),
    HeaderRow("x-amz-optional-object-attributes", accepted=_only("RestoreStatus"), why="no object is archived"),
    HeaderRow("x-amz-acl", accepted=_only("private", "bucket-owner-full-control"), code="AccessControlListNotSupported",
              why="there are no ACLs, and users have the permissions of their policies"),
    HeaderRow("x-amz-grant-*", code="AccessControlListNotSupported",
              why="there are no ACLs, and users have the permissions of their policies"),
    HeaderRow("x-amz-bypass-governance-retention", accepted=_only("true", "false"), why="there are no locks to bypass"),
    HeaderRow("x-amz-bucket-object-lock-enabled", accepted=_only("false"), why="there are no locks"),
    HeaderRow("x-amz-bucket-namespace", accepted=_only("global"), why="names are those of the installation"),
    HeaderRow("x-amz-object-ownership", accepted=_only("BucketOwnerEnforced"), why="there are no ACLs"),
    HeaderRow("x-amz-object-annotation-directive", accepted=_only("COPY"), why="a source has no annotations"),
    HeaderRow("x-amz-website-redirect-location x-amz-write-offset-bytes"),
    HeaderRow("x-amz-server-side-encryption* x-amz-copy-source-* x-amz-object-lock-* "
              "x-amz-rename-source*"),
)
# fmt: on

_ROWS: Final = {name: row for row in HEADERS for name in row.names.split()}
_LENGTHS: Final = frozenset({"PutObject", "PostObject", "UploadPart"})


def row_of(name: str) -> HeaderRow | None:
    """Returns the row of a header in lower case; None if it changes no request."""
    if (row := _ROWS.get(name)) is not None:
        return row
    prefixes = (one for one in _ROWS if one.endswith("*") and name.startswith(one[:-1]))
    longest = max(prefixes, key=len, default=None)
    return None if longest is None else _ROWS[longest]


_OF_SIGNATURES: Final = frozenset({"x-amz-date", "x-amz-content-sha256", "x-amz-security-token"})
_CERTAIN: Final = frozenset(_ROWS) | {name for name in _OF_SIGNATURES if row_of(name) is None}
"""Names that no beginning of names in the table stands for."""


@functools.cache
def _watched(operation: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Returns the names and the beginnings of names that an operation may have to refuse."""
    names = {
        name
        for name, row in _ROWS.items()
        if name in _OWNERS.split() or not (row.honours(operation) or row.accepted is None)
    }
    prefixes = {name for name in names if name.endswith("*")}
    return frozenset(names - prefixes), tuple(name[:-1] for name in prefixes)


def check_headers(operation: str, headers: Headers, user_id: str) -> None:
    """Refuses a request with a header that its operation does not honour.

    Args:
        operation: name of the operation.
        headers: of the request, including those that a presigned URL contains.
        user_id: the caller. Listings call the caller the owner.

    Raises:
        S3Error: the code of the header's row, naming the header; AccessDenied if the expected owner is
            another; MissingContentLength for an upload without a length.
    """
    names, prefixes = _watched(operation)
    if not names.isdisjoint(headers):
        for name in filter(names.__contains__, headers):
            _judge(_ROWS[name], name, headers[name], operation, user_id)
    if not _CERTAIN.issuperset(headers.amz_names):
        for name in headers.amz_names:
            if name not in _ROWS and name.startswith(prefixes):
                row = row_of(name)
                assert row is not None, "its beginning is in the table"
                _judge(row, name, headers[name], operation, user_id)
    if (
        operation in _LENGTHS
        and "content-length" not in headers
        and "transfer-encoding" not in headers
    ):
        raise S3Error("MissingContentLength")


def _judge(row: HeaderRow, name: str, value: str, operation: str, user_id: str) -> None:
    if row.honoured_by == ALL:
        if value != user_id:
            raise S3Error("AccessDenied", f"{name} is not your user id.", Header=name)
        return
    if row.honours(operation) or row.accepted is None or value in row.accepted:
        return
    shown = f"{name}: {value[:80]}" if row.accepted else name
    refused = "not implemented" if row.code == "NotImplemented" else "refused"
    text = f"{shown} is {refused} for {operation}{f': {row.why}' if row.why else ''}."
    raise S3Error(row.code, text, Header=name)
