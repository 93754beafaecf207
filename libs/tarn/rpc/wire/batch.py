"""A message whose only field is `repeated M = 1`, assembled from encoded Ms.

Protobuf's own `extend` copies every M and gives no sizes; this encodes each M once and so knows when a
batch is full. The bytes are the same: tag, length, message (protobuf encoding guide, "Message
Structure").
"""

from __future__ import annotations

__all__ = ["BATCH_BYTES_MAX", "BATCH_OPERATIONS_MAX", "UNCOUNTED_BYTES_MAX", "Batch", "refusal_of"]

BATCH_OPERATIONS_MAX = 256
BATCH_BYTES_MAX = 1024 * 1024
"""Maximum size of a batch, and of one operation; a quarter of a server's limit on messages."""

_HEADS_BYTES_MAX = BATCH_OPERATIONS_MAX * 4
"""Tags and lengths of a full batch, which `BATCH_BYTES_MAX` does not count."""

UNCOUNTED_BYTES_MAX = 128 * 1024
"""A batch up to this size is parsed before its operations are counted: they are at most half as many as its bytes,
which costs protobuf a millisecond or two. A count beforehand would cost each batch of hot operations more."""

_TAG = b"\x0a"  # field 1, wire type 2 (length-delimited)


class Batch:
    """Encoded messages that are joined into one."""

    __slots__ = ("_parts", "count", "size_bytes")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.count = 0
        self.size_bytes = 0

    def has_room(self, encoded: bytes) -> bool:
        """Returns whether another message fits; an empty batch accepts every message up to the limit."""
        if not self.count:
            return True
        fits = self.size_bytes + len(encoded) <= BATCH_BYTES_MAX
        return fits and self.count < BATCH_OPERATIONS_MAX

    def add(self, encoded: bytes) -> None:
        """Appends an encoded message."""
        self._parts += (_TAG, _varint(len(encoded)), encoded)
        self.count += 1
        self.size_bytes += len(encoded)

    def encode(self) -> bytes:
        """Returns the batch as one encoded message."""
        return b"".join(self._parts)


def refusal_of(encoded: bytes) -> str:
    """Returns why a batch that a client sent must not be parsed; empty if it may be.

    A batch that is small, or no batch at all, is left to the parser and to a count of what it found.
    """
    size = len(encoded)
    if size > BATCH_BYTES_MAX + _HEADS_BYTES_MAX:
        return f"a message of {size} bytes is larger than {BATCH_BYTES_MAX}"
    if size > UNCOUNTED_BYTES_MAX and _has_more(encoded, BATCH_OPERATIONS_MAX):
        return f"a message is no batch of at most {BATCH_OPERATIONS_MAX} operations"
    return ""


def _has_more(encoded: bytes, fields_max: int) -> bool:
    """Returns whether a message has more fields than that, or is nothing that `Batch` encodes."""
    at, end = 0, len(encoded)
    for _ in range(fields_max):
        if at >= end:
            return False
        if encoded[at] != _TAG[0]:
            return True
        length = shift = 0
        while True:
            at += 1
            if at >= end or shift > 28:
                return True
            length |= (encoded[at] & 0x7F) << shift
            if encoded[at] < 0x80:
                break
            shift += 7
        at += 1 + length
    return at < end


def _varint(number: int) -> bytes:
    if number < 0x80:
        return number.to_bytes(1, "little")
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
