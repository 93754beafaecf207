"""Lengths of the texts of a Parquet page, read without making the texts.

Two encodings make much of little: an index stands for a text of a dictionary, and a delta text repeats the beginning of
the one before it. Their lengths are in the page, so the size of what decoding makes is known before.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from tarn.core.parquet_pages import Page

__all__ = ["delta_bytes", "longest_text"]

_LENGTH: Final = struct.Struct("<I")
_MINIBLOCK_VALUES_MAX: Final = 4096
_MINIBLOCKS_MAX: Final = 64
_WIDTH_MAX: Final = 32


def longest_text(body: memoryview, page: Page) -> int:
    """Returns the length of the longest text of a dictionary.

    Raises:
        ValueError: it cannot be read.
    """
    text = page.data(body)
    longest = at = 0
    unpack = _LENGTH.unpack_from
    try:
        for _ in range(page.values):
            (length,) = unpack(text, at)
            at += 4 + length
            if length > longest:  # noqa: PLR1730 - the hot loop of large dictionaries
                longest = length
    except struct.error:
        raise ValueError("a dictionary is cut off") from None
    return longest


def delta_bytes(body: memoryview, page: Page) -> int:
    """Returns a bound of the bytes of a page of delta texts: those that are repeated, and the size of the page.

    The page must have no levels: each of its values is a text.

    Raises:
        ValueError: it cannot be read.
    """
    data = page.data(body)
    repeated, at = _numbers(data, page.values)
    if repeated.size and int(repeated.min()) < 0:
        raise ValueError("a text repeats a negative number of bytes")
    # The lengths of the rest follow. Arrow takes memory for as many as their header says.
    _, _, count, _, _ = _header(data, at)
    if count != page.values:
        raise ValueError(f"a page of {page.values} texts has {count} lengths")
    return int(repeated.sum(dtype=np.int64)) + page.size_bytes


def _header(data: bytes, at: int) -> tuple[int, int, int, int, int]:
    """Returns values of a block, its miniblocks, the number of values, the first one, and where the blocks begin."""
    block, at = _varint(data, at)
    minis, at = _varint(data, at)
    count, at = _varint(data, at)
    first, at = _varint(data, at)
    if not 0 < minis <= _MINIBLOCKS_MAX or block % minis or (block // minis) % 32:
        raise ValueError(f"lengths come in {minis} parts of blocks of {block}")
    if block // minis > _MINIBLOCK_VALUES_MAX:
        raise ValueError(f"lengths come in blocks of {block}")
    return block, minis, count, _signed(first), at


def _numbers(data: bytes, wanted: int) -> tuple[np.ndarray, int]:
    """Decodes DELTA_BINARY_PACKED numbers; returns them, and where they end.

    Raises:
        ValueError: they cannot be read, or are not as many as wanted.
    """
    block, minis, count, first, at = _header(data, 0)
    if count != wanted:
        raise ValueError(f"a page of {wanted} texts has {count} lengths")
    per_mini = block // minis
    starts: list[int] = []
    widths: list[int] = []
    bases: list[int] = []
    left = count - 1
    end = len(data)
    while left > 0:
        least, at = _varint(data, at)
        base = _signed(least)
        here, at = data[at : at + minis], at + minis
        used = min(minis, -(-left // per_mini))
        for width in here[:used]:
            starts.append(at)
            at += per_mini * width // 8
        widths += here[:used]
        bases += [base] * used
        left -= used * per_mini
        if at > end or len(here) < minis:
            raise ValueError("a page of lengths is cut off")
    if count == 0:
        return np.zeros(0, np.int32), at
    deltas = _unpacked(data, np.array(starts, np.int64), np.array(widths, np.int64), per_mini)
    deltas += np.array(bases, np.int64)[:, None]
    values = np.empty(count, np.int64)
    values[0] = first
    values[1:] = deltas.ravel()[: count - 1]
    return np.cumsum(values).astype(np.int32), at  # a sum beyond 32 bits wraps in every reader


def _unpacked(data: bytes, starts: np.ndarray, widths: np.ndarray, per_mini: int) -> np.ndarray:
    """Unpacks miniblocks, all of one width together; shape (miniblocks, values)."""
    found = np.zeros((len(starts), per_mini), np.int64)
    if widths.size and int(widths.max()) > _WIDTH_MAX:
        raise ValueError(f"a length has {int(widths.max())} bits")
    view = np.frombuffer(data, np.uint8)
    for width in np.unique(widths):
        if not width:
            continue
        rows = np.flatnonzero(widths == width)
        packed = view[starts[rows][:, None] + np.arange(per_mini * int(width) // 8)]
        bits = np.unpackbits(packed, axis=1, bitorder="little").reshape(-1, per_mini, int(width))
        found[rows] = bits @ (1 << np.arange(int(width), dtype=np.int64))
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
    except IndexError:
        raise ValueError("a page of lengths is cut off") from None
    if shift > 35 or value >= 1 << 33:
        raise ValueError("a length is too large")
    return value, at


def _signed(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
