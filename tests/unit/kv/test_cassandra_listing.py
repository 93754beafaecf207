"""Pages of a table in the order of the ring, where two places may share a token."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.clock import ManualClock

from tarn.core.errors import Kind, TarnError
from tarn.kv.cassandra.cluster.retry import Retry
from tarn.kv.cassandra.partitions import listing
from tarn.kv.cassandra.partitions.descriptors import (
    DESCRIPTOR_BUCKET,
    PartitionDescriptor,
    PartitionDescriptors,
)
from tarn.kv.cassandra.partitions.listing import Listing

Key = tuple[bytes, int, int]
"""Returns p, b and ring token of a row."""


class Ring(Listing):
    """A table as a list of places and tokens."""

    def __init__(self, rows: list[Key], descriptors: object = None) -> None:
        unused = cast("Any", SimpleNamespace(cas_list=None, plain_list=None))
        retry = Retry(ManualClock(), random.Random(0), 1)
        super().__init__(unused, unused, cast("PartitionDescriptors", descriptors), retry)
        self._rows = sorted(rows, key=lambda row: (row[2], row[0], row[1]))

    def _ask(self, statement: object, token: int, limit: int) -> asyncio.Future[list[Key]]:
        del statement
        future: asyncio.Future[list[Key]] = asyncio.get_running_loop().create_future()
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


class DamagedDescriptors:
    """Descriptions that cannot be read."""

    async def describe(self, _name: str) -> PartitionDescriptor | None:
        await asyncio.sleep(0)
        return PartitionDescriptor.decode(b"not a descriptor")


async def test_a_damaged_descriptor_is_reported_as_damage() -> None:
    """Descriptors are read concurrently; their errors come as a group, which is not a `TarnError`."""
    ring = Ring([(b"p", DESCRIPTOR_BUCKET, 1), (b"q", DESCRIPTOR_BUCKET, 2)], DamagedDescriptors())
    with pytest.raises(TarnError, match="cannot be read") as caught:
        [listed async for listed in ring.partitions("")]
    assert caught.value.kind is Kind.CORRUPT
