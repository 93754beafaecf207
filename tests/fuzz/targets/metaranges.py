"""Metarange files: any bytes are either refused as damaged or are the listing that the id names."""

from __future__ import annotations

import random
import re

import pyarrow as pa
from tests.fuzz.targets.parquet import mutations_of
from tests.fuzz.targets.refusals import corrupt_only
from tests.support.fuzz.target import PropertyError, Target

from tarn.block.rangefile import METARANGE_SCHEMA, decode_metarange, encode_metarange
from tarn.core.errors import TarnError
from tarn.core.ids import MetarangeId

__all__ = ["TARGET"]

_NO_ID = MetarangeId("0" * 64)
_FOUND = re.compile(r"its rows hash to ([0-9a-f]{64})")
_HEX = re.compile(r"[0-9a-f]{64}")


def _check(data: bytes) -> str:
    try:
        corrupt_only(lambda: decode_metarange(_NO_ID, data))
    except TarnError as error:
        found = _FOUND.search(error.message)
        if found is None:
            raise
    else:
        raise PropertyError("no rows hash to zeros")
    metarange_id = MetarangeId(found[1])
    metarange = corrupt_only(lambda: decode_metarange(metarange_id, data))
    for info in metarange.ranges:
        if not _HEX.fullmatch(info.range_id):
            raise PropertyError(f"two spellings of one id: {info.range_id!r}")
    back = decode_metarange(metarange_id, encode_metarange(metarange).to_pybytes())
    if back != metarange:
        raise PropertyError("the rows change by being written again")
    for path in ("", "a", "\U0010ffff", *metarange.max_paths):
        place = metarange.range_of(path)
        if place < len(metarange.ranges) and metarange.ranges[place].max_path < path:
            raise PropertyError(f"{path!r} is looked for in the wrong range")
    return f"readable, {min(len(metarange.ranges), 3)} ranges, {metarange.count > 0}"


def _value(rng: random.Random, field: pa.Field) -> object:
    if field.name == "range_id":
        good = rng.randbytes(32).hex()
        return rng.choice(
            (good, good, good, good.upper(), good[:62], good + "00", good[:-1] + " ", "")
        )
    if field.name in ("min_path", "max_path"):
        return rng.choice(("", "a", "b", "é", "z" * 2000))
    return rng.choice((1, 1, 1, 0, -1, 2**63 - 1))


TARGET = Target(
    "metaranges",
    _check,
    refusals=(TarnError,),
    traced=("tarn.block.rangefile", "tarn.core.listing.metarange"),
    mutations=mutations_of(METARANGE_SCHEMA, _value),
    tokens=(b"PAR1", b"PARE"),
    input_bytes_max=64 * 1024,
    memory_bytes=512 << 20,
    cpu_s=4.0,
)
