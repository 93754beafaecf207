"""Renders the tables of S3 operations and of headers as Markdown, for `docs/user/s3.md`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tarn_gateway.operation import COPY_SOURCE, Addressed, Operation
from tarn_gateway.operations.not_offered import NOT_OFFERED
from tarn_gateway.operations.table import OPERATIONS
from tarn_gateway.requests.header_table import ALL, HEADERS, HeaderRow

__all__ = ["REMARKS", "describe"]

_CONDITIONS: Final = "`If-Match`, `If-None-Match: *`"

REMARKS: Final[Mapping[str, str]] = {
    "ListBuckets": "the repositories that the caller may read, and the bucket views of them",
    "GetBucketVersioning": "never enabled: versions are commits",
    "ListObjects": "as ListObjectsV2",
    "ListObjectsV2": "any delimiter; at most 1,000 keys a page; without a ref in the prefix and with "
    "delimiter `/`, branches and tags are the common prefixes",
    "ListMultipartUploads": "of one branch, or of all branches that match the prefix",
    "GetObject": "`Range`, `If-Range`, `If-Match`, `If-None-Match`, `If-Modified-Since`, "
    "`If-Unmodified-Since`, `response-*`, `x-amz-checksum-mode`",
    "HeadObject": "as GetObject",
    "PutObject": f"{_CONDITIONS}; user metadata up to 2 KiB, `Content-Type`, `Cache-Control`, "
    "`Content-Encoding`, `Content-Disposition`, `Content-Language` and `Expires` are kept",
    "CopyObject": f"{_CONDITIONS}, `x-amz-copy-source-if-*`; inside a repository nothing is copied but "
    "metadata, between repositories the bytes are copied",
    "DeleteObject": "deleting an absent key succeeds",
    "DeleteObjects": (
        "up to 1,000 keys of any branches, an outcome for each; AccessDenied as a whole if no path of the repository "
        "may be written"
    ),
    "CreateMultipartUpload": "an upload survives restarts, and commits in between; it ends when its branch is deleted, "
    "also if the branch is created again",
    "UploadPartCopy": "`x-amz-copy-source-range`, `x-amz-copy-source-if-*`; the bytes are copied",
    "CompleteMultipartUpload": f"{_CONDITIONS}; completing an upload again gives the same answer and "
    "writes nothing again. If a completion was cut off by a crash and a commit followed before it was repeated, "
    'it may go on answering 503 with "upload again": abort the upload and begin a new one',
}
"""Facts about an operation that S3's own documentation does not give."""

_PATHS: Final = {
    Addressed.SERVICE: "/",
    Addressed.BUCKET: "/{bucket}",
    Addressed.KEY: "/{bucket}/{key}",
}


def describe() -> str:
    """Returns offered operations as a table, the others as a paragraph, and the table of headers; ends with a
    line break."""
    lines = ["| operation | request | needs | remarks |", "| --- | --- | --- | --- |"]
    lines += [_row(row) for row in OPERATIONS]
    names = sorted({name for row in NOT_OFFERED for name in (row.name, *row.others)})
    lines += [
        "",
        f"Not offered, each refused by its name with 501 `NotImplemented`: {', '.join(names)}.",
        "",
        "| headers of requests | honoured by | with other operations |",
        "| --- | --- | --- |",
    ]
    lines += [_header_row(row) for row in HEADERS]
    return "\n".join(lines) + "\n"


def _row(row: Operation) -> str:
    needs = f"`{row.action}`"
    if row.source is not None:
        needs += f", `{row.source}` on the source"
    if row.if_match is not None:
        needs += f", `{row.if_match}` with `If-Match`"
    return f"| {row.name} | {_request(row)} | {needs} | {REMARKS.get(row.name, '')} |"


def _request(row: Operation) -> str:
    names = [name for name in row.selected_by.split() if name != COPY_SOURCE]
    query = f"?{'&'.join(names)}" if names else ""
    header = f" with `{COPY_SOURCE}`" if COPY_SOURCE in row.selected_by.split() else ""
    return f"`{row.method} {_PATHS[row.addressed]}{query}`{header}"


def _header_row(row: HeaderRow) -> str:
    names = ", ".join(f"`{name}`" for name in row.names.split())
    honoured = "all" if row.honoured_by == ALL else row.honoured_by.replace(" ", ", ")
    values = ", ".join(f"`{value}`" for value in sorted(row.accepted or ()))
    if row.honoured_by == ALL:
        otherwise = ""
    elif row.accepted is None:
        otherwise = "no effect"
    else:
        otherwise = f"{values} accepted, " * bool(values) + "501 `NotImplemented`"
    told = ": ".join(filter(None, (otherwise, row.why)))
    return f"| {names} | {honoured} | {told} |"
