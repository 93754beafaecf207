from __future__ import annotations

import pytest

from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.requests.address import (
    Address,
    RefPath,
    object_url,
    parse_address,
    parse_copy_source,
    split_key,
)
from tarn_gateway.s3error import S3Error

DOMAINS = ("s3.tarn.test", "eu.s3.tarn.test")


@pytest.mark.parametrize(
    ("host", "path", "address"),
    [
        ("h", b"/", Address("", "")),
        ("h", b"/repo", Address("repo", "")),
        ("h", b"/repo/", Address("repo", "")),
        ("h", b"/repo/main/a/b", Address("repo", "main/a/b")),
        ("h", b"/repo/main/", Address("repo", "main/")),
        ("h", b"/repo/main//a/../b", Address("repo", "main//a/../b")),
        ("h", b"/repo/a%20b%2Bc+d%2Fe", Address("repo", "a b+c+d/e")),
        ("h", b"/repo/%2541", Address("repo", "%41")),
        ("h", b"/repo/%C3%A9", Address("repo", "é")),
        ("h", b"/repo/100%", Address("repo", "100%")),
        ("s3.tarn.test", b"/repo/k", Address("repo", "k")),
        ("S3.Tarn.Test:8000", b"/repo/k", Address("repo", "k")),
        ("repo.s3.tarn.test", b"/k", Address("repo", "k")),
        ("repo.s3.tarn.test:8000", b"/", Address("repo", "")),
        ("repo.eu.s3.tarn.test", b"/k", Address("repo", "k")),
        ("eu.s3.tarn.test", b"/repo/k", Address("repo", "k")),
        ("evils3.tarn.test", b"/repo/k", Address("repo", "k")),
        ("127.0.0.1:8000", b"/repo/k", Address("repo", "k")),
        ("[::1]:8000", b"/repo/k", Address("repo", "k")),
    ],
)
def test_bucket_and_key(host: str, path: bytes, address: Address) -> None:
    assert parse_address(host, path, DOMAINS) == address


@pytest.mark.parametrize("path", [b"/repo/%FF", b"/%C3/k", b"/repo/a%00b", b"/repo/%ED%A0%80"])
def test_bytes_that_are_not_utf8_are_refused(path: bytes) -> None:
    with pytest.raises(S3Error, match="InvalidURI"):
        parse_address("h", path)


def test_the_longest_key_is_a_full_path_behind_a_full_ref() -> None:
    longest = b"/repo/" + b"r" * 128 + b"/" + b"p" * 1024
    assert parse_address("h", longest).bucket == "repo"
    with pytest.raises(S3Error, match="KeyTooLongError"):
        parse_address("h", longest + b"p")


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("main", RefPath("main", "", slash=False)),
        ("main/", RefPath("main", "", slash=True)),
        ("main/a/b", RefPath("main", "a/b", slash=True)),
        ("main~2//a", RefPath("main~2", "/a", slash=True)),
        ("main@{2026-11-01T00:00:00Z}/a", RefPath("main@{2026-11-01T00:00:00Z}", "a", slash=True)),
    ],
)
def test_ref_and_path(key: str, parts: RefPath) -> None:
    assert split_key(key) == parts


def test_a_key_without_ref_is_refused() -> None:
    for key in ("", "/a"):
        with pytest.raises(S3Error, match="InvalidArgument"):
            split_key(key)


@pytest.mark.parametrize(
    "value", ["repo/main/a%20b", "/repo/main/a b", "/repo/main/a%20b?versionId=null"]
)
def test_copy_source(value: str) -> None:
    assert parse_copy_source(value) == Address("repo", "main/a b")


def test_copy_source_in_utf8() -> None:
    raw = "repo/main/é".encode().decode("latin-1")
    assert parse_copy_source(raw).key == "main/é"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("repo", "InvalidArgument"),
        ("repo/", "InvalidArgument"),
        ("", "InvalidArgument"),
        ("repo/k?versionId=7", "NotImplemented"),
        ("repo/%FF", "InvalidURI"),
    ],
)
def test_bad_copy_source(value: str, code: str) -> None:
    with pytest.raises(S3Error) as caught:
        parse_copy_source(value)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "value",
    ["repo/%ZZ", "100%/foo/bar", "repo/%A/bar", "repo/%G1/", "%", "repo/%1", "repo/%C3%"],
)
def test_a_percent_sign_of_a_copy_source_encodes_something(value: str) -> None:
    with pytest.raises(S3Error, match="InvalidArgument: Invalid copy source encoding") as caught:
        parse_copy_source(value)
    assert caught.value.extra == {"ArgumentName": "x-amz-copy-source"}


def test_an_encoded_percent_sign_is_one() -> None:
    assert parse_copy_source("repo/main/100%25%32%35").key == "main/100%25"


@pytest.mark.parametrize(
    ("host", "path", "expected"),
    [
        ("s3.test:8000", b"/lake/main/a%20b", "http://s3.test:8000/lake/main/a%20b"),
        ("lake.s3.test", b"/main/a%20b", "http://lake.s3.test/main/a%20b"),
        ("lake.example", b"/lake/main/a%20b", "http://lake.example/lake/main/a%20b"),
        ("s3.test", b"/lake", "http://s3.test/lake/main/a%20b"),
        ("lake.example", b"/lake", "http://lake.example/lake/main/a%20b"),
        ("LAKE.s3.test", b"/", "http://LAKE.s3.test/main/a%20b"),
    ],
)
def test_the_url_of_an_object_is_in_the_style_of_the_request(
    host: str, path: bytes, expected: str
) -> None:
    request = Request("POST", path, b"", Headers([("host", host)]), BodyReader(0))
    assert object_url(request, Address("lake", "main/a b")) == expected
