"""Encodes the pause of compactions as a KV value, and decodes it (`protos/tarn_proto/store/v1/compaction.proto`)."""

from __future__ import annotations

from tarn.core.compaction_pause import CompactionPause
from tarn.kv.records import parse_record
from tarn_proto.store.v1 import compaction_pb2 as pb

__all__ = ["decode_pause", "encode_pause"]


def encode_pause(pause: CompactionPause) -> bytes:
    """Encodes a pause as a KV value."""
    record = pb.CompactionPauseRecord(
        user_id=pause.user_id,
        time_us=pause.time_us,
        end_time_us=pause.end_us,
        is_resumed=pause.is_resumed,
    )
    return record.SerializeToString(deterministic=True)


def decode_pause(value: bytes) -> CompactionPause:
    """Decodes a pause.

    Raises:
        TarnError: CORRUPT: the value cannot be parsed.
    """
    record = parse_record(pb.CompactionPauseRecord(), value)
    return CompactionPause(record.user_id, record.time_us, record.end_time_us, record.is_resumed)
