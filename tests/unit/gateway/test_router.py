"""Every request is one operation, or is refused by name."""

from __future__ import annotations

import pytest

from tarn.core.actions import ACTIONS
from tarn_gateway.address import Address
from tarn_gateway.grants import _RESOURCES
from tarn_gateway.http import Headers
from tarn_gateway.operations import OPERATIONS
from tarn_gateway.query import parse_query
from tarn_gateway.router import Operation, route
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
        ("GET", "lake", "", "list-type=2", {}, "ListObjectsV2"),
        ("GET", "lake", "", "uploads", {}, "ListMultipartUploads"),
        ("POST", "lake", "", "delete", {}, "DeleteObjects"),
        ("GET", "lake", "main/a", "", {}, "GetObject"),
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
    assert found == operation


@pytest.mark.parametrize(
    ("method", "bucket", "key", "query", "code", "word"),
    [
        ("PUT", "lake", "", "", "NotImplemented", "tarn repo create"),
        ("DELETE", "lake", "", "", "NotImplemented", "DeleteBucket"),
        ("PUT", "lake", "", "versioning", "NotImplemented", "PutBucketVersioning"),
        ("POST", "lake", "", "", "NotImplemented", "PostObject"),
        ("POST", "lake", "main/a", "", "MethodNotAllowed", "POST"),
        ("PATCH", "lake", "main/a", "", "MethodNotAllowed", "PATCH"),
        ("OPTIONS", "lake", "", "", "MethodNotAllowed", "OPTIONS"),
        ("PUT", "", "", "", "MethodNotAllowed", "PUT"),
        ("PUT", "lake", "main/a", "partNumber=1", "InvalidArgument", "uploadId"),
        ("PUT", "lake", "main/a", "uploadId=x", "InvalidArgument", "partNumber"),
        ("GET", "lake", "", "list-type=3", "InvalidArgument", "list-type"),
    ],
)
def test_what_is_not_offered_is_named(
    method: str, bucket: str, key: str, query: str, code: str, word: str
) -> None:
    with pytest.raises(S3Error) as caught:
        route(method, Address(bucket, key), parse_query(query.encode()), Headers([]))
    assert caught.value.code == code
    assert word in caught.value.message


def test_every_operation_has_an_action_a_resource_and_a_function() -> None:
    for operation in Operation:
        assert ACTIONS[operation] is not None
        assert operation in _RESOURCES
        assert operation in OPERATIONS
    assert [name for name, resource in _RESOURCES.items() if resource is None] == [
        Operation.DELETE_OBJECTS
    ]
