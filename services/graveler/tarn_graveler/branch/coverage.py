"""Which committed rows a staging token overrides, as far as this replica has seen.

A row of a token never disappears: it is overwritten by another row of its path, or its whole token leaves the
record. So "the token holds a row of this path" stays true for as long as any record names the token. And "this token
covers the nth row of that range" may be remembered without a check, for ever: ids of tokens and of ranges are never
used again for anything else. Whether the row is an entry or a tombstone is not remembered, because that changes.
docs/design/tombstones.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tarn.aio.lru_cache import LruCache
from tarn.core.ids import RangeId
from tarn.core.listing.run import Bools, Ints
from tarn.kv.port import Partition

__all__ = ["Coverage"]

_BYTES_MAX = 32 << 20
"""One byte for each row of a range, so some 300 pairs of a token and a range of 100,000 rows."""
_OVERHEAD_BYTES = 500


class Coverage:
    """Rows of ranges that rows of tokens override. Belongs to one event loop."""

    def __init__(self, bytes_max: int = _BYTES_MAX) -> None:
        self._known: LruCache[tuple[str, RangeId], Bools] = LruCache(
            bytes_max, size_of=lambda rows: len(rows) + _OVERHEAD_BYTES
        )

    def of(self, tokens: Sequence[Partition], range_id: RangeId) -> Bools | None:
        """Returns for each row of a range whether one of the tokens covers it; None if none is known to be."""
        found: Bools | None = None
        for token in tokens:
            rows = self._known.get((token.name, range_id))
            if rows is not None:
                found = rows if found is None else found | rows
        return found

    def learn(self, token: Partition, range_id: RangeId, count: int, rows: Ints) -> None:
        """Notes rows of a range of `count` rows that a token covers."""
        if not len(rows):
            return
        key = (token.name, range_id)
        known = self._known.get(key)
        if known is None:
            known = np.zeros(count, np.bool_)
            self._known.put(key, known)
        known[rows] = True
