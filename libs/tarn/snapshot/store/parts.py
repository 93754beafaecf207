"""The files of rows in a dump, in Parquet so that other tools can open them.

Columns `partition`, `key` and `value`, with the rows of the part's ranges, one range after the other. A
file's bytes are checked before the file is parsed, and its rows' digests afterwards. Everything here blocks.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tarn.core.parquet import UNREADABLE, ParquetLimits, read_batches
from tarn.kv.port import ROW_SCHEMA
from tarn.snapshot.files.plain_files import read_plain
from tarn.snapshot.files.ranges import Range, RangeDigest
from tarn.snapshot.store.dump_format import Part, corrupt_error

__all__ = ["PARTS", "Batches", "check_part", "read_part", "sync_folder", "write_part"]

PARTS = "parts"
_ROW_GROUP_ROWS = 65_536
_SPARE_BYTES = 1 << 20
_PART_BYTES_MAX = 256 << 20
_PART_ROWS_MAX = 1 << 22
"""A part ends with the chunk that brings it to 12 MiB of keys and values (`tarn.snapshot.store.dumping`)."""
_SCHEMA = pa.schema(
    [
        ("partition", pa.dictionary(pa.int32(), pa.string())),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)

Batches = Sequence[pa.RecordBatch]
"""Batches of rows with columns `key` and `value`."""


def write_part(folder: Path, file: str, found: Sequence[tuple[Range, Batches]]) -> Part:
    """Writes a file atomically, durably, and readable only by its owner.

    Raises:
        OSError: the file cannot be written.
    """
    data = io.BytesIO()
    names = pa.array([each.partition.name for each, _ in found], pa.string())
    with pq.ParquetWriter(data, _SCHEMA, compression="zstd", compression_level=1) as writer:
        tables = [
            _table(names, index, batch)
            for index, (_, batches) in enumerate(found)
            for batch in batches
        ]
        if tables:
            writer.write_table(pa.concat_tables(tables), row_group_size=_ROW_GROUP_ROWS)
    view = data.getbuffer()
    _write(folder / PARTS, file, view)
    return Part(file, len(view), hashlib.sha256(view).hexdigest(), tuple(each for each, _ in found))


def check_part(folder: Path, part: Part) -> None:
    """Raises `TarnError` CORRUPT if a file is missing or its bytes have changed since it was written."""
    _read(folder, part)


def _read(folder: Path, part: Part) -> bytes:
    """Returns the bytes of a file, after `check_part`."""
    path = folder / PARTS / part.file
    try:
        data = read_plain(folder, f"{PARTS}/{part.file}", _PART_BYTES_MAX)
    except FileNotFoundError:
        raise corrupt_error(f"{path} is missing") from None
    found = hashlib.sha256(data).hexdigest()
    if found != part.sha256:
        text = f"{path} was changed: its SHA-256 is {found}, the index says {part.sha256}"
        raise corrupt_error(text)
    return data


def read_part(folder: Path, part: Part) -> Iterator[tuple[Range, Batches]]:
    """Yields the ranges of a file and their rows, after checking each range's digest.

    Raises:
        TarnError: CORRUPT: the file cannot be read, or a digest differs.
    """
    path = folder / PARTS / part.file
    rows = _Rows(path, _read(folder, part), part)
    for each in part.ranges:
        batches = rows.take(each.rows)
        digest = RangeDigest(each.partition)
        for batch in batches:
            digest.add(batch)
        if digest.hex() != each.digest:
            text = f"{path} does not hold the rows of {each.partition.name!r} that the index lists"
            raise corrupt_error(text)
        yield each, batches


class _Rows:
    """Reads the rows of a file in order. The column `partition` is for other tools; we use the index instead."""

    def __init__(self, path: Path, body: bytes, part: Part) -> None:
        self._path = path
        wanted = [field for field in _SCHEMA if field.name in ROW_SCHEMA.names]
        rows = sum(each.rows for each in part.ranges)
        size = sum(each.size_bytes for each in part.ranges)
        # Beside the bytes of keys and values: offsets, and pages that hold a text twice.
        most = min(2 * size + 32 * rows + _SPARE_BYTES, _PART_BYTES_MAX)
        limits = ParquetLimits(min(rows, _PART_ROWS_MAX), most)
        self._batches = read_batches(body, pa.schema(wanted), limits)
        self._left: pa.RecordBatch | None = None

    def take(self, rows: int) -> list[pa.RecordBatch]:
        """Returns the next rows; fewer at the end of the file."""
        taken: list[pa.RecordBatch] = []
        while rows:
            batch = self._left if self._left is not None else self._next()
            if batch is None:
                break
            part = batch.slice(0, rows)
            rows -= part.num_rows
            taken.append(part)
            self._left = batch.slice(part.num_rows) if part.num_rows < batch.num_rows else None
        return taken

    def _next(self) -> pa.RecordBatch | None:
        try:
            return next(self._batches, None)
        except UNREADABLE as error:
            raise corrupt_error(f"{self._path} cannot be read: {error}") from error


def _table(names: pa.Array, index: int, batch: pa.RecordBatch) -> pa.Table:
    indices = pa.array([index], pa.int32()).take(pa.array([0] * batch.num_rows, pa.int32()))
    partition = pa.DictionaryArray.from_arrays(indices, names)
    return pa.Table.from_arrays([partition, batch.column(0), batch.column(1)], schema=_SCHEMA)


def _write(folder: Path, file: str, data: memoryview) -> None:
    draft = folder / f".{file}.draft"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(folder / file)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
