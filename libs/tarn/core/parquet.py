"""Reads Parquet files of doubtful origin in bounded memory.

A file of a few kilobytes can hold gigabytes: a dictionary with one long text and a million indices, or a text that
repeats all of the one before it. Arrow decodes what it is asked for in one piece. So each column is judged by its page
headers first (`tarn.core.parquet_pages`), never by the footer alone:

- A column that cannot become large is read at once. What decoding makes is bounded by the sizes of its pages; of
  texts that repeat others, by the lengths in the pages; of indices, by the longest text of the dictionary.
- Any other is read in batches of so few rows that one batch is within the bound, even if each row is the longest text.
  The decoded bytes are counted after each batch.
- Pairs of maps cannot be read by rows, because one row may hold all of them. They are read as indices first, and their
  texts are measured by these.

All errors are ValueError, with the bound and the size. The caller names the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tarn.core.parquet_lengths import delta_bytes, longest_text
from tarn.core.parquet_pages import DELTA_STRINGS, Chunk, Page, chunks_of

__all__ = ["ParquetLimits", "UNREADABLE", "checked_groups", "read_groups", "read_table"]

UNREADABLE: Final = (pa.ArrowException, OSError, ValueError)
"""What reading a damaged file raises."""

_FOOTER_BYTES_MAX: Final = 1 << 20
"""Arrow makes objects of a footer, some ten times its size. Tarn writes a few row groups, so footers of some KiB."""
_ROW_GROUPS_MAX: Final = 1024
_BATCH_ROWS: Final = 8192
_WIDTHS: Final = {
    "BOOLEAN": 1,
    "INT32": 4,
    "INT64": 8,
    "INT96": 12,
    "FLOAT": 4,
    "DOUBLE": 8,
    "BYTE_ARRAY": 4,
}
"""Bytes that Arrow takes for a value beside its text, by physical type."""


@dataclass(frozen=True, slots=True)
class ParquetLimits:
    """Bounds of a file.

    Attributes:
        rows: greatest number of rows.
        size_bytes: greatest size of its decompressed pages, and of the columns that they become. Reading takes at most
            about three times as much.
    """

    rows: int
    size_bytes: int


def read_table(
    body: bytes | pa.Buffer,
    schema: pa.Schema,
    limits: ParquetLimits,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Returns the rows of a file. One thread: callers read several files concurrently.

    Args:
        body: the file.
        schema: of the file.
        limits: its bounds.
        columns: that are wanted, in this order; the others are not decoded. None: all.

    Raises:
        UNREADABLE: it is damaged, has another schema, or exceeds the limits.
    """
    with _open(body, limits) as file:
        if not file.schema_arrow.equals(schema):
            raise ValueError(f"its columns are {file.schema_arrow.names}")
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        plan = _Plan(file, memoryview(body), schema.names, limits)
        found: dict[str, pa.ChunkedArray] = {}
        size = 0
        if plan.at_once:
            table = file.read(columns=plan.at_once, use_threads=False)
            size = table.nbytes
            found = {name: table.column(name) for name in plan.at_once}
        for name in plan.maps:
            plan.check_texts(body, name)
            found[name] = file.read(columns=[name], use_threads=False).column(0)
            size += found[name].nbytes
        for name, rows in plan.by_batches.items():
            pieces = []
            for batch in file.iter_batches(rows, columns=[name], use_threads=False):
                pieces.append(batch.column(0))
                size = plan.counted(size, batch)
            found[name] = pa.chunked_array(pieces, schema.field(name).type)
        if size > limits.size_bytes:
            raise _too_many(limits)
        if len({len(column) for column in found.values()}) > 1:
            raise ValueError("its columns have different numbers of rows")
        return pa.Table.from_arrays([found[name] for name in schema.names], schema=schema)


def checked_groups(
    body: bytes | pa.Buffer, schema: pa.Schema, limits: ParquetLimits, columns: Sequence[str]
) -> list[list[Chunk]] | None:
    """Returns the pages of each row group of a file, of all columns in their order, without decoding them.

    Args:
        body: as in `read_table`.
        schema: likewise.
        limits: likewise.
        columns: that are to be read with `read_groups`, whose texts or values are in each row.

    Returns:
        None: a column may become so large that it has to be read with `read_table`.

    Raises:
        UNREADABLE: as `read_table`.
    """
    with _open(body, limits) as file:
        if not file.schema_arrow.equals(schema):
            raise ValueError(f"its columns are {file.schema_arrow.names}")
        plan = _Plan(file, memoryview(body), columns, limits)
        return plan.groups if len(plan.at_once) == len(columns) else None


def read_groups(
    body: bytes | pa.Buffer, schema: pa.Schema, columns: Sequence[str], groups: Sequence[int]
) -> pa.Table:
    """Returns some row groups of a file whose bytes `checked_groups` has checked. One thread.

    Args:
        body: the file. Bytes of other row groups may be anything.
        schema: of the file.
        columns: as they were checked, or some of them.
        groups: numbers of the row groups, from 0.

    Raises:
        UNREADABLE: it is damaged.
    """
    with pq.ParquetFile(pa.BufferReader(body)) as file:
        table = file.read_row_groups(groups, columns=list(columns), use_threads=False)
    return table.select(columns).cast(pa.schema([schema.field(name) for name in columns]))


def _open(body: bytes | pa.Buffer, limits: ParquetLimits) -> pq.ParquetFile:
    view = memoryview(body)
    footer = int.from_bytes(view[-8:-4], "little")
    if footer > _FOOTER_BYTES_MAX:
        raise ValueError(f"its footer has {footer} bytes, more than {_FOOTER_BYTES_MAX}")
    file = pq.ParquetFile(pa.BufferReader(body))
    about = file.metadata
    if about.num_rows > limits.rows or about.num_row_groups > _ROW_GROUPS_MAX:
        text = f"it has {about.num_rows} rows in {about.num_row_groups} groups, more than {limits.rows} rows"
        raise ValueError(text)
    return file


def _too_many(limits: ParquetLimits) -> ValueError:
    return ValueError(f"more than {limits.size_bytes} bytes of rows")


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column of the file; a column of pairs has two.

    Attributes:
        path: its name in the file.
        is_text: whether it holds texts.
        is_plain: whether each row has one value.
        chunks: its pages, for each row group.
    """

    path: str
    is_text: bool
    is_plain: bool
    chunks: Sequence[Chunk]


class _Plan:
    """How the columns of a file are read.

    Attributes:
        at_once: columns that decoding cannot make large.
        by_batches: rows in a batch of each of the others.
        maps: columns of pairs whose texts have to be measured first.
        groups: the pages of each row group, of all columns.
    """

    def __init__(
        self, file: pq.ParquetFile, body: memoryview, names: Sequence[str], limits: ParquetLimits
    ) -> None:
        self.at_once: list[str] = []
        self.by_batches: dict[str, int] = {}
        self.maps: list[str] = []
        self._body = body
        self._limits = limits
        self._left = limits.size_bytes
        self._leaves: dict[str, list[_Leaf]] = {name: [] for name in names}
        groups = self.groups = chunks_of(body, int.from_bytes(body[-8:-4], "little"))
        columns = file.metadata.num_columns
        if len(groups) != file.num_row_groups or any(len(group) != columns for group in groups):
            raise ValueError("its row groups have other columns than its schema")
        size = width = 0
        for index in range(columns):
            column = file.schema.column(index)
            leaves = self._leaves.get(column.path.partition(".")[0])
            if leaves is None:
                continue
            chunks = [group[index] for group in groups]
            kind = column.physical_type
            is_plain = not column.max_definition_level and not column.max_repetition_level
            leaves.append(_Leaf(column.path, kind == "BYTE_ARRAY", is_plain, chunks))
            size += sum(chunk.size_bytes for chunk in chunks)
            width += _WIDTHS.get(kind, column.length) * sum(chunk.values for chunk in chunks)
            if max(size, width) > limits.size_bytes:
                text = f"its pages have {size} bytes, and its values {width}, more than {limits.size_bytes}"
                raise ValueError(text)
        schema = file.schema_arrow
        for name in names:
            self._add(name, schema.field(name).type)

    def _add(self, name: str, kind: pa.DataType) -> None:
        is_dictionary = pa.types.is_dictionary(kind)
        most = longest = 0
        for leaf in self._leaves[name]:
            for chunk in leaf.chunks if leaf.is_text else ():
                deltas = [page for page in chunk.data if page.encoding == DELTA_STRINGS]
                if deltas and (is_dictionary or not leaf.is_plain):
                    text = f"the column {name} has an encoding that Tarn does not write for it"
                    raise ValueError(text)
                most += self._delta_bytes(deltas, (self._left - most) >> 3)
                most += chunk.plain_bytes
                if chunk.indices and not is_dictionary:
                    length = self._longest(chunk, self._left - most)
                    most += chunk.indices * length
                    longest = max(longest, length)
        if most <= self._left:
            self._left -= most
            self.at_once.append(name)
        elif not longest:
            raise _too_many(self._limits)
        elif pa.types.is_nested(kind):
            self.maps.append(name)
        else:
            self.by_batches[name] = max(
                1, min(_BATCH_ROWS, self._limits.size_bytes // (4 * longest))
            )

    def _delta_bytes(self, pages: Sequence[Page], few: int) -> int:
        """Returns a bound of the texts of pages of delta texts: the exact one only if another is not few bytes."""
        if not pages:
            return 0
        most = sum(page.size_bytes for page in pages) * sum(page.values for page in pages)
        return most if most <= few else sum(delta_bytes(self._body, page) for page in pages)

    def _longest(self, chunk: Chunk, left: int) -> int:
        """Returns a bound of the texts of a dictionary: the exact one only if the size of its page says too little."""
        if chunk.dictionary is None:
            raise ValueError("a column has indices and no dictionary")
        if chunk.indices * chunk.dictionary.size_bytes <= left:
            return chunk.dictionary.size_bytes
        return longest_text(self._body, chunk.dictionary)

    def counted(self, size: int, batch: pa.RecordBatch) -> int:
        """Adds a batch to the bytes of those before it.

        Raises:
            ValueError: they exceed the limit.
        """
        for column in batch.columns:
            # All batches of a row group share a dictionary, whose size its pages bound.
            is_dictionary = pa.types.is_dictionary(column.type)
            size += column.indices.nbytes if is_dictionary else column.nbytes
        if size > self._limits.size_bytes:
            raise _too_many(self._limits)
        return size

    def check_texts(self, body: bytes | pa.Buffer, name: str) -> None:
        """Measures the texts of a column of pairs without making them.

        Raises:
            UNREADABLE: they exceed the limits, too.
        """
        paths = [leaf.path for leaf in self._leaves[name]]
        with pq.ParquetFile(pa.BufferReader(body), read_dictionary=paths) as file:
            column = file.read(columns=[name], use_threads=False).column(0)
        size = 0
        for piece in column.chunks:
            for texts in (piece.keys, piece.items):
                lengths = pc.binary_length(texts.dictionary)
                size += pc.sum(lengths.take(texts.indices)).as_py() or 0
        if size > self._left:
            raise _too_many(self._limits)
        self._left -= size
