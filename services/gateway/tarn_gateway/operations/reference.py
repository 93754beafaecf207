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
_OF_DELETES: Final = "`If-Match`, `x-amz-if-match-size`, `x-amz-if-match-last-modified-time`"

REMARKS: Final[Mapping[str, str]] = {
    "ListBuckets": "the repositories that the caller may read, the bucket views of them, and the names that its "
    "session key binds; `prefix`, `max-buckets`, `continuation-token`, `bucket-region`; at most 10,000 a page",
    "CreateBucket": "what it makes is configured: [buckets.md](buckets.md#createbucket-and-deletebucket)",
    "DeleteBucket": "of an empty bucket view; what was committed to the repository behind it stays",
    "GetBucketVersioning": "never enabled: versions are commits",
    "GetBucketCors": "[CORS rules](browsers.md) of the bucket",
    "PutBucketCors": "at most 100 rules and 8 KiB; of a bucket view it needs `WriteBuckets`",
    "DeleteBucketCors": "as PutBucketCors",
    "GetBucketAcl": "the owner (the caller) has full control and is the only grantee; all users read a "
    "[public bucket](buckets.md#let-everyone-read-it)",
    "PutBucketAcl": "only what GetBucketAcl answers, `private` and `bucket-owner-full-control`; changes nothing; "
    "refused for a public bucket",
    "GetBucketOwnershipControls": "BucketOwnerEnforced",
    "PutBucketOwnershipControls": "only BucketOwnerEnforced; changes nothing",
    "GetPublicAccessBlock": "all four are true: nothing is public; of a public bucket `IgnorePublicAcls` and "
    "`RestrictPublicBuckets` are false",
    "PutPublicAccessBlock": "only what GetPublicAccessBlock answers; changes nothing",
    "GetBucketPolicyStatus": "404 `NoSuchBucketPolicy`, unless it is a public bucket",
    "GetBucketRequestPayment": "BucketOwner",
    "GetBucketLogging": "empty",
    "GetBucketNotificationConfiguration": "empty",
    "GetBucketAccelerateConfiguration": "empty",
    "GetBucketPolicy": "404 `NoSuchBucketPolicy`",
    "GetBucketTagging": "404 `NoSuchTagSet`",
    "GetBucketLifecycleConfiguration": "404 `NoSuchLifecycleConfiguration`",
    "GetBucketEncryption": "404 `ServerSideEncryptionConfigurationNotFoundError`",
    "GetBucketWebsite": "404 `NoSuchWebsiteConfiguration`",
    "GetBucketReplication": "404 `ReplicationConfigurationNotFoundError`",
    "GetObjectLockConfiguration": "404 `ObjectLockConfigurationNotFoundError`",
    "ListObjects": "as ListObjectsV2",
    "ListObjectVersions": "as ListObjects: each object has the one version `null`, and there are no delete markers; "
    "older versions are in commits",
    "ListObjectsV2": "any delimiter; at most 1,000 keys a page; without a ref in the prefix and with "
    "delimiter `/`, branches and tags are the common prefixes",
    "ListMultipartUploads": "of one branch, or of all branches that match the prefix",
    "GetObject": "`Range`, `If-Range`, `If-Match`, `If-None-Match`, `If-Modified-Since`, "
    "`If-Unmodified-Since`, `response-*`, `x-amz-checksum-mode`, `partNumber`; `x-amz-tagging-count` tells the number "
    "of tags",
    "HeadObject": "as GetObject",
    "GetObjectAttributes": "`ObjectParts` lists the parts of each multipart object whose entry keeps them; a copy has "
    "none",
    "PutObject": f"{_CONDITIONS}; user metadata up to 2 KiB, `Content-Type`, `Cache-Control`, "
    "`Content-Encoding`, `Content-Disposition`, `Content-Language`, `Expires` and up to ten tags are kept",
    "PostObject": "[uploads by HTML forms](browsers.md#uploads-by-forms), `multipart/form-data` with a signed policy",
    "CopyObject": f"{_CONDITIONS}, `x-amz-copy-source-if-*`, `x-amz-tagging-directive`; inside a repository nothing is "
    "copied but metadata, between repositories the bytes are copied",
    "DeleteObject": f"{_OF_DELETES}; deleting an absent key succeeds, and is 404 `NoSuchKey` with `If-Match`",
    "DeleteObjects": (
        "up to 1,000 keys of any branches, an outcome for each; `ETag`, `Size` and `LastModifiedTime` of a key are its "
        "condition; AccessDenied as a whole if no path of the repository may be written"
    ),
    "GetObjectAcl": "as GetBucketAcl",
    "PutObjectAcl": "as PutBucketAcl; needs `ReadRepo`, too, because the answer tells whether the object exists",
    "GetObjectTagging": "[object tags](#object-tags) of any ref",
    "PutObjectTagging": "replaces all tags, at most ten; needs `ReadRepo`, too, because the object is read; the "
    "bytes of an object older than some hours are copied",
    "DeleteObjectTagging": "as PutObjectTagging without tags",
    "CreateMultipartUpload": "an upload survives restarts, and commits in between; it ends when its branch is deleted, "
    "also if the branch is created again",
    "UploadPartCopy": "`x-amz-copy-source-range` of a source larger than 5 MiB, `x-amz-copy-source-if-*`; the bytes "
    "are copied",
    "CompleteMultipartUpload": f"{_CONDITIONS}, `x-amz-mp-object-size`; completing an upload again gives the same "
    "answer and writes nothing again. If a completion was cut off by a crash and a commit followed before it was "
    'repeated, it may go on answering 503 with "upload again": abort the upload and begin a new one',
}
"""Facts about an operation that S3's own documentation does not give."""

_CONDITION_OF: Final = dict.fromkeys(("DeleteObject", "DeleteObjects"), "a condition")

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
        needs += f", `{row.if_match}` with {_CONDITION_OF.get(row.name, '`If-Match`')}"
    return f"| {row.name} | {_request(row)} | {needs} | {REMARKS.get(row.name, '')} |"


def _request(row: Operation) -> str:
    names = [name for name in row.selected_by.split() if name != COPY_SOURCE]
    query = f"?{'&'.join(names)}" if names else ""
    header = f" with `{COPY_SOURCE}`" if COPY_SOURCE in row.selected_by.split() else ""
    return f"`{row.method} {_PATHS[row.addressed]}{query}`{header}"


def _header_row(row: HeaderRow) -> str:
    names = ", ".join(f"`{name}`" for name in row.names.split())
    honoured = "all" if row.honoured_by == ALL else row.honoured_by.replace(" ", ", ")
    values = ", ".join(f"`{value}`" if value else "empty" for value in sorted(row.accepted or ()))
    if row.honoured_by == ALL:
        otherwise = ""
    elif row.accepted is None:
        otherwise = "no effect"
    else:
        otherwise = f"{values} accepted, " * bool(values) + "501 `NotImplemented`"
    told = ": ".join(filter(None, (otherwise, row.why)))
    return f"| {names} | {honoured} | {told} |"
