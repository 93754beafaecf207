"""Converts packed entries to columns that Spark, DuckDB and pandas can read, and back, byte for byte.

The fields of the head, the content type and the user metadata become columns; the rest of the tail
(`tarn.core.entry`) stays as bytes in the column `tail`. A field that cannot be a column (a content type that
is not UTF-8, a truncated field) stays in `tail` too, so that

    packed = head + content type field (unless null) + metadata field (unless null) + tail

holds for any bytes after a head. A range's id is the hash of its packed rows, so reading a range and packing it
again checks all of its columns. `docs/formats/range.md` is the specification.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarn.core.entry import HEAD_BYTES, VERSION, TailTag
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RangeId
from tarn.core.listing.run import HEAD, VALUE_END, Bools, Ints, Run, data_of, heads_of, offsets_of

__all__ = ["RANGE_SCHEMA", "columns_of", "range_id_of", "run_of_columns"]

_CONTENT_TYPE = pa.dictionary(pa.int32(), pa.string())
_METADATA = pa.map_(pa.string(), pa.string())
_FIXED = pa.binary(16)
_TIME = pa.timestamp("us", tz="UTC")

RANGE_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("mtime", _TIME, nullable=False),
        pa.field("address", _FIXED, nullable=False),
        pa.field("etag", _FIXED, nullable=False),
        pa.field("identity", _FIXED, nullable=False),
        pa.field("flags", pa.int32(), nullable=False),
        pa.field("content_type", _CONTENT_TYPE),
        pa.field("metadata", _METADATA),
        pa.field("tail", pa.binary(), nullable=False),
    ]
)

_MAGIC = b"tarn range 1\n"
_COUNT = struct.Struct("<Q")
_FIELD = np.dtype([("tag", "u1"), ("length", "<u2")])
_FIELD_MAX = 0xFFFF
_CONTENT_TYPE_BYTES_MAX = 128 << 20
"""Bytes of all content types of a range; its rows have 32 MiB (`tarn.core.listing.breaks`)."""


def range_id_of(run: Run) -> RangeId:
    """SHA-256 over the packed rows: lengths and bytes of the paths, then of the entries.

    Independent of slices, chunks and the file that holds the rows.
    """
    digest = hashlib.sha256(_MAGIC + _COUNT.pack(len(run)))
    for array in (run.paths, run.values):
        ends = offsets_of(array)
        digest.update(np.diff(ends).astype("<u4").data)
        digest.update(data_of(array)[ends[0] : ends[-1]].data)
    return RangeId(digest.hexdigest())


def columns_of(run: Run) -> pa.Table:
    """Converts the rows to a table of `RANGE_SCHEMA`."""
    heads = heads_of(run.values)
    tails = _Tails(pc.binary_slice(run.values, HEAD_BYTES, VALUE_END))
    content_types = tails.take_content_types()
    metadata = tails.take_metadata()
    columns = [
        run.paths,
        pa.array(heads["size"]),
        pa.array(heads["mtime"]).cast(_TIME),
        _fixed(heads["address"]),
        _fixed(heads["md5"]),
        _fixed(heads["identity"]),
        pa.array(heads["flags"].astype(np.int32)),
        content_types,
        metadata,
        tails.rest(),
    ]
    return pa.Table.from_arrays(columns, schema=RANGE_SCHEMA)


def _fixed(column: np.ndarray) -> pa.FixedSizeBinaryArray:
    data = pa.py_buffer(np.ascontiguousarray(column))
    return pa.FixedSizeBinaryArray.from_buffers(_FIXED, len(column), [None, data])


class _Tails:
    """The tails of a run, from whose fronts fields are removed."""

    def __init__(self, tails: pa.BinaryArray) -> None:
        ends = offsets_of(tails).astype(np.int64)
        self._tails = tails
        self._data = data_of(tails)
        self._begins = ends[:-1]
        self._starts, self._ends = ends[:-1].copy(), ends[1:]

    def take_content_types(self) -> pa.DictionaryArray:
        """The content types, which come first in a tail. Usually all are equal, and need no look at each row."""
        field = self._first_field(TailTag.CONTENT_TYPE)
        if field and pc.all(pc.starts_with(self._tails, field)).as_py():
            texts = self._tails.slice(0, 1)
            text = pc.binary_slice(texts, _FIELD.itemsize, len(field))
            if _utf8_rows(text).all():
                self._starts += len(field)
                indices = pa.array(np.zeros(len(self._tails), np.int32))
                return pa.DictionaryArray.from_arrays(indices, text.cast(pa.string()))
        return self._take_content_types()

    def _take_content_types(self) -> pa.DictionaryArray:
        rows, starts, lengths = self._fields(TailTag.CONTENT_TYPE)
        if not len(rows):
            return pa.nulls(len(self._starts), _CONTENT_TYPE)
        texts = _binary(self._data, starts, lengths)
        good = _utf8_rows(texts)
        if not good.all():
            rows, starts, lengths = rows[good], starts[good], lengths[good]
            texts = texts.filter(pa.array(good))
        self._starts[rows] = starts + lengths
        return _spread(texts.cast(pa.string()).dictionary_encode(), rows, len(self._starts))

    def take_metadata(self) -> pa.MapArray:
        rows, starts, lengths = self._fields(TailTag.METADATA)
        count = len(self._starts)
        if not len(rows):
            return pa.nulls(count, _METADATA)
        owner, at, sizes, good = self._strings(starts, starts + lengths)
        texts = _binary(self._data, at, sizes)
        is_utf8 = _utf8_rows(texts)
        if not is_utf8.all():
            good[owner[~is_utf8]] = False
        if not good.all():
            kept = good[owner]
            owner, texts = owner[kept], texts.filter(pa.array(kept))
        texts = texts.cast(pa.string())
        self._starts[rows[good]] = (starts + lengths)[good]
        pairs = np.zeros(count, np.int64)
        pairs[rows] = np.bincount(owner, minlength=len(rows)) // 2
        offsets = np.concatenate(([0], np.cumsum(pairs))).astype(np.int32)
        is_null = np.ones(count, np.bool_)
        is_null[rows[good]] = False
        even = np.arange(0, len(texts), 2)
        return pa.MapArray.from_arrays(
            pa.array(offsets),
            texts.take(pa.array(even)),
            texts.take(pa.array(even + 1)),
            mask=pa.array(is_null),
        )

    def rest(self) -> pa.BinaryArray:
        """The bytes that were not removed, one value per row."""
        skips = self._starts - self._begins
        first = int(skips[0]) if len(skips) else 0
        if (skips == first).all():
            return pc.binary_slice(self._tails, first, VALUE_END) if first else self._tails
        return _binary(self._data, self._starts, self._ends - self._starts)

    def _fields(self, tag: int) -> tuple[Ints, Ints, Ints]:
        """The rows whose next field has this tag, where the field's bytes begin, and how many there are."""
        rows = np.flatnonzero(self._ends - self._starts >= _FIELD.itemsize)
        rows = rows[self._data[self._starts[rows]] == tag]
        starts = self._starts[rows] + _FIELD.itemsize
        lengths = self._length_before(starts)
        fits = starts + lengths <= self._ends[rows]
        return rows[fits], starts[fits], lengths[fits]

    def _first_field(self, tag: int) -> bytes:
        """The whole first field of the first row; empty if it is not there, or has another tag."""
        tail: bytes = self._tails[0].as_py() if len(self._tails) else b""
        if len(tail) < _FIELD.itemsize or tail[0] != tag:
            return b""
        end = _FIELD.itemsize + int.from_bytes(tail[1:3], "little")
        return tail[:end] if end <= len(tail) else b""

    def _length_before(self, starts: Ints) -> Ints:
        low, high = self._data[starts - 2], self._data[starts - 1]
        return low.astype(np.int64) | (high.astype(np.int64) << 8)

    def _strings(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints, Bools]:
        """Splits string lists, one list per row, into strings: the k-th string of all lists in each step.

        Returns:
            For each string its list, its start and its length, ordered by list; and which lists are complete
            and have an even number of strings. Only strings of those lists are returned.
        """
        good = np.ones(len(starts), np.bool_)
        counts = np.zeros(len(starts), np.int64)
        rows, at = np.arange(len(starts)), starts.copy()
        found: list[tuple[Ints, Ints, Ints]] = []
        while True:
            more = at < ends[rows]
            rows, at = rows[more], at[more]
            if not len(rows):
                break
            begins = at + 2
            whole = begins <= ends[rows]
            sizes = np.zeros(len(rows), np.int64)
            sizes[whole] = self._length_before(begins[whole])
            whole &= begins + sizes <= ends[rows]
            good[rows[~whole]] = False
            rows, begins, sizes = rows[whole], begins[whole], sizes[whole]
            counts[rows] += 1
            found.append((rows, begins, sizes))
            at = begins + sizes
        good &= counts % 2 == 0
        parts = [np.concatenate(column) for column in zip(*found, strict=True)]
        owner, places, lengths = parts or [np.zeros(0, np.int64)] * 3
        order = np.argsort(owner, kind="stable")
        order = order[good[owner[order]]]
        return owner[order], places[order], lengths[order], good


def _binary(data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints) -> pa.BinaryArray:
    """Builds an array from pieces of `data`."""
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    index = np.arange(int(offsets[-1])) + np.repeat(starts - offsets[:-1], lengths)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[index])]
    return pa.BinaryArray.from_buffers(pa.binary(), len(starts), buffers)


def _utf8_rows(texts: pa.BinaryArray) -> Bools:
    """Which rows are UTF-8. One check covers all rows; rows are checked singly only if it fails."""
    good = np.ones(len(texts), np.bool_)
    try:
        texts.cast(pa.string())
    except pa.ArrowInvalid:
        for row, text in enumerate(texts.to_pylist()):
            try:
                text.decode()
            except UnicodeDecodeError:
                good[row] = False
    return good


def _spread(values: pa.DictionaryArray, rows: Ints, count: int) -> pa.DictionaryArray:
    """Places `values` at `rows`; other rows are null."""
    if len(rows) == count:
        return values
    indices = np.zeros(count, np.int32)
    is_null = np.ones(count, np.bool_)
    indices[rows] = values.indices.to_numpy()
    is_null[rows] = False
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, pa.int32(), mask=is_null), values.dictionary
    )


def run_of_columns(table: pa.Table) -> Run:
    """Converts a table of `RANGE_SCHEMA` to packed rows.

    The caller checks them against the range's id. That is not enough, because an id can be computed for any
    bytes, also for rows that no writer makes. So this function checks what readers rely on.

    Raises:
        TarnError: CORRUPT for another schema, nulls, texts that are not UTF-8, and paths that are not
            strictly ascending. Damage inside an entry is only found when the entry is unpacked.
    """
    if not table.schema.equals(RANGE_SCHEMA):
        raise _corrupt(f"the columns of a range are {table.schema.names}")
    columns = {name: table.column(name).combine_chunks() for name in table.schema.names}
    for field in RANGE_SCHEMA:
        if not field.nullable and columns[field.name].null_count:
            raise _corrupt(f"the column {field.name} of a range holds nulls")
    _check_texts(columns)
    _check_paths(columns["path"])
    parts = [_packed_heads(columns)]
    parts += _content_type_fields(columns["content_type"])
    parts += _metadata_fields(columns["metadata"])
    parts.append(columns["tail"])
    values = pc.binary_join_element_wise(*parts, b"") if len(parts) > 1 else parts[0]
    return Run(columns["path"], values)


def _check_texts(columns: dict[str, pa.Array]) -> None:
    """Parquet readers do not check the bytes of a text column, and later code decodes them."""
    texts = {
        "path": columns["path"],
        "content_type": columns["content_type"].dictionary,
        "metadata": columns["metadata"].keys,
        "metadata values": columns["metadata"].items,
    }
    for name, column in texts.items():
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise _corrupt(f"the column {name} of a range cannot be read: {error}") from error


def _check_paths(paths: pa.StringArray) -> None:
    if len(paths) > 1:
        ascending = pc.less(paths.slice(0, len(paths) - 1), paths.slice(1)).to_numpy(
            zero_copy_only=False
        )
        if not ascending.all():
            row = int((~ascending).argmax()) + 1
            raise _corrupt(f"path {paths[row].as_py()!r} of a range is not after the one before it")


def _packed_heads(columns: dict[str, pa.Array]) -> pa.BinaryArray:
    count = len(columns["path"])
    heads = np.zeros(count, HEAD)
    heads["version"] = VERSION
    flags = columns["flags"].to_numpy()
    if ((flags < 0) | (flags > 0xFF)).any():
        raise _corrupt("the flags of a range are not one byte")
    heads["flags"] = flags
    heads["size"] = columns["size"].to_numpy()
    heads["mtime"] = columns["mtime"].cast(pa.int64()).to_numpy()
    for name, column in (("address", "address"), ("md5", "etag"), ("identity", "identity")):
        array = columns[column]
        data = np.frombuffer(array.buffers()[1], "V16", array.offset + count)
        heads[name] = data[array.offset :]
    return _evenly(heads)


def _evenly(records: np.ndarray) -> pa.BinaryArray:
    """Converts records of one size to binary values."""
    offsets = np.arange(len(records) + 1, dtype=np.int32) * np.int32(records.itemsize)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(records)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(records), buffers)


def _as_fields(tag: int, values: pa.Array) -> pa.BinaryArray:
    """Packs each value as `tag, length, bytes`; null becomes empty."""
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy()
    if len(lengths) and int(lengths.max()) > _FIELD_MAX:
        raise _corrupt(f"a field {tag} of a range is longer than {_FIELD_MAX} bytes")
    heads = np.zeros(len(values), _FIELD)
    heads["tag"], heads["length"] = tag, lengths
    fields = pc.binary_join_element_wise(_evenly(heads), values.cast(pa.binary()), b"")
    return pc.fill_null(fields, b"")


def _content_type_fields(column: pa.DictionaryArray) -> Iterator[pa.BinaryArray]:
    if column.null_count == len(column):
        return
    fields = _as_fields(TailTag.CONTENT_TYPE, column.dictionary)
    # A file holds each content type once, whatever the number of its rows.
    lengths = pc.binary_length(fields)
    if len(column) * (pc.max(lengths).as_py() or 0) > _CONTENT_TYPE_BYTES_MAX:
        size = pc.sum(pc.take(lengths, column.indices)).as_py() or 0
        if size > _CONTENT_TYPE_BYTES_MAX:
            raise _corrupt(
                f"the content types of a range have {size} bytes, more than {_CONTENT_TYPE_BYTES_MAX}"
            )
    yield pc.fill_null(fields.take(column.indices), b"")


def _metadata_fields(column: pa.MapArray) -> Iterator[pa.BinaryArray]:
    if column.null_count == len(column):
        return
    # Row by row, the lengths and texts of all strings in order are the bytes of the string lists.
    keys, items = column.keys, column.items
    order = np.arange(2 * len(keys)).reshape(2, -1).T.ravel()
    texts = pa.concat_arrays([keys, items]).take(pa.array(order)).cast(pa.binary())
    if texts.null_count:
        raise _corrupt("the metadata of a range holds nulls")
    lengths = pc.binary_length(texts).to_numpy()
    if len(lengths) and int(lengths.max()) > _FIELD_MAX:
        raise _corrupt(f"a metadata text of a range is longer than {_FIELD_MAX} bytes")
    strings = pc.binary_join_element_wise(_evenly(lengths.astype("<u2")), texts, b"")
    # `keys` begins where the first row's pairs begin, also in a slice.
    pairs = np.asarray(column.offsets).astype(np.int64)
    ends = offsets_of(strings)[2 * (pairs - pairs[0])]
    data = pa.py_buffer(data_of(strings))
    buffers = [None, pa.py_buffer(np.ascontiguousarray(ends)), data]
    lists = pa.BinaryArray.from_buffers(pa.binary(), len(column), buffers)
    fields = _as_fields(TailTag.METADATA, lists)
    yield pc.if_else(column.is_valid(), fields, pa.scalar(b"", pa.binary()))


def _corrupt(text: str) -> TarnError:
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
