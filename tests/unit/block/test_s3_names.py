"""The keys of the blocks of a namespace."""

from __future__ import annotations

import pytest

from tarn.block.s3.names import ObjectKey, S3Namespace, namespace_of, object_key_of
from tarn.core.errors import Kind, TarnError


def test_namespace_is_a_bucket_and_a_prefix() -> None:
    assert namespace_of("s3://bucket") == S3Namespace("bucket", "")
    assert namespace_of("s3://my.bucket/a/b-1") == S3Namespace("my.bucket", "a/b-1/")
    assert object_key_of(namespace_of("s3://b/a"), "data/x") == ObjectKey("b", "a/data/x")
    assert str(ObjectKey("b", "a/data/x")) == "s3://b/a/data/x"


@pytest.mark.parametrize("namespace", ["s3://b/data", "s3://b/a/_tarn/c", "local://b", "s3://b/a/"])
def test_namespace_inside_of_the_blocks_of_another_is_refused(namespace: str) -> None:
    with pytest.raises(TarnError) as caught:
        namespace_of(namespace)
    assert caught.value.kind is Kind.INVALID


@pytest.mark.parametrize("path", ["data/\n", "data/\x7f", "data/" + "/".join(["x" * 250] * 4)])
def test_path_that_no_key_can_hold_is_refused(path: str) -> None:
    with pytest.raises(TarnError) as caught:
        object_key_of(namespace_of("s3://b/" + "n" * 100), path)
    assert caught.value.kind is Kind.INVALID


def test_own_keys_are_beside_the_blocks_and_no_block_can_have_one() -> None:
    own = namespace_of("s3://b/a").own("uploads/u/id")
    assert own == ObjectKey("b", "a/.tarn/uploads/u/id")
    with pytest.raises(TarnError):
        object_key_of(namespace_of("s3://b/a"), own.key.removeprefix("a/"))
