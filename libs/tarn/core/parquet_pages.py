"""The page headers of a Parquet file: what a reader will decompress and decode, whatever the footer says.

Arrow takes memory by the page headers: as many bytes as a header says that its page has, and as many values. The
footer repeats these numbers, but nothing compares them. So this module walks over the headers (Thrift's compact
protocol). It refuses what no writer of Tarn's files writes, because a second parser must never understand a file in
another way than the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["DELTA_STRINGS", "Chunk", "Page", "chunk_of"]

_INDICES: Final = (2, 8)
"""`PLAIN_DICTIONARY` and `RLE_DICTIONARY`: each value of a page is an index into the dictionary."""
DELTA_STRINGS: Final = 7
"""`DELTA_BYTE_ARRAY`: a value repeats any number of the first bytes of the one before it."""

_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
_BODY_OF = {_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}
"""The field of a page header that describes a page of a type, by type."""
_ENCODING_OF = {_DATA: 2, _DICTIONARY: 2, _DATA_2: 4}
_TRUE, _FALSE, _BYTE, _I32, _I64, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 5, 6, 7, 8, 12
_DEPTH_MAX = 4
_PAGES_MAX = 1 << 16

Struct = dict[int, "int | Struct | None"]
"""Fields of a Thrift structure, by id. Values that are not used are None."""


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
    """

    dictionary: Page | None
    data: Sequence[Page]
    values: int
    indices: int
    plain_bytes: int
    size_bytes: int


def chunk_of(body: memoryview, about: pq.ColumnChunkMetaData) -> Chunk:
    """Returns the pages that Arrow reads for a column chunk.

    Raises:
        ValueError: the headers cannot be read, or are not of a kind that Tarn writes.
    """
    at = about.data_page_offset
    first = about.dictionary_page_offset
    if first is not None and 0 < first < at:
        at = first
    codec = "" if about.compression == "UNCOMPRESSED" else about.compression.lower()
    dictionary: Page | None = None
    data: list[Page] = []
    left = about.num_values
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
    return Chunk(dictionary, data, about.num_values, indices, plain, size)


def _page(body: memoryview, at: int, codec: str) -> tuple[int, Page]:
    """Returns the type of the page whose header begins at a place, and the page."""
    header, start = _struct(body, at, 0)
    kind = _number(header, 1)
    if kind not in _BODY_OF:
        raise ValueError(f"a page is of type {kind}")
    size, packed = _number(header, 2), _number(header, 3)
    about = header.get(_BODY_OF[kind])
    if not isinstance(about, dict):
        raise ValueError("a page header has no description")
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
    value = fields.get(field)
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ValueError(f"a page header has {value!r} in field {field}")
    return value


def _varint(body: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of a page header is too long")


def _struct(body: memoryview, at: int, depth: int) -> tuple[Struct, int]:
    """Reads a structure; returns its fields, and where it ends."""
    if depth > _DEPTH_MAX:
        raise ValueError("a page header is too deep")
    fields: Struct = {}
    field = 0
    try:
        while byte := body[at]:
            at += 1
            kind, delta = byte & 15, byte >> 4
            if not delta:
                raise ValueError("a page header has its fields out of order")
            field += delta
            value: int | Struct | None = None
            if kind in (_I32, _I64):
                number = body[at]
                at += 1
                if number > 127:  # most numbers have one byte
                    number, at = _varint(body, at - 1)
                # A reader takes a field of another type for absent; so does `_number`.
                value = (number >> 1) ^ -(number & 1) if kind == _I32 else None
            elif kind == _STRUCT:
                value, at = _struct(body, at, depth + 1)
            elif kind == _BINARY:
                length, at = _varint(body, at)
                at += length
            elif kind in (_TRUE, _FALSE):
                value = kind == _TRUE
            elif kind == _DOUBLE:
                at += 8
            elif kind == _BYTE:
                at += 1
            else:
                raise ValueError(f"a page header has a field of type {kind}")
            fields[field] = value
    except IndexError:
        raise ValueError("a page header ends behind the file") from None
    return fields, at + 1
