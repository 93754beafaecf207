"""Encodes collection records as KV values, and decodes them (`protos/tarn_proto/store/v1/collection.proto`)."""

from __future__ import annotations

from dataclasses import fields

from tarn.core.collection import NEVER, Collection, Phase, Totals
from tarn.core.erasure import ErasedAddress
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.expiry import Expiry
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Kv
from tarn.kv.records import parse_record
from tarn.kv.register import Register
from tarn.kv.unknown_fields import unknown_of, with_unknown
from tarn_proto.store.v1 import collection_pb2 as pb

__all__ = [
    "collection_register",
    "decode_collection",
    "decode_expiry",
    "encode_collection",
    "encode_expiry",
]

_ID_BYTES = 16
_PLAIN = (
    "run_id",
    "begin_us",
    "lease_until_us",
    "cutoff_us",
    "mark_run_id",
    "mark_end_us",
    "mark_cutoff_us",
    "hold_until_us",
    "sweep_count",
    "fence_count",
    "batch_until_us",
    "erase_run_id",
)
"""Fields with the same name and the same value in the record."""

_TOTALS = tuple(each.name for each in fields(Totals) if each.name != "unknown_fields")


def collection_register(kv: Kv, keys: RepositoryKeys, repository: str) -> Register[Collection]:
    """The collection record of a repository, `NEVER` before the first one. `repository` is its name, for errors."""
    return Register(
        kv,
        keys.refs,
        keys.COLLECTION,
        lambda value: NEVER if value is None else decode_collection(value),
        encode_collection,
        f"the collection record of repository {repository}",
    )


def encode_collection(collection: Collection) -> bytes:
    """Encodes a collection record as a KV value."""
    record = pb.CollectionRecord(
        phase=collection.phase.value,
        batch=b"".join(sorted(collection.batch)),
        **{name: getattr(collection, name) for name in _PLAIN},
    )
    for name in ("last_mark", "last_sweep"):
        totals = getattr(collection, name)
        if totals is not None:
            counts = {each: getattr(totals, each) for each in _TOTALS}
            message = with_unknown(pb.CollectionTotalsRecord(**counts), totals.unknown_fields)
            getattr(record, name).CopyFrom(message)
    return with_unknown(record, collection.unknown_fields).SerializeToString(deterministic=True)


def decode_collection(value: bytes) -> Collection:
    """Decodes a collection record from a KV value.

    Raises:
        TarnError: CORRUPT: the value cannot be parsed, or has an unknown phase or a damaged batch.
    """
    record = parse_record(pb.CollectionRecord(), value)
    if len(record.batch) % _ID_BYTES or record.phase not in set(Phase):
        text = f"collection record: phase {record.phase!r}, batch of {len(record.batch)} bytes"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
    batch = (record.batch[at : at + _ID_BYTES] for at in range(0, len(record.batch), _ID_BYTES))
    return Collection(
        phase=Phase(record.phase),
        batch=frozenset(batch),
        last_mark=_totals(record.last_mark) if record.HasField("last_mark") else None,
        last_sweep=_totals(record.last_sweep) if record.HasField("last_sweep") else None,
        unknown_fields=unknown_of(record),
        **{name: getattr(record, name) for name in _PLAIN},
    )


def _totals(record: pb.CollectionTotalsRecord) -> Totals:
    counts = {each: getattr(record, each) for each in _TOTALS}
    return Totals(**counts, unknown_fields=unknown_of(record))


def encode_erased(erased: ErasedAddress) -> bytes:
    """Encodes the row of an erased address as a KV value."""
    record = pb.ErasedAddressRecord(plan_id=erased.plan_id, erase_time_us=erased.time_us)
    return record.SerializeToString()


def decode_erased(value: bytes) -> ErasedAddress:
    """Decodes the row of an erased address.

    Raises:
        TarnError: CORRUPT.
    """
    record = parse_record(pb.ErasedAddressRecord(), value)
    return ErasedAddress(record.plan_id, record.erase_time_us)


def encode_expiry(expiry: Expiry) -> bytes:
    """Encodes the expiry of a commit as a KV value."""
    record = pb.ExpiredCommitRecord(expire_time_us=expiry.time_us, rule=expiry.rule)
    return record.SerializeToString()


def decode_expiry(value: bytes) -> Expiry:
    """Decodes the expiry of a commit.

    Raises:
        TarnError: CORRUPT.
    """
    record = parse_record(pb.ExpiredCommitRecord(), value)
    return Expiry(record.rule, record.expire_time_us)
