"""The names of collectable blocks as columns: fixed-width keys, their paths, and listed rows.

A name is the only variable part of a path: 16 bytes of an address, 32 bytes of the id of a range or a metarange.
All work on names is done on whole columns, because one Python object per block would cost more than the join.
A path counts as a block's only if the path that its key gives is the same, byte for byte; every other path
is *foreign* and is never collected.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarn.block.port import BlockInfo
from tarn.core.ids import physical_path

__all__ = ["BlockKind", "Bytes", "Listed", "listed_of", "paths_of"]

Bytes = npt.NDArray[np.uint8]
Listed = np.ndarray
"""Rows of `BlockKind.listed_dtype`."""

_HOUR_MS = 3_600_000
_HOURS_MAX = 253_402_300_800_000 // _HOUR_MS
"""First hour of the year 10000, which no path can contain."""

_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_HEX = np.stack([np.repeat(_DIGITS, 16), np.tile(_DIGITS, 16)], axis=1)
"""The two digits of each byte, shape (256, 2)."""
_NIBBLES = np.zeros(256, np.uint8)
_NIBBLES[_DIGITS] = np.arange(16)
"""The value of a digit; other characters give 0 and are found when the path is compared."""


class BlockKind(enum.Enum):
    """The kinds of blocks that a collection may delete. Commits and notes are never deleted."""

    METARANGE = "metarange"
    RANGE = "range"
    DATA = "data"

    @property
    def prefix(self) -> str:
        """The prefix of the paths of this kind."""
        return _PREFIXES[self]

    @property
    def key_bytes(self) -> int:
        """The width of a key."""
        return 16 if self is BlockKind.DATA else 32

    @property
    def listed_dtype(self) -> np.dtype[np.void]:
        """A listed block: key, size in bytes, time in microseconds since the epoch."""
        return np.dtype([("key", "u1", (self.key_bytes,)), ("size", "<i8"), ("mtime", "<i8")])

    @property
    def key_dtype(self) -> np.dtype[np.void]:
        """A key alone: the record of a root."""
        return np.dtype([("key", "u1", (self.key_bytes,))])

    @property
    def path_bytes(self) -> int:
        """The length of a path."""
        return len(self.prefix) + 2 * self.key_bytes + (11 if self is BlockKind.DATA else len(_END))


_PREFIXES = {
    BlockKind.METARANGE: "_tarn/metaranges/",
    BlockKind.RANGE: "_tarn/ranges/",
    BlockKind.DATA: "data/",
}
_END = ".parquet"


def listed_of(kind: BlockKind, infos: Sequence[BlockInfo]) -> Listed:
    """Returns the listed blocks whose paths are of this kind; foreign paths are left out. Keeps the order."""
    width = kind.path_bytes
    fitting = [info for info in infos if len(info.path) == width and info.path.isascii()]
    text = "".join([info.path for info in fitting]).encode("ascii")
    found = np.frombuffer(text, np.uint8).reshape(-1, width)
    start = width - 2 * kind.key_bytes - (0 if kind is BlockKind.DATA else len(_END))
    nibbles = _NIBBLES[found[:, start : start + 2 * kind.key_bytes]]
    listed = np.zeros(len(found), kind.listed_dtype)
    listed["key"] = nibbles[:, 0::2] << 4 | nibbles[:, 1::2]
    listed["size"] = np.fromiter((info.size for info in fitting), np.int64, len(fitting))
    listed["mtime"] = np.fromiter((info.mtime_us for info in fitting), np.int64, len(fitting))
    is_block = (_spelled(kind, listed["key"]) == found).all(axis=1)
    if kind is BlockKind.DATA:
        is_block &= _hours_of(listed["key"]) < _HOURS_MAX
    blocks: Listed = listed[is_block]
    return blocks


def paths_of(kind: BlockKind, keys: Bytes) -> pa.StringArray:
    """Returns the paths of blocks, in the order of the keys."""
    spelled = np.ascontiguousarray(_spelled(kind, keys))
    ends = np.arange(len(keys) + 1, dtype=np.int32) * kind.path_bytes
    return pa.StringArray.from_buffers(len(keys), pa.py_buffer(ends), pa.py_buffer(spelled))


def _spelled(kind: BlockKind, keys: Bytes) -> Bytes:
    """Returns the characters of the paths, shape (keys, `path_bytes`)."""
    spelled = np.empty((len(keys), kind.path_bytes), np.uint8)
    prefix = kind.prefix.encode()
    spelled[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    digits = _HEX[keys].reshape(len(keys), 2 * kind.key_bytes)
    if kind is BlockKind.DATA:
        spelled[:, 5:15] = _hours(keys)
        spelled[:, 15] = ord("/")
        spelled[:, 16:] = digits
    else:
        spelled[:, len(prefix) : -len(_END)] = digits
        spelled[:, -len(_END) :] = np.frombuffer(_END.encode(), np.uint8)
    return spelled


def _hours(keys: Bytes) -> Bytes:
    """Returns the ten digits of each address's hour. An hour that no path can contain gives zeros."""
    hours = _hours_of(keys)
    _, first, place = np.unique(hours, return_index=True, return_inverse=True)
    texts = [
        physical_path(keys[row].tobytes())[5:15].encode() if hours[row] < _HOURS_MAX else b"0" * 10
        for row in first.tolist()
    ]
    return np.frombuffer(b"".join(texts), np.uint8).reshape(-1, 10)[place]


def _hours_of(keys: Bytes) -> npt.NDArray[np.uint64]:
    """Returns the hour of each address since the epoch."""
    padded = np.zeros((len(keys), 8), np.uint8)
    padded[:, 2:] = keys[:, :6]
    hours: npt.NDArray[np.uint64] = padded.view(">u8").ravel() // np.uint64(_HOUR_MS)
    return hours
