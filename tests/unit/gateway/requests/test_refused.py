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
def test_wishes_that_are_not_granted_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(S3Error, match=name) as caught:
        refuse_headers(Headers([("host", "h"), (name, value)]))
    assert caught.value.status == 501
    assert caught.value.extra["Header"] == name


def test_what_every_object_has_anyway_may_be_asked_for() -> None:
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


def test_versions_are_refused_but_for_the_one_that_there_is() -> None:
    with pytest.raises(S3Error, match="NotImplemented") as caught:
        refuse_version(parse_query(b"versionId=abc"))
    assert caught.value.extra["Parameter"] == "versionId"
    refuse_version(parse_query(b"list-type=2&prefix=a&uploads&versionId=null&x-id=PutObject"))
