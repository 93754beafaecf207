"""The messages between a replica and its heavy process: JSON objects, each preceded by its length.

Down:   the settings, once; then `{"id", "build", "request_id"}` and `{"id", "cancel"}`.
Up:     `{"ready"}` or `{"error"}`, once; then `{"id", "result"}` or `{"id", "error"}` for each build.

Both ends are the same program, so there is no version.
"""

from __future__ import annotations

import asyncio
import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from tarn.block.committed import BuildResult
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId
from tarn.core.listing.changed_paths import ChangedPaths
from tarn.core.listing.spans import PathSpan
from tarn.kv.port import Partition, PartitionKind
from tarn_graveler.branch.building import BuildOrder

__all__ = [
    "Message",
    "error_of",
    "frame_of",
    "order_of",
    "read_message",
    "result_of",
    "said_error",
    "said_order",
    "said_result",
]

Message = dict[str, Any]

_LENGTH = struct.Struct(">I")
_BYTES_MAX = 64 << 20
"""Greatest length of a message; far more than the tokens of a branch, the rows of an order (1,000 of 12 KiB), or the
paths of the ranges of a build need."""


def frame_of(message: Message) -> bytes:
    """Encodes a message with its length."""
    body = json.dumps(message).encode()
    assert len(body) <= _BYTES_MAX, "a branch has a bounded number of tokens"
    return _LENGTH.pack(len(body)) + body


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """Reads the next message; None when the other end has closed.

    Raises:
        ValueError: the other end does not follow this format.
    """
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > _BYTES_MAX:
            raise ValueError(f"the message has {length} bytes, which is too long")
        message = json.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    if not isinstance(message, dict):
        raise ValueError("the message is not a JSON object")
    return message


def said_order(order: BuildOrder) -> Message:
    """Encodes an order."""
    tokens = [_said_partition(token) for token in order.tokens]
    said: Message = {"namespace": order.namespace, "base": order.base, "tokens": tokens}
    if order.head is not None:
        said["head"] = order.head
    if order.reset is not None:
        said["reset"] = [order.reset.start, order.reset.end]
    if not order.counts_changes:
        said["uncounted"] = True
    if order.finely:
        said["finely"] = True
    if order.rows:
        said["rows"] = [[path, b64encode(value).decode()] for path, value in order.rows]
    if order.commits is not None:
        said["commits"] = _said_partition(order.commits)
    return said


def _said_partition(partition: Partition) -> list[str | int]:
    return [partition.name, partition.kind.value, partition.buckets]


def _partition_of(said: Sequence[Any]) -> Partition:
    name, kind, buckets = said
    return Partition(str(name), PartitionKind(kind), int(buckets))


def order_of(said: Message) -> BuildOrder:
    """Decodes an order."""
    return BuildOrder(
        str(said["namespace"]),
        MetarangeId(said["base"]),
        tuple(map(_partition_of, said["tokens"])),
        MetarangeId(said["head"]) if "head" in said else None,
        PathSpan(*said["reset"]) if "reset" in said else None,
        "uncounted" not in said,
        "finely" in said,
        rows=tuple((str(path), b64decode(value)) for path, value in said.get("rows", ())),
        commits=_partition_of(said["commits"]) if "commits" in said else None,
    )


def said_result(result: BuildResult) -> Message:
    """Encodes a result."""
    said = {each.name: getattr(result, each.name) for each in fields(result)}
    return said | {"changed_paths": b64encode(result.changed_paths.encode()).decode()}


def result_of(said: Message) -> BuildResult:
    """Decodes a result."""
    try:
        paths = ChangedPaths.decode(b64decode(said["changed_paths"]))
    except TarnError as error:
        raise ValueError(error.message) from error
    return BuildResult(**(said | {"changed_paths": paths, "made": tuple(said["made"])}))


def said_error(error: TarnError) -> Message:
    """Encodes an error, without class and traceback."""
    return {
        "kind": error.kind.value,
        "reason": error.reason.value,
        "message": error.message,
        "metadata": error.metadata,
    }


def error_of(said: Message) -> TarnError:
    """Decodes an error."""
    error = TarnError(Kind(said["kind"]), Reason(said["reason"]), str(said["message"]))
    error.metadata = dict(said["metadata"])  # not as keywords: the names are arbitrary
    return error
