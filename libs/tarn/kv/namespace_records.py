"""Encodes and decodes the rows of storage namespaces: who owns each, and whether its data are to be deleted."""

from __future__ import annotations

from dataclasses import dataclass, field

from tarn.core.ids import RepositoryId
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import Kv
from tarn.kv.records import parse_record
from tarn.kv.register import Register
from tarn.kv.unknown_fields import unknown_of, with_unknown
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = ["Namespace", "decode_namespace", "encode_namespace", "namespace_register"]

_PURGE = (
    *("doom_time_us", "purge_after_us", "purge_begin_us", "purge_end_us"),
    *("purged_count", "purged_bytes"),
)
"""Fields with the same name and the same value in the record."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The owner of a storage namespace.

    Attributes:
        repository_id: the repository under whose id the record of the instance is stored.
        is_final: a repository was published with this namespace, so the namespace stays occupied even after
            the repository is deleted. If False and the instance has no record, its creation failed and the
            namespace is free.
        doom_time_us: when its repository was deleted with its data, Unix microseconds; 0: it was not.
        purge_after_us: from when its data may be deleted.
        purge_begin_us: when their deletion began; 0: it has not. Invariant: not before `purge_after_us`; from then on
            no repository takes the namespace any more.
        purge_end_us: when their deletion was complete; 0: it is not.
        purged_count: number of blocks and files that were deleted; 0 before the end.
        purged_bytes: their bytes.
    """

    repository_id: RepositoryId
    instance_uid: str
    is_final: bool = False
    doom_time_us: int = 0
    purge_after_us: int = 0
    purge_begin_us: int = 0
    purge_end_us: int = 0
    purged_count: int = 0
    purged_bytes: int = 0
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


def namespace_register(
    kv: Kv, keys: InstallationKeys, storage_namespace: str
) -> Register[Namespace | None]:
    """The row of a storage namespace; None if it has no owner."""
    return Register(
        kv,
        keys.graveler,
        keys.namespace(storage_namespace),
        lambda value: None if value is None else decode_namespace(value),
        lambda held: None if held is None else encode_namespace(held),
        f"the row of storage namespace {storage_namespace}",
    )


def encode_namespace(namespace: Namespace) -> bytes:
    """Encodes the owner of a storage namespace as a KV value."""
    record = pb.NamespaceRecord(
        repository_id=namespace.repository_id,
        instance_uid=namespace.instance_uid,
        is_final=namespace.is_final,
        **{name: getattr(namespace, name) for name in _PURGE},
    )
    return with_unknown(record, namespace.unknown_fields).SerializeToString()


def decode_namespace(value: bytes) -> Namespace:
    """Decodes the owner of a storage namespace from a KV value.

    Raises:
        TarnError: CORRUPT.
    """
    record = parse_record(pb.NamespaceRecord(), value)
    return Namespace(
        RepositoryId(record.repository_id),
        record.instance_uid,
        record.is_final,
        **{name: getattr(record, name) for name in _PURGE},
        unknown_fields=unknown_of(record),
    )
