"""Replicas over each of the two stores of one machine; they count what they scan."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from lake import Replicas
from tests.support.faults.gates import GatedKv

from tarn.kv.embedded import open_embedded
from tarn.kv.mem import MemKv
from tarn.kv.port import Kv, Partition, Row


class CountedKv(GatedKv):
    """Counts scans, and the rows that they return."""

    scans = 0
    rows = 0

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        found = await super().scan(partition, start, end, limit)
        self.scans += 1
        self.rows += len(found)
        return found


@pytest.fixture(params=["memory", "embedded"])
async def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Replicas]:
    """Examples of a property make repositories of their own."""
    made = Replicas(tmp_path)
    path = tmp_path / "kv.db"
    kv: Kv = MemKv() if request.param == "memory" else await open_embedded(path, durability="os")
    made.kv = CountedKv(kv)
    yield made
    await made.tasks.close()
    await made.kv.close()
    await made.blocks.close()
