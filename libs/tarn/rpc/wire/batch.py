"""A message whose only field is `repeated M = 1`, assembled from encoded Ms.

Protobuf's own `extend` copies every M and gives no sizes; this encodes each M once and so knows when a
batch is full. The bytes are the same: tag, length, message (protobuf encoding guide, "Message
Structure").
"""

from __future__ import annotations

__all__ = ["BATCH_BYTES_MAX", "BATCH_OPERATIONS_MAX", "Batch"]

BATCH_OPERATIONS_MAX = 256
BATCH_BYTES_MAX = 1024 * 1024
"""Maximum size of a batch, and of one operation; a quarter of a server's limit on messages."""

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


def _varint(number: int) -> bytes:
    if number < 0x80:
        return number.to_bytes(1, "little")
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
