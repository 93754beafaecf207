"""Converts conditions of writes to messages."""

from __future__ import annotations

from tarn.core.condition import WriteCondition
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

__all__ = ["condition_message"]


def condition_message(condition: WriteCondition) -> pb.WriteCondition | None:
    """The message of a condition. Without a condition None, which leaves the field unset."""
    if condition.if_none_match:
        return pb.WriteCondition(if_none_match=True)
    if condition.if_match:
        return pb.WriteCondition(if_match=condition.if_match)
    return None
