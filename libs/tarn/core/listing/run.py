"""A run: rows `(path, packed entry)` in Arrow columns, sorted by path, with unique paths.

Runs are the working form of all committed data: staged batches, ranges and all intermediate results are runs,
and no step makes a Python object per row. Paths compare as UTF-8 bytes, which is also the order of `str`.
Slices share their parent's buffers, so code that hashes or measures rows must look at the slice only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarn.core.entry import FLAG_TOMBSTONE, HEAD_BYTES, VERSION
from tarn.core.errors import Kind, Reason, TarnError

__all__ = [
    "EMPTY_RUN",
    "HEAD",
    "RUN_SCHEMA",
    "VALUE_END",
    "addresses_of",
    "Bools",
    "Ints",
    "Run",
    "concat_runs",
    "data_of",
    "heads_of",
    "identities_of",
    "tombstones_of",
    "offsets_of",
    "run_of_batch",
]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

RUN_SCHEMA = pa.schema(
    [pa.field("path", pa.string(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)

HEAD = np.dtype(
    [
        ("version", "u1"),
        ("flags", "u1"),
        ("size", "<i8"),
        ("mtime", "<i8"),
        ("address", "V16"),
        ("md5", "V16"),
        ("identity", "V16"),
    ]
)
"""The packed entry's head (`tarn.core.entry`) as a packed numpy record."""
assert HEAD.itemsize == HEAD_BYTES, "the two definitions of the head differ in size"

VALUE_END = 1 << 30
"""The stop argument of `binary_slice` for "to the end"; pyarrow fails without one."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Sorted rows.

    Attributes:
        paths: `string`, shape (rows,), no nulls. Invariant: strictly ascending.
        values: `binary`, shape (rows,), no nulls: packed entries; in a run of changes also tombstones.
    """

    paths: pa.StringArray
    values: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.paths)

    def slice(self, start: int, stop: int | None = None) -> Run:
        """Rows `[start, stop)`, without a copy."""
        length = (len(self) if stop is None else stop) - start
        return Run(self.paths.slice(start, length), self.values.slice(start, length))

    def take(self, rows: npt.NDArray[np.integer]) -> Run:
        """The rows with the given numbers, copied."""
        index = pa.array(rows)
        return Run(self.paths.take(index), self.values.take(index))

    def find(self, path: str, *, after: bool = False) -> int:
        """The number of the first row whose path is not smaller than `path` (with `after`: greater). O(log n)."""
        side = "right" if after else "left"
        return int(pc.search_sorted(self.paths, pa.scalar(path, pa.string()), side=side).as_py())

    @property
    def first_path(self) -> str:
        """The smallest path; the run must not be empty."""
        path: str = self.paths[0].as_py()
        return path

    @property
    def last_path(self) -> str:
        """The greatest path; the run must not be empty."""
        path: str = self.paths[-1].as_py()
        return path

    @property
    def size_bytes(self) -> int:
        """Size of paths and packed entries in bytes, without offsets."""
        return sum(int(ends[-1] - ends[0]) for ends in map(offsets_of, (self.paths, self.values)))

    def batch(self) -> pa.RecordBatch:
        """The rows as a record batch of `RUN_SCHEMA`."""
        return pa.RecordBatch.from_arrays([self.paths, self.values], schema=RUN_SCHEMA)


# `pa.array` of a list would import pandas.
EMPTY_RUN = Run(pa.nulls(0, pa.string()), pa.nulls(0, pa.binary()))


def offsets_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """Where each row of a string or binary array begins in its `data_of`; has one element more than rows."""
    if not len(array):
        return np.zeros(1, np.int32)
    count = array.offset + len(array) + 1
    return np.frombuffer(array.buffers()[1], np.int32, count)[array.offset :]


def data_of(array: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes into which `offsets_of` points; a slice has its parent's."""
    buffer = array.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)


def concat_runs(runs: Sequence[Run]) -> Run:
    """Joins adjacent runs; the caller guarantees their order."""
    if len(runs) == 1:
        return runs[0]
    if not runs:
        return EMPTY_RUN
    return Run(
        pa.concat_arrays([run.paths for run in runs]),
        pa.concat_arrays([run.values for run in runs]),
    )


def heads_of(values: pa.BinaryArray) -> np.ndarray:
    """The heads of packed entries as records of `HEAD`; every value must be at least a head long.

    Of values of one length, as objects that were written alike have, it is a view.
    """
    ends = offsets_of(values)
    lengths = np.diff(ends)
    if len(lengths) and (lengths == lengths[0]).all() and lengths[0] >= HEAD_BYTES:
        every = (int(lengths[0]),)
        return np.ndarray(len(values), HEAD, data_of(values), offset=int(ends[0]), strides=every)
    heads = pc.binary_slice(values, 0, HEAD_BYTES)
    ends = offsets_of(heads)
    return data_of(heads)[ends[0] : ends[-1]].view(HEAD)


def tombstones_of(values: pa.BinaryArray) -> Bools:
    """Which rows are tombstones."""
    if not len(values):
        return np.zeros(0, np.bool_)
    flags = data_of(values)[1:][offsets_of(values)[:-1]]
    tombstones: Bools = (flags & FLAG_TOMBSTONE) != 0
    return tombstones


def addresses_of(values: pa.BinaryArray) -> pa.BinaryArray:
    """The address of each row's block; zeros for a tombstone and an external address."""
    return pc.binary_slice(values, 18, 34)


def identities_of(values: pa.BinaryArray) -> pa.BinaryArray:
    """The identity of each row."""
    return pc.binary_slice(values, HEAD_BYTES - 16, HEAD_BYTES)


def run_of_batch(batch: pa.RecordBatch, after: str | None = None) -> Run:
    """Checks a batch of `path` (string or binary) and `value` from an external source and makes it a run.

    Args:
        batch: rows in byte order of the paths.
        after: the last path of the preceding batch; None for the first.

    Raises:
        TarnError: CORRUPT: a path is not UTF-8, rows are out of order or repeated, or a value is not a
            packed entry of this version.
    """
    paths, values = batch.column("path"), batch.column("value")
    try:
        paths = paths if paths.type == pa.string() else paths.cast(pa.string())
        values = values if values.type == pa.binary() else values.cast(pa.binary())
    except pa.ArrowInvalid as error:
        raise _corrupt(f"staged rows are not paths and packed entries: {error}") from error
    if paths.null_count or values.null_count:
        raise _corrupt("staged rows hold nulls")
    run = Run(paths, values)
    if not len(run):
        return run
    ascending = pc.less(paths.slice(0, len(run) - 1), paths.slice(1))
    if pc.all(ascending).as_py() is False or (after is not None and run.first_path <= after):
        raise _corrupt(f"staged rows from {run.first_path!r} on are not sorted by unique paths")
    ends = offsets_of(values)
    too_short = int(np.diff(ends).min()) < HEAD_BYTES
    if too_short or (data_of(values)[ends[:-1]] != VERSION).any():
        raise _corrupt(f"staged rows from {run.first_path!r} on are not all packed entries")
    return run


def _corrupt(text: str) -> TarnError:
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
