"""A file in which a fuzzing process leaves each input before it tries it, so that a fatal input is known."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Final

__all__ = ["Mailbox"]

_HEAD: Final = struct.Struct("<QQ")


class Mailbox:
    """A file that both processes map: the number of inputs, and the last input.

    Args:
        path: path of the file.
        bytes_max: length of the longest input; 0 opens an existing mailbox.
    """

    def __init__(self, path: Path, bytes_max: int = 0) -> None:
        if bytes_max:
            path.write_bytes(bytes(_HEAD.size + bytes_max))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def put(self, data: bytes) -> None:
        """Stores the next input."""
        count, _ = _HEAD.unpack_from(self._map)
        self._map[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._map, 0, count + 1, len(data))

    @property
    def count(self) -> int:
        """Number of inputs so far."""
        return int(_HEAD.unpack_from(self._map)[0])

    @property
    def last(self) -> bytes:
        """The last input."""
        _, size = _HEAD.unpack_from(self._map)
        return bytes(self._map[_HEAD.size : _HEAD.size + size])

    def close(self) -> None:
        """Unmaps the file."""
        self._map.close()
