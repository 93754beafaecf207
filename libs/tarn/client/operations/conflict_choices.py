"""Who wins the conflicts of a merge, as the rpcs take it."""

from __future__ import annotations

from collections.abc import Sequence

from tarn.client.values import Choice, Side
from tarn_proto.graveler.v1 import merge_service_pb2

__all__ = ["choices_to_wire", "side_to_wire"]


def choices_to_wire(choices: Sequence[Choice]) -> list[merge_service_pb2.ConflictChoice]:
    """Returns the choices, in their order: the first pattern that matches a path decides."""
    return [
        merge_service_pb2.ConflictChoice(pattern=pattern, side=side_to_wire(side))
        for pattern, side in choices
    ]


def side_to_wire(side: Side | None) -> merge_service_pb2.MergeSide:
    """Returns a side; None: no side wins, and the conflict stays one."""
    return merge_service_pb2.MERGE_SIDE_UNSPECIFIED if side is None else side.value
