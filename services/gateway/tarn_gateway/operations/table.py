"""The table of S3 operations. Router, permissions, errors for missing refs, dispatch and the table in
`docs/user/s3.md` derive from it.

A new operation is one line here and a function `perform` in a module of this package. Operations of S3 that
Tarn does not offer are in `tarn_gateway.operations.not_offered`. A test compares both with the list of all
operations of S3 in botocore.

`tarn_gateway.operation` explains the columns. No two rows match one request: address, method and the set of
selecting parameters are a key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tarn.core.access.actions import Action
from tarn_gateway.backend import Backend
from tarn_gateway.http import Response
from tarn_gateway.operation import COPY_SOURCE, About, MissingRef, Operation
from tarn_gateway.operations import (
    acls,
    attributes,
    bucket_life,
    buckets,
    completing,
    copying,
    cors,
    deleting,
    listing,
    parts,
    posting,
    putting,
    reading,
    settings,
    tagging,
    uploads,
)
from tarn_gateway.s3request import S3Request

__all__ = ["BY_NAME", "OPERATIONS", "Perform", "Row"]

Perform = Callable[[Backend, S3Request], Awaitable[Response]]
"""Performs an operation. The signature is verified and the caller may access the row's resource. No byte of
the body has been read."""


@dataclass(frozen=True, slots=True, eq=False)
class Row(Operation):
    """A row of the table."""

    perform: Perform


_SERVICE, _NAME, _BUCKET, _REF = About.SERVICE, About.NAME, About.BUCKET, About.REF
_SETTINGS, _FORM = About.SETTINGS, About.FORM
_KEYS, _KEY, _UPLOAD = About.KEYS, About.KEY, About.UPLOAD
_LIST, _READ, _WRITE = Action.LIST_REPOS, Action.READ_REPO, Action.WRITE_REPO
_RULES = Action.WRITE_RULES
_OF_READ, _OF_WRITE = MissingRef.OF_READ, MissingRef.OF_WRITE

_PUT_PART = "partNumber uploadId"
_COPY = COPY_SOURCE

# fmt: off
OPERATIONS: Final = (
    # name, method, selected by, about, action, error for a missing ref, implementation
    Row("ListBuckets", "GET", "", _SERVICE, _LIST, _OF_READ, buckets.list_buckets),

    Row("CreateBucket", "PUT", "", _NAME, Action.CREATE_REPO, _OF_WRITE, bucket_life.create_bucket),
    Row("DeleteBucket", "DELETE", "", _NAME, Action.WRITE_BUCKETS, _OF_WRITE, bucket_life.delete_bucket),
    Row("HeadBucket", "HEAD", "", _BUCKET, _READ, _OF_READ, buckets.head_bucket),
    Row("GetBucketLocation", "GET", "location", _BUCKET, _READ, _OF_READ, buckets.get_bucket_location),
    Row("GetBucketVersioning", "GET", "versioning", _BUCKET, _READ, _OF_READ, buckets.get_bucket_versioning),
    Row("GetBucketCors", "GET", "cors", _BUCKET, _READ, _OF_READ, cors.get_bucket_cors),
    Row("PutBucketCors", "PUT", "cors", _SETTINGS, _RULES, _OF_WRITE, cors.put_bucket_cors),
    Row("DeleteBucketCors", "DELETE", "cors", _SETTINGS, _RULES, _OF_WRITE, cors.delete_bucket_cors),

    Row("GetBucketAcl", "GET", "acl", _BUCKET, _READ, _OF_READ, acls.get_bucket_acl),
    Row("PutBucketAcl", "PUT", "acl", _BUCKET, _WRITE, _OF_WRITE, acls.put_bucket_acl),
    Row("GetBucketOwnershipControls", "GET", "ownershipControls", _BUCKET, _READ, _OF_READ,
        settings.shown(settings.OWNERSHIP)),
    Row("PutBucketOwnershipControls", "PUT", "ownershipControls", _BUCKET, _WRITE, _OF_WRITE,
        settings.confirmed(settings.OWNERSHIP)),
    Row("GetPublicAccessBlock", "GET", "publicAccessBlock", _BUCKET, _READ, _OF_READ,
        settings.shown(settings.PUBLIC_ACCESS)),
    Row("PutPublicAccessBlock", "PUT", "publicAccessBlock", _BUCKET, _WRITE, _OF_WRITE,
        settings.confirmed(settings.PUBLIC_ACCESS)),
    Row("GetBucketPolicyStatus", "GET", "policyStatus", _BUCKET, _READ, _OF_READ,
        settings.policy_status),
    Row("GetBucketRequestPayment", "GET", "requestPayment", _BUCKET, _READ, _OF_READ, settings.shown(settings.PAYER)),
    Row("GetBucketLogging", "GET", "logging", _BUCKET, _READ, _OF_READ, settings.shown(settings.LOGGING)),
    Row("GetBucketNotificationConfiguration", "GET", "notification", _BUCKET, _READ, _OF_READ,
        settings.shown(settings.NOTIFICATIONS), others=("GetBucketNotification",)),
    Row("GetBucketAccelerateConfiguration", "GET", "accelerate", _BUCKET, _READ, _OF_READ,
        settings.shown(settings.ACCELERATION)),
    Row("GetBucketPolicy", "GET", "policy", _BUCKET, _READ, _OF_READ, settings.unset("NoSuchBucketPolicy")),
    Row("GetBucketTagging", "GET", "tagging", _BUCKET, _READ, _OF_READ, settings.unset("NoSuchTagSet")),
    Row("GetBucketLifecycleConfiguration", "GET", "lifecycle", _BUCKET, _READ, _OF_READ,
        settings.unset("NoSuchLifecycleConfiguration"), others=("GetBucketLifecycle",)),
    Row("GetBucketEncryption", "GET", "encryption", _BUCKET, _READ, _OF_READ,
        settings.unset("ServerSideEncryptionConfigurationNotFoundError")),
    Row("GetBucketWebsite", "GET", "website", _BUCKET, _READ, _OF_READ, settings.unset("NoSuchWebsiteConfiguration")),
    Row("GetBucketReplication", "GET", "replication", _BUCKET, _READ, _OF_READ,
        settings.unset("ReplicationConfigurationNotFoundError")),
    Row("GetObjectLockConfiguration", "GET", "object-lock", _BUCKET, _READ, _OF_READ,
        settings.unset("ObjectLockConfigurationNotFoundError")),

    Row("ListObjects", "GET", "", _REF, _READ, _OF_READ, listing.list_objects, is_public=True),
    Row("ListObjectsV2", "GET", "list-type=2", _REF, _READ, _OF_READ, listing.list_objects_v2, is_public=True),
    Row("ListObjectVersions", "GET", "versions", _REF, _READ, _OF_READ, listing.list_object_versions),
    Row("ListMultipartUploads", "GET", "uploads", _REF, _READ, _OF_WRITE, uploads.list_multipart_uploads),

    Row("GetObject", "GET", "", _KEY, _READ, _OF_READ, reading.read_object, narrowed_by="partNumber",
        is_public=True),
    Row("HeadObject", "HEAD", "", _KEY, _READ, _OF_READ, reading.read_object, narrowed_by="partNumber",
        is_public=True),
    Row("GetObjectAttributes", "GET", "attributes", _KEY, _READ, _OF_READ, attributes.get_object_attributes),
    Row("PutObject", "PUT", "", _KEY, _WRITE, _OF_WRITE, putting.put_object, if_match=_READ),
    Row("PostObject", "POST", "", _FORM, _WRITE, _OF_WRITE, posting.post_object),
    Row("CopyObject", "PUT", _COPY, _KEY, _WRITE, _OF_WRITE, copying.copy_object, source=_READ, if_match=_READ),
    Row("DeleteObject", "DELETE", "", _KEY, _WRITE, _OF_WRITE, deleting.delete_object, if_match=_READ),
    Row("DeleteObjects", "POST", "delete", _KEYS, _WRITE, _OF_WRITE, deleting.delete_objects, if_match=_READ),

    Row("GetObjectAcl", "GET", "acl", _KEY, _READ, _OF_READ, acls.get_object_acl),
    Row("PutObjectAcl", "PUT", "acl", _KEY, _WRITE, _OF_WRITE, acls.put_object_acl),

    Row("GetObjectTagging", "GET", "tagging", _KEY, _READ, _OF_READ, tagging.get_object_tagging),
    Row("PutObjectTagging", "PUT", "tagging", _KEY, _WRITE, _OF_WRITE, tagging.put_object_tagging),
    Row("DeleteObjectTagging", "DELETE", "tagging", _KEY, _WRITE, _OF_WRITE, tagging.delete_object_tagging),

    Row("CreateMultipartUpload", "POST", "uploads", _KEY, _WRITE, _OF_WRITE, uploads.create_multipart_upload),
    Row("UploadPart", "PUT", _PUT_PART, _UPLOAD, _WRITE, _OF_WRITE, parts.upload_part),
    Row("UploadPartCopy", "PUT", f"{_PUT_PART} {_COPY}", _UPLOAD, _WRITE, _OF_WRITE, parts.upload_part_copy,
        source=_READ),
    Row("CompleteMultipartUpload", "POST", "uploadId", _UPLOAD, _WRITE, _OF_WRITE,
        completing.complete_multipart_upload, if_match=_READ),
    Row("AbortMultipartUpload", "DELETE", "uploadId", _UPLOAD, _WRITE, _OF_WRITE, uploads.abort_multipart_upload),
    Row("ListParts", "GET", "uploadId", _UPLOAD, _READ, _OF_WRITE, uploads.list_parts),
)
# fmt: on

BY_NAME: Final[Mapping[str, Row]] = MappingProxyType({row.name: row for row in OPERATIONS})
"""Rows by operation name."""
