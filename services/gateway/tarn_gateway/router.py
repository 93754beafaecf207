"""Which operation a request asks for: method, address, sub-resources and one header decide.

Every request ends in an `Operation` or in the refusal that S3 gives for it, by name: an operation that is
not offered must never be taken for one that is (`PUT ?acl` is no PutObject).
"""

from __future__ import annotations

import enum

from tarn_gateway.address import Address
from tarn_gateway.http import Headers
from tarn_gateway.query import Query
from tarn_gateway.s3error import S3Error

__all__ = ["Operation", "READS", "route"]

COPY_SOURCE = "x-amz-copy-source"


class Operation(enum.StrEnum):
    """What the gateway does; names are S3's and those of `tarn.core.actions`."""

    LIST_BUCKETS = "ListBuckets"
    HEAD_BUCKET = "HeadBucket"
    GET_BUCKET_LOCATION = "GetBucketLocation"
    GET_BUCKET_VERSIONING = "GetBucketVersioning"
    LIST_OBJECTS = "ListObjects"
    LIST_OBJECTS_V2 = "ListObjectsV2"
    LIST_MULTIPART_UPLOADS = "ListMultipartUploads"
    DELETE_OBJECTS = "DeleteObjects"
    GET_OBJECT = "GetObject"
    HEAD_OBJECT = "HeadObject"
    PUT_OBJECT = "PutObject"
    COPY_OBJECT = "CopyObject"
    DELETE_OBJECT = "DeleteObject"
    CREATE_MULTIPART_UPLOAD = "CreateMultipartUpload"
    UPLOAD_PART = "UploadPart"
    UPLOAD_PART_COPY = "UploadPartCopy"
    COMPLETE_MULTIPART_UPLOAD = "CompleteMultipartUpload"
    ABORT_MULTIPART_UPLOAD = "AbortMultipartUpload"
    LIST_PARTS = "ListParts"


READS = frozenset(
    {
        Operation.LIST_BUCKETS,
        Operation.HEAD_BUCKET,
        Operation.GET_BUCKET_LOCATION,
        Operation.GET_BUCKET_VERSIONING,
        Operation.LIST_OBJECTS,
        Operation.LIST_OBJECTS_V2,
        Operation.GET_OBJECT,
        Operation.HEAD_OBJECT,
    }
)
"""Operations on any ref; the others are on a branch, and a missing one is told them otherwise."""


def route(method: str, address: Address, query: Query, headers: Headers) -> Operation:
    """The operation of a request.

    Sub-resources that are not offered are refused before (`refused.refuse_parameters`).

    Raises:
        S3Error: NotImplemented or MethodNotAllowed, with the name of what was asked for.
    """
    if not address.bucket:
        if method == "GET":
            return Operation.LIST_BUCKETS
        raise _not_allowed(method, "the service")
    if not address.key:
        return _of_bucket(method, query)
    return _of_object(method, query, headers)


def _of_bucket(method: str, query: Query) -> Operation:
    match method:
        case "GET":
            return _get_bucket(query)
        case "HEAD":
            return Operation.HEAD_BUCKET
        case "POST" if "delete" in query:
            return Operation.DELETE_OBJECTS
        case "POST":
            raise _not_offered("PostObject", "Uploads by HTML forms are not implemented.")
        case "PUT" if "versioning" in query:
            text = "Buckets are not versioned: a repository keeps versions as commits."
            raise _not_offered("PutBucketVersioning", text)
        case "PUT":
            text = "A bucket is a repository; create it with `tarn repo create`."
            raise _not_offered("CreateBucket", text)
        case "DELETE":
            text = "A bucket is a repository; delete it with `tarn repo delete`."
            raise _not_offered("DeleteBucket", text)
        case _:
            raise _not_allowed(method, "a bucket")


def _get_bucket(query: Query) -> Operation:
    if "uploads" in query:
        return Operation.LIST_MULTIPART_UPLOADS
    if "location" in query:
        return Operation.GET_BUCKET_LOCATION
    if "versioning" in query:
        return Operation.GET_BUCKET_VERSIONING
    match query.text("list-type"):
        case "2":
            return Operation.LIST_OBJECTS_V2
        case "" | "1":
            return Operation.LIST_OBJECTS
        case other:
            raise S3Error(
                "InvalidArgument",
                "list-type must be 1 or 2.",
                ArgumentName="list-type",
                ArgumentValue=other[:80],
            )


def _of_object(method: str, query: Query, headers: Headers) -> Operation:
    match method:
        case "GET":
            return Operation.LIST_PARTS if "uploadId" in query else Operation.GET_OBJECT
        case "HEAD":
            return Operation.HEAD_OBJECT
        case "PUT":
            return _put_object(query, headers)
        case "DELETE" if "uploadId" in query:
            return Operation.ABORT_MULTIPART_UPLOAD
        case "DELETE":
            return Operation.DELETE_OBJECT
        case "POST" if "uploads" in query:
            return Operation.CREATE_MULTIPART_UPLOAD
        case "POST" if "uploadId" in query:
            return Operation.COMPLETE_MULTIPART_UPLOAD
        case _:
            raise _not_allowed(method, "an object")


def _put_object(query: Query, headers: Headers) -> Operation:
    copies = COPY_SOURCE in headers
    is_part = "partNumber" in query
    if is_part is not ("uploadId" in query):
        missing = "uploadId" if is_part else "partNumber"
        text = f"A part needs both partNumber and uploadId; there is no {missing}."
        raise S3Error("InvalidArgument", text, ArgumentName=missing)
    if is_part:
        return Operation.UPLOAD_PART_COPY if copies else Operation.UPLOAD_PART
    return Operation.COPY_OBJECT if copies else Operation.PUT_OBJECT


def _not_offered(operation: str, text: str) -> S3Error:
    return S3Error("NotImplemented", f"{operation} is not implemented. {text}", Operation=operation)


def _not_allowed(method: str, what: str) -> S3Error:
    text = f"The method {method[:20]} is not allowed on {what}."
    return S3Error("MethodNotAllowed", text, Method=method[:20])
