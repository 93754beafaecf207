"""Pages of a table in the order of the ring, where two places may share a token."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import pytest

from tarn.kv.cassandra import listing
from tarn.kv.cassandra.listing import Listing
from tarn.kv.cassandra.retry import Retry
from tarn.testing.clock import ManualClock

Place = tuple[bytes, int, int]


class Ring(Listing):
    """A table as a list of places and tokens."""

    def __init__(self, rows: list[Place]) -> None:
        nothing = cast("Any", None)
        super().__init__(nothing, nothing, nothing, Retry(ManualClock(), random.Random(0), 1))
        self._rows = sorted(rows, key=lambda row: (row[2], row[0], row[1]))

    def _ask(self, statement: object, token: int, limit: int) -> asyncio.Future[list[Place]]:
        del statement
        future: asyncio.Future[list[Place]] = asyncio.get_running_loop().create_future()
        future.set_result([row for row in self._rows if row[2] >= token][:limit])
        return future


@pytest.mark.parametrize("count", [0, 1, 3, 4, 40])
@pytest.mark.parametrize("tokens", [1, 2, 7, 1000])
async def test_every_place_comes_once(
    count: int, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_PAGE", 4)
    chance = random.Random(count * tokens)
    rows = [(b"p%d" % n, n % 3, chance.randrange(tokens) - tokens // 2) for n in range(count)]
    found = [place async for page in Ring(rows)._pages(None) for place in page]
    assert sorted(found) == sorted((p, b) for p, b, _ in rows)
