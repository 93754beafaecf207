"""Rows as Arrow columns, which is how bulk reads give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

__all__ = ["ROW_SCHEMA", "row_batch"]

ROW_SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])
"""Of the batches that `Kv.scan_arrow` gives."""


def row_batch(keys: Sequence[bytes], values: Sequence[bytes]) -> pa.RecordBatch:
    """Rows whose keys and values came apart, as a batch of `ROW_SCHEMA`."""
    columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
    return pa.record_batch(columns, schema=ROW_SCHEMA)
