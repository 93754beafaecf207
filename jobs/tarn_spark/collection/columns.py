"""Blocks as columns of Spark: a kind by its number, a key as binary, size and time; to and from Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarn.collection.block_names import BlockKind, Bytes, Listed

__all__ = [
    "KEYS",
    "KINDS",
    "LISTED",
    "MISSING",
    "ascending",
    "by_kind",
    "keys_batch",
    "kind_number",
    "listed_batch",
    "missing_batch",
]

KINDS: Final = tuple(BlockKind)
"""A kind's number is its place here: metaranges, ranges, data. Sweeps delete in this order."""
MISSING: Final = 64
"""Added to the number of a kind in `KEYS`: the block itself is missing. No such row leaves `Frames.references`."""
KEYS: Final = "kind tinyint, key binary"
LISTED: Final = "kind tinyint, key binary, size bigint, mtime bigint"


def kind_number(kind: BlockKind) -> int:
    """Returns the number of a kind in the columns of Spark."""
    return KINDS.index(kind)


def keys_batch(kind: BlockKind, keys: Bytes) -> pa.RecordBatch:
    """Returns a batch of `KEYS`."""
    return pa.RecordBatch.from_arrays(_first_columns(kind, keys), names=["kind", "key"])


def missing_batch(kind: BlockKind, keys: Sequence[bytes]) -> pa.RecordBatch:
    """Returns a batch of `KEYS` that tells missing blocks."""
    numbers = pa.array([kind_number(kind) + MISSING] * len(keys), pa.int8())
    return pa.RecordBatch.from_arrays([numbers, pa.array(keys, pa.binary())], ["kind", "key"])


def listed_batch(kind: BlockKind, rows: Listed) -> pa.RecordBatch:
    """Returns a batch of `LISTED`."""
    columns = _first_columns(kind, np.ascontiguousarray(rows["key"]))
    numbers = [pa.array(np.ascontiguousarray(rows[name])) for name in ("size", "mtime")]
    return pa.RecordBatch.from_arrays(columns + numbers, names=["kind", "key", "size", "mtime"])


def by_kind(batch: pa.RecordBatch) -> list[tuple[BlockKind, Listed]]:
    """Returns the rows of a batch of `LISTED` or `KEYS` by their kind, in the order of the batch within a kind.

    A batch without `size` or `mtime` gives zeros.
    """
    numbers = batch.column("kind").to_numpy()
    found = []
    for number in np.unique(numbers).tolist():
        kind = KINDS[number]
        own = batch.filter(pa.array(numbers == number))
        rows = np.zeros(len(own), kind.listed_dtype)
        rows["key"] = _keys_of(kind, own.column("key"))
        for name in {"size", "mtime"} & set(batch.schema.names):
            rows[name] = own.column(name).to_numpy()
        found.append((kind, rows))
    return found


def ascending(kind: BlockKind, rows: Listed) -> Listed:
    """Returns the rows in the order of their keys."""
    order: npt.NDArray[np.intp] = np.argsort(
        np.ascontiguousarray(rows["key"]).view(f"S{kind.key_bytes}").ravel()
    )
    ordered: Listed = rows[order]
    return ordered


def _first_columns(kind: BlockKind, keys: Bytes) -> list[pa.Array]:
    numbers = np.full(len(keys), kind_number(kind), np.int8)
    ends = np.arange(len(keys) + 1, dtype=np.int32) * kind.key_bytes
    body = pa.py_buffer(np.ascontiguousarray(keys))
    column = pa.Array.from_buffers(pa.binary(), len(keys), [None, pa.py_buffer(ends), body])
    return [pa.array(numbers), column]


def _keys_of(kind: BlockKind, column: pa.Array) -> Bytes:
    fixed = column.cast(pa.binary(kind.key_bytes))
    start = fixed.offset * kind.key_bytes
    keys = np.frombuffer(fixed.buffers()[1], np.uint8, len(fixed) * kind.key_bytes, start)
    return keys.reshape(-1, kind.key_bytes)
