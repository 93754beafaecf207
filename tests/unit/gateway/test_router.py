"""Every request is one operation, or is refused by name."""

from __future__ import annotations

import pytest

from tarn_gateway.http import Headers
from tarn_gateway.requests.address import Address
from tarn_gateway.requests.query import parse_query
from tarn_gateway.router import route
from tarn_gateway.s3error import S3Error

COPY = {"x-amz-copy-source": "/lake/main/a"}


@pytest.mark.parametrize(
    ("method", "bucket", "key", "query", "headers", "operation"),
    [
        ("GET", "", "", "", {}, "ListBuckets"),
        ("HEAD", "lake", "", "", {}, "HeadBucket"),
        ("GET", "lake", "", "location", {}, "GetBucketLocation"),
        ("GET", "lake", "", "versioning", {}, "GetBucketVersioning"),
        ("GET", "lake", "", "", {}, "ListObjects"),
        ("GET", "lake", "", "prefix=main/&list-type=1", {}, "ListObjects"),
        ("GET", "lake", "", "prefix=main/&list-type=", {}, "ListObjects"),
        ("GET", "lake", "", "list-type=2", {}, "ListObjectsV2"),
        ("GET", "lake", "", "uploads", {}, "ListMultipartUploads"),
        ("POST", "lake", "", "delete", {}, "DeleteObjects"),
        ("GET", "lake", "main/a", "", {}, "GetObject"),
        ("GET", "lake", "main/a", "", COPY, "GetObject"),
        ("HEAD", "lake", "main/a", "", {}, "HeadObject"),
        ("PUT", "lake", "main/a", "x-id=PutObject", {}, "PutObject"),
        ("PUT", "lake", "main/a", "", COPY, "CopyObject"),
        ("DELETE", "lake", "main/a", "", {}, "DeleteObject"),
        ("POST", "lake", "main/a", "uploads", {}, "CreateMultipartUpload"),
        ("PUT", "lake", "main/a", "partNumber=1&uploadId=x", {}, "UploadPart"),
        ("PUT", "lake", "main/a", "partNumber=1&uploadId=x", COPY, "UploadPartCopy"),
        ("POST", "lake", "main/a", "uploadId=x", {}, "CompleteMultipartUpload"),
        ("DELETE", "lake", "main/a", "uploadId=x", {}, "AbortMultipartUpload"),
        ("GET", "lake", "main/a", "uploadId=x", {}, "ListParts"),
    ],
)
def test_each_operation_has_its_request(
    method: str, bucket: str, key: str, query: str, headers: dict[str, str], operation: str
) -> None:
    found = route(
        method, Address(bucket, key), parse_query(query.encode()), Headers(headers.items())
    )
    assert found.name == operation


def refusal(method: str, bucket: str, key: str, query: str) -> S3Error:
    with pytest.raises(S3Error) as caught:
        route(method, Address(bucket, key), parse_query(query.encode()), Headers([]))
    return caught.value


@pytest.mark.parametrize(
    ("method", "bucket", "key", "query", "code", "word"),
    [
        ("PUT", "lake", "", "versioning", "NotImplemented", "PutBucketVersioning"),
        ("PUT", "lake", "main/a", "retention", "NotImplemented", "PutObjectRetention"),
        # S3 has these operations on other resources; the refusal names the parameter nevertheless.
        ("GET", "", "", "torrent", "NotImplemented", "torrent"),
        ("GET", "lake", "main/a", "abac", "NotImplemented", "abac"),
        ("PUT", "lake", "main/a", "retention&uploads", "NotImplemented", "retention"),
        ("POST", "lake", "main/a", "", "MethodNotAllowed", "POST"),
        ("PATCH", "lake", "main/a", "", "MethodNotAllowed", "PATCH"),
        ("OPTIONS", "lake", "", "", "MethodNotAllowed", "OPTIONS"),
        ("PUT", "", "", "", "MethodNotAllowed", "PUT"),
        # Parameters that select another operation never fall back to PutObject, GetObject or DeleteObject.
        ("PUT", "lake", "main/a", "uploads", "MethodNotAllowed", "uploads"),
        ("GET", "lake", "main/a", "uploads", "MethodNotAllowed", "uploads"),
        ("PUT", "lake", "main/a", "delete", "InvalidArgument", "delete"),
        ("PUT", "lake", "main/a", "acl&uploads", "InvalidArgument", "acl, uploads"),
        ("GET", "lake", "main/a", "policy", "InvalidArgument", "policy"),
        ("GET", "", "", "acl", "InvalidArgument", "acl"),
        ("DELETE", "lake", "main/a", "acl", "MethodNotAllowed", "acl"),
        ("DELETE", "lake", "main/a", "location", "InvalidArgument", "location"),
        ("GET", "lake", "", "location&uploads", "InvalidArgument", "location, uploads"),
        ("PUT", "lake", "main/a", "partNumber=1", "InvalidArgument", "uploadId"),
        ("PUT", "lake", "main/a", "uploadId=x", "InvalidArgument", "partNumber"),
        ("GET", "lake", "", "list-type=3", "InvalidArgument", "list-type"),
    ],
)
def test_the_error_names_an_operation_that_is_not_offered(
    method: str, bucket: str, key: str, query: str, code: str, word: str
) -> None:
    refused = refusal(method, bucket, key, query)
    assert refused.code == code
    assert word in refused.message


def test_a_method_that_is_not_allowed_comes_with_those_that_are() -> None:
    """RFC 9110 §15.5.6."""
    assert refusal("PATCH", "lake", "main/a", "").headers == {"Allow": "GET, HEAD, PUT, DELETE"}
    assert refusal("DELETE", "", "", "").headers == {"Allow": "GET"}
    assert refusal("PUT", "lake", "main/a", "uploads").headers == {"Allow": "POST"}
