"""Reads the rows of one staging token for a build."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tarn.kv.keys import after_prefix, path_key
from tarn.kv.port import Partition, ScanKv

__all__ = ["KEY_END", "KEY_START", "batch_of", "staged_batches"]

KEY_START: Final = path_key("")
KEY_END: Final = after_prefix(KEY_START)
"""Bounds of the keys of paths."""

_PATH_END = 1 << 20  # the stop of `binary_slice` for "to the end"


async def staged_batches(kv: ScanKv, token: Partition) -> AsyncIterator[pa.RecordBatch]:
    """Yields every staged row of a token in byte order, as batches of the columns `path` and `value`."""
    async for batch in kv.scan_arrow(token, KEY_START, KEY_END):
        yield batch_of(batch.column("key"), batch.column("value"))


def batch_of(keys: pa.BinaryArray, values: pa.BinaryArray) -> pa.RecordBatch:
    """Makes a batch of `path` and `value` from rows of a token."""
    paths = pc.binary_slice(keys, len(KEY_START), _PATH_END).cast(pa.string())
    return pa.record_batch([paths, values], names=["path", "value"])
