"""Encodes the limits of a repository or user as a KV value, and decodes them (`protos/tarn_proto/store/v1`)."""

from __future__ import annotations

from dataclasses import asdict

from tarn.core.quota import Limits, Quota, parse_kind
from tarn.kv.keys import InstallationKeys, key_error
from tarn.kv.records import parse_record
from tarn_proto.store.v1 import quotas_pb2 as pb

__all__ = ["decode_quota", "encode_limits"]


def encode_limits(limits: Limits) -> bytes:
    """Encodes limits as a KV value."""
    return pb.QuotaRecord(**asdict(limits)).SerializeToString(deterministic=True)


def decode_quota(key: bytes, value: bytes) -> Quota:
    """Decodes a row of the quotas.

    Raises:
        TarnError: CORRUPT: the value cannot be parsed, or the key names no repository or user.
    """
    record = parse_record(pb.QuotaRecord(), value)
    kind, slash, name = (
        key[len(InstallationKeys.QUOTAS) :].decode("utf-8", "replace").partition("/")
    )
    if not slash:
        raise key_error(key, "quota")
    limits = Limits(
        staged_objects=record.staged_objects,
        staged_bytes=record.staged_bytes,
        branches=record.branches,
        uploads=record.uploads,
        requests_per_second=record.requests_per_second,
        bytes_per_second=record.bytes_per_second,
    )
    return Quota(parse_kind(kind), name, limits)
