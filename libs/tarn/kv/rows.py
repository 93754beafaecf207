"""Rows as Arrow columns, the form in which bulk reads return them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

__all__ = ["ROW_SCHEMA", "row_batch"]

ROW_SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])
"""The schema of the batches that `Kv.scan_arrow` yields."""


def row_batch(keys: Sequence[bytes], values: Sequence[bytes]) -> pa.RecordBatch:
    """A batch of `ROW_SCHEMA` from a list of keys and the list of their values."""
    columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
    return pa.record_batch(columns, schema=ROW_SCHEMA)
