"""Maps namespaces and blocks to S3: `s3://<bucket>/<name>/<name>` is a bucket and a key prefix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tarn.block.keys import PATH_BYTES_MAX, check_path, parse_namespace
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["OWN", "RESERVED", "S3Namespace", "ObjectKey", "namespace_of", "object_key_of"]

OWN: Final = ".tarn/"
"""Prefix of the driver's own keys, below the namespace; `check_path` allows no block path that begins so."""
RESERVED: Final = ("_tarn", "data")
"""First segments of the paths of all blocks."""
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class S3Namespace:
    """The location of a namespace.

    Attributes:
        bucket: its bucket.
        root: the prefix of its keys: empty, or ending in `/`.
    """

    bucket: str
    root: str

    def own(self, name: str) -> ObjectKey:
        """Returns a key reserved for the driver."""
        return ObjectKey(self.bucket, self.root + OWN + name)


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """The bucket and key of an object."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def namespace_of(namespace: str) -> S3Namespace:
    """Returns the location of a namespace.

    Raises:
        TarnError: INVALID if it is not `s3://` followed by safe names, or contains a segment with which block
            paths begin: its blocks could then be listed among those of another namespace.
    """
    bucket, *names = parse_namespace(namespace, "s3")
    taken = set(RESERVED).intersection(names)
    if taken:
        text = f"namespace {namespace} must not have a segment {min(taken)!r}"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, namespace=namespace)
    return S3Namespace(bucket, "".join(f"{name}/" for name in names))


def object_key_of(ns: S3Namespace, path: str) -> ObjectKey:
    """Returns the object key of a block.

    Raises:
        TarnError: INVALID as `check_path`; also for control characters, which XML listings and some
            servers cannot carry, and for a key longer than S3's limit.
    """
    check_path(path)
    key = ns.root + path
    if _CONTROL.search(path):
        text = f"block path {path[:80]!a} has a control character"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    if len(key.encode()) > PATH_BYTES_MAX:
        text = f"the key of block {path[:80]} is longer than {PATH_BYTES_MAX} bytes"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    return ObjectKey(ns.bucket, key)
