"""The join of listed blocks with keys, by whole keys and not by hashes of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.collection.block_names import BlockKind, Bytes, Listed

__all__ = ["split"]


def split(kind: BlockKind, rows: Listed, keys: Bytes) -> tuple[Listed, Listed]:
    """Returns the rows whose key is not among `keys`, and the others; both in the order of the rows.

    O(rows + keys); call it with one partition of each side.
    """
    if not len(rows) or not len(keys):
        return rows, rows[:0]
    found = pc.is_in(_column(kind, rows["key"]), value_set=_column(kind, keys))
    is_known = found.to_numpy(zero_copy_only=False)
    return rows[~is_known], rows[is_known]


def _column(kind: BlockKind, keys: Bytes) -> pa.Array:
    buffer = pa.py_buffer(np.ascontiguousarray(keys))
    return pa.Array.from_buffers(pa.binary(kind.key_bytes), len(keys), [None, buffer])
