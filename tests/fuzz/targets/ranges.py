"""Range files: any bytes are either refused as damaged or are exactly the rows that the id names."""

from __future__ import annotations

import datetime as dt
import random
import re

import pyarrow as pa
from tests.fuzz.targets.parquet import mutations_of
from tests.fuzz.targets.refusals import corrupt_only
from tests.support.fuzz.target import PropertyError, Target

from tarn.block.rangefile import decode_range, encode_range
from tarn.core.entry import HEAD_BYTES
from tarn.core.errors import TarnError
from tarn.core.ids import RangeId
from tarn.core.listing.rangecolumns import RANGE_SCHEMA, range_id_of

__all__ = ["TARGET"]

_NO_ID = RangeId("0" * 64)
_FOUND = re.compile(r"its rows hash to ([0-9a-f]{64})")


def _check(data: bytes) -> str:
    try:
        corrupt_only(lambda: decode_range(_NO_ID, data))
    except TarnError as error:
        found = _FOUND.search(error.message)
        if found is None:
            raise
    else:
        raise PropertyError("no rows hash to zeros")
    # The file can be read under the id of its rows.
    range_id = RangeId(found[1])
    run = corrupt_only(lambda: decode_range(range_id, data))
    if len(run.paths) != len(run.values) or run.paths.null_count or run.values.null_count:
        raise PropertyError("a run has holes")
    if len(run):
        run.paths.validate(full=True)
        run.values.validate(full=True)
        if min(len(value) for value in run.values.to_pylist()) < HEAD_BYTES:
            raise PropertyError("a row is shorter than a head")
    back = decode_range(range_id, encode_range(run).to_pybytes())
    if range_id_of(back) != range_id or back.values.to_pylist() != run.values.to_pylist():
        raise PropertyError("the rows change by being written again")
    return f"readable, {min(len(run), 3)} rows"


def _value(rng: random.Random, field: pa.Field) -> object:
    if field.nullable and rng.random() < 0.3:
        return None
    kind = field.type
    if field.name == "flags":
        return rng.choice((0, 1, 2, 255, 256, -1, 2**31 - 1))
    if pa.types.is_int64(kind):
        return rng.choice((0, 1, -1, 2**63 - 1, -(2**63)))
    if pa.types.is_timestamp(kind):
        return rng.choice(
            (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC))
        )
    if pa.types.is_fixed_size_binary(kind):
        return rng.randbytes(16)
    if pa.types.is_map(kind):
        return rng.choice(([], [("a", "b")], [("a", None)], [("", ""), ("", "x" * 65_536)]))
    if field.name == "tail":
        return rng.choice((b"", b"\1\1\0a", rng.randbytes(5)))
    return rng.choice(("", "a", "b\0", "é", "x" * 70_000 if rng.random() < 0.1 else "x"))


TARGET = Target(
    "ranges",
    _check,
    refusals=(TarnError,),
    traced=(
        "tarn.block.rangefile",
        "tarn.core.listing.rangecolumns",
        "tarn.core.listing.run",
        "tarn.core.parquet",
        "tarn.core.parquet_lengths",
        "tarn.core.parquet_pages",
        "tarn.core.thrift",
    ),
    mutations=mutations_of(RANGE_SCHEMA, _value),
    tokens=(b"PAR1", b"PARE"),
    input_bytes_max=64 * 1024,
    memory_bytes=512 << 20,
    cpu_s=4.0,
)
