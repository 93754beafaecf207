"""The page headers of a Parquet file: what a reader will decompress and decode, whatever the footer says.

Arrow takes memory by the page headers: as many bytes as a header says that its page has, and as many values. The
footer repeats these numbers, but nothing compares them. So this module walks over the headers. It reads the footer
itself, because pyarrow ends the process if its description of a column is damaged.

It refuses what no writer of Tarn's files writes: a second parser must never understand a file in another way than the
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tarn.core.thrift import Long, Struct, read_struct

__all__ = ["DELTA_STRINGS", "Chunk", "Page", "chunks_of"]

_INDICES: Final = (2, 8)
"""`PLAIN_DICTIONARY` and `RLE_DICTIONARY`: each value of a page is an index into the dictionary."""
DELTA_STRINGS: Final = 7
"""`DELTA_BYTE_ARRAY`: a value repeats any number of the first bytes of the one before it."""

_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
_BODY_OF = {_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}
"""The field of a page header that describes a page of a type, by type."""
_ENCODING_OF = {_DATA: 2, _DICTIONARY: 2, _DATA_2: 4}
_PAGES_MAX = 1 << 16
_CODECS = ("", "snappy", "gzip", None, "brotli", None, "zstd", "lz4_raw")
"""Codecs of pyarrow by their numbers in a footer; empty: not compressed."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page.

    Attributes:
        encoding: of its values, as a number of the format.
        values: number of its values, with nulls.
        size_bytes: its size when it is decompressed.
        start: where its bytes begin in the file.
        end: where they end.
        codec: how they are compressed; empty: not at all.
    """

    encoding: int
    values: int
    size_bytes: int
    start: int
    end: int
    codec: str

    def data(self, body: memoryview) -> bytes:
        """Returns its decompressed bytes.

        Raises:
            ValueError: they cannot be decompressed.
        """
        packed = body[self.start : self.end]
        if not self.codec:
            return bytes(packed)
        try:
            found: bytes = pa.decompress(packed, self.size_bytes, codec=self.codec, asbytes=True)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"a page cannot be decompressed: {error}") from error
        return found


@dataclass(frozen=True, slots=True)
class Chunk:
    """The pages of one column in one row group.

    Attributes:
        dictionary: the page of the dictionary; None if there is none.
        data: all other pages, in order.
        values: number of their values.
        indices: number of the values that are indices into the dictionary.
        plain_bytes: size of the pages whose values are neither indices nor delta texts.
        size_bytes: size of all pages. All sizes are of decompressed pages.
        start: where its pages begin in the file.
        end: where they end.
        least: the least value, as its writer says, in the plain encoding; None: it does not.
        greatest: likewise the greatest one.
    """

    dictionary: Page | None
    data: Sequence[Page]
    values: int
    indices: int
    plain_bytes: int
    size_bytes: int
    start: int
    end: int
    least: bytes | None
    greatest: bytes | None


def chunks_of(body: memoryview, footer: int) -> list[list[Chunk]]:
    """Returns the pages that Arrow reads: of each row group, those of each column.

    Args:
        body: the file.
        footer: the size of its footer, which ends eight bytes before the file.

    Raises:
        ValueError: footer or headers cannot be read, or are not of a kind that Tarn writes.
    """
    at = len(body) - 8 - footer
    if at < 0:
        raise ValueError(f"its footer of {footer} bytes is longer than the file")
    about, _ = read_struct(body[: len(body) - 8], at)
    return [
        [_chunk(body, _struct_in(column, 3)) for column in _list_in(group, 1)]
        for group in _list_in(about, 4)
    ]


def _chunk(body: memoryview, about: Struct) -> Chunk:
    codec_number = _number(about, 4)
    codec = _CODECS[codec_number] if codec_number < len(_CODECS) else None
    if codec is None:
        raise ValueError(f"a column has codec {codec_number}")
    at = _long(about, 9)
    if 11 in about and 0 < (first := _long(about, 11)) < at:
        at = first
    start = at
    values = left = _long(about, 5)
    dictionary: Page | None = None
    data: list[Page] = []
    while left > 0:
        if len(data) == _PAGES_MAX:
            raise ValueError(f"a column has more than {_PAGES_MAX} pages")
        kind, page = _page(body, at, codec)
        if kind != _DICTIONARY:
            data.append(page)
            left -= page.values
        elif dictionary is None and not data:
            dictionary = page
        else:
            raise ValueError("a column has a second dictionary")
        at = page.end
    if left < 0:
        raise ValueError(f"a column has {-left} values more than its footer says")
    indices = plain = 0
    size = 0 if dictionary is None else dictionary.size_bytes
    for page in data:
        size += page.size_bytes
        if page.encoding in _INDICES:
            indices += page.values
        elif page.encoding != DELTA_STRINGS:
            plain += page.size_bytes
    bounds = about.get(12)
    least, greatest = (
        found
        if isinstance(bounds, dict) and isinstance(found := bounds.get(field), bytes)
        else None
        for field in (6, 5)
    )
    return Chunk(dictionary, data, values, indices, plain, size, start, at, least, greatest)


def _page(body: memoryview, at: int, codec: str) -> tuple[int, Page]:
    """Returns the type of the page whose header begins at a place, and the page."""
    header, start = read_struct(body, at)
    kind = _number(header, 1)
    if kind not in _BODY_OF:
        raise ValueError(f"a page is of type {kind}")
    size, packed = _number(header, 2), _number(header, 3)
    about = _struct_in(header, _BODY_OF[kind])
    end = start + packed
    if end > len(body):
        raise ValueError(f"a page of {packed} bytes ends behind the file")
    encoding, values = _number(about, _ENCODING_OF[kind]), _number(about, 1)
    if kind == _DATA_2:
        if encoding == DELTA_STRINGS and (about.get(5) or about.get(6)):
            raise ValueError("a page of texts without nulls has levels")
        codec = codec if about.get(7, True) else ""
    return kind, Page(encoding, values, size, start, end, codec)


def _number(fields: Struct, field: int) -> int:
    """A number of 32 bits. A reader takes a field of another type for absent."""
    value = fields.get(field)
    if not isinstance(value, int) or isinstance(value, Long | bool) or value < 0:
        raise ValueError(f"its metadata has {value!r} in field {field}")
    return value


def _long(fields: Struct, field: int) -> int:
    value = fields.get(field)
    if not isinstance(value, Long) or value < 0:
        raise ValueError(f"its metadata has {value!r} in field {field}")
    return value


def _struct_in(fields: object, field: int) -> Struct:
    value = fields.get(field) if isinstance(fields, dict) else None
    if not isinstance(value, dict):
        raise ValueError(f"its metadata has no structure in field {field}")
    return value


def _list_in(fields: object, field: int) -> Sequence[object]:
    value = fields.get(field) if isinstance(fields, dict) else None
    if not isinstance(value, list):
        raise ValueError(f"its metadata has no list in field {field}")
    return value
