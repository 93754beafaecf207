"""Cuts the listing of a namespace into slices that executors list in parallel. Pure.

Every path of a block is in exactly one slice. Blocks of data are cut by the hour in their path, ranges and metaranges
by the first digit of their id, which is a hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tarn.collection.block_names import BlockKind

__all__ = ["Slice", "data_slices", "metadata_slices"]

_HOURS_MAX: Final = 50_000
"""More than five years; beyond it, a slice is a day."""
_HOUR_US: Final = 3_600_000_000
_DIGITS: Final = "0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Slice:
    """Some paths of one kind of block.

    Attributes:
        kind: of the blocks.
        prefix: of the paths.
        after: the paths are greater; empty: all with the prefix.
    """

    kind: BlockKind
    prefix: str
    after: str = ""


def metadata_slices(kind: BlockKind) -> list[Slice]:
    """Returns the slices of ranges or metaranges."""
    return [Slice(kind, kind.prefix + digit) for digit in _DIGITS]


def data_slices(first_path: str, now_us: int) -> list[Slice]:
    """Returns the slices of data.

    Args:
        first_path: of the first block of data in byte order; no block is before it.
        now_us: most blocks are from before this time, microseconds since the epoch. The last slice has the others.
    """
    prefix = BlockKind.DATA.prefix
    first = _hour_number(first_path.removeprefix(prefix)[:10])
    last = max(now_us // _HOUR_US, first)
    if last - first < _HOURS_MAX:
        names = [_hour_name(hour) + "/" for hour in range(first, last + 1)]
        rest = _hour_name(last) + "0"  # `0` follows `/`
    else:
        names = [_hour_name(day * 24)[:8] for day in range(first // 24, last // 24 + 1)]
        rest = names[-1] + "24"  # the last hour of a day is 23
    slices = [Slice(BlockKind.DATA, prefix + name) for name in names]
    return [*slices, Slice(BlockKind.DATA, prefix, prefix + rest)]


def _hour_number(name: str) -> int:
    """Returns the hours since the epoch of `yyyymmddhh`."""
    moment = datetime.strptime(name, "%Y%m%d%H").replace(tzinfo=UTC)
    return int(moment.timestamp()) // 3600


def _hour_name(number: int) -> str:
    return datetime.fromtimestamp(number * 3600, UTC).strftime("%Y%m%d%H")
