"""Values of the KV: any bytes are either refused as damaged or are a record that can be written again."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.fuzz.targets.refusals import corrupt_only
from tests.support.fuzz.target import PropertyError, Target

from tarn.core.errors import TarnError
from tarn.kv import (
    auth_records,
    collection_records,
    compaction_records,
    drop_records,
    records,
    rules_records,
    task_records,
)
from tarn.kv.namespace_records import decode_namespace, encode_namespace

__all__ = ["TARGET"]


def _encode_bucket(found: records.Repository | records.BucketView) -> bytes:
    if isinstance(found, records.BucketView):
        return records.encode_bucket_view(found)
    return records.encode_repository(found)


_CODECS: tuple[tuple[str, Callable[[bytes], object], Callable[..., bytes]], ...] = (
    ("branch", records.decode_branch, records.encode_branch),
    ("bucket", records.decode_bucket, _encode_bucket),
    ("tag", records.decode_tag, records.encode_tag),
    ("ref name", records.decode_ref_name, records.encode_ref_name),
    ("namespace", decode_namespace, encode_namespace),
    ("head change", records.decode_head_change, records.encode_head_change),
    ("collection", collection_records.decode_collection, collection_records.encode_collection),
    ("erased address", collection_records.decode_erased, collection_records.encode_erased),
    ("expiry", collection_records.decode_expiry, collection_records.encode_expiry),
    ("pause", compaction_records.decode_pause, compaction_records.encode_pause),
    ("task", task_records.decode_task, task_records.encode_task),
    ("drop", drop_records.decode_drop, drop_records.encode_drop),
    ("settings", rules_records.decode_settings, rules_records.encode_settings),
    ("user", auth_records.decode_user, auth_records.encode_user),
    ("credential", auth_records.decode_credential, auth_records.encode_credential),
    ("session key", auth_records.decode_session_key, auth_records.encode_session_key),
    ("setup", auth_records.decode_setup, auth_records.encode_setup),
)


def _check(data: bytes) -> str:
    words = []
    for name, decode, encode in _CODECS:
        try:
            record = corrupt_only(lambda decode=decode: decode(data))  # type: ignore[misc]  # a default
        except TarnError:
            continue
        if decode(encode(record)) != record:
            raise PropertyError(f"another {name} comes back than {record}")
        words.append(name)
    return " ".join(words)


def _field(rng: random.Random, data: bytes) -> bytes:
    """Adds a field of the wire format: a number, some bytes, or a nested group."""
    number, kind = rng.randint(1, 12), rng.randrange(4)
    if kind == 0:
        value = rng.choice((b"\0", b"\1", b"\xff" * 9 + b"\1", b"\xff\xff\xff\xff\x0f"))
        return data + bytes([number << 3]) + value
    if kind == 1:
        text = rng.choice((b"", b"a", b"\xff", "é".encode(), rng.randbytes(16)))
        return data + bytes([number << 3 | 2, len(text)]) + text
    if kind == 2:
        inner = data[:120]
        return bytes([number << 3 | 2, len(inner)]) + inner
    depth = rng.choice((1, 99, 101, 5000))
    return data + bytes([number << 3 | 3]) * depth + bytes([number << 3 | 4]) * depth


TARGET = Target(
    "records",
    _check,
    refusals=(TarnError,),
    traced=(
        "tarn.kv.records",
        "tarn.kv.auth_records",
        "tarn.kv.collection_records",
        "tarn.kv.compaction_records",
        "tarn.kv.task_records",
        "tarn.core.branch",
    ),
    mutations=(_field,),
    tokens=(b"\x0a\x00", b"\x12\x00", b"\x1a\x00"),
    input_bytes_max=8192,
    share=0.25,
)
