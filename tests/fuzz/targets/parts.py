"""Parquet files of rows, as a dump has them: in bounded memory, they are read as Arrow reads them, or are refused."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
from tests.fuzz.targets.parquet import mutations_of
from tests.support.fuzz.target import PropertyError, Target

from tarn.core.parquet import UNREADABLE, ParquetLimits, read_table
from tarn.kv.port import ROW_SCHEMA

__all__ = ["TARGET"]

_LIMITS = ParquetLimits(rows=1 << 18, size_bytes=32 << 20)


def _check(data: bytes) -> str:
    table = read_table(data, ROW_SCHEMA, _LIMITS)
    if table.nbytes > 2 * _LIMITS.size_bytes or len(table) > _LIMITS.rows:
        raise PropertyError(f"{len(table)} rows of {table.nbytes} bytes are more than the limits")
    with pq.ParquetFile(pa.BufferReader(data)) as file:  # it is known to be small
        if not file.read(use_threads=False).equals(table):
            raise PropertyError("Arrow reads other rows")
    return f"{min(len(table), 3)} rows"


def _value(rng: random.Random, field: pa.Field) -> object:
    del field
    return rng.choice((None, b"", b"a", rng.randbytes(9), b"x" * rng.choice((300, 70_000))))


TARGET = Target(
    "parts",
    _check,
    refusals=UNREADABLE,
    traced=(
        "tarn.core.parquet",
        "tarn.core.parquet_pages",
        "tarn.core.parquet_lengths",
        "tarn.core.thrift",
    ),
    mutations=mutations_of(ROW_SCHEMA, _value),
    tokens=(b"PAR1", b"PARE"),
    input_bytes_max=64 * 1024,
    memory_bytes=256 << 20,
    cpu_s=4.0,
)
