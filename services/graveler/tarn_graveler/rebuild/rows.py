"""Writes rows into the store that a rebuild fills: a temporary one, of which the target gets a checked copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tarn.kv.port import Group, Kv, Partition, Row
from tarn.kv.register import require_written

__all__ = ["write_rows"]

_ROWS: Final = 1_000


async def write_rows(kv: Kv, partition: Partition, rows: Sequence[Row]) -> None:
    """Writes rows, each as a group of its own, so that a look-up by key finds it in its bucket.

    Raises:
        TarnError: of the first row that was not written.
    """
    for at in range(0, len(rows), _ROWS):
        groups = [Group(row[0], (row,)) for row in rows[at : at + _ROWS]]
        require_written(await kv.set_many(partition, groups))
