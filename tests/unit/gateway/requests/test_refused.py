from __future__ import annotations

import pytest

from tarn_gateway.http import Headers
from tarn_gateway.requests.query import parse_query
from tarn_gateway.requests.refused import refuse_headers, refuse_version
from tarn_gateway.s3error import S3Error


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-amz-server-side-encryption", "AES256"),
        ("x-amz-server-side-encryption-customer-key", "k"),
        ("x-amz-copy-source-server-side-encryption-customer-algorithm", "AES256"),
        ("x-amz-storage-class", "GLACIER"),
        ("x-amz-acl", "public-read"),
        ("x-amz-grant-read", "id=1"),
        ("x-amz-object-lock-mode", "GOVERNANCE"),
        ("x-amz-tagging", "a=b"),
        ("x-amz-tagging-directive", "REPLACE"),
        ("x-amz-website-redirect-location", "/"),
        ("x-amz-mfa", "1"),
    ],
)
def test_unsupported_headers_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(S3Error, match=name) as caught:
        refuse_headers(Headers([("host", "h"), (name, value)]))
    assert caught.value.status == 501
    assert caught.value.extra["Header"] == name


def test_headers_that_request_the_default_are_accepted() -> None:
    refuse_headers(
        Headers(
            [
                ("x-amz-storage-class", "STANDARD"),
                ("x-amz-acl", "private"),
                ("x-amz-acl-not-known", "x"),
                ("x-amz-meta-tagging", "x"),
                ("x-amz-checksum-crc32", "x"),
            ]
        )
    )


def test_versions_other_than_null_are_refused() -> None:
    with pytest.raises(S3Error, match="NotImplemented") as caught:
        refuse_version(parse_query(b"versionId=abc"))
    assert caught.value.extra["Parameter"] == "versionId"
    refuse_version(parse_query(b"list-type=2&prefix=a&uploads&versionId=null&x-id=PutObject"))
