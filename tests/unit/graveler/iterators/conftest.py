"""A lake over each of the two stores of one machine."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from lake import Lake, Replicas, create_repository

from tarn.kv.embedded import open_embedded
from tarn.kv.mem import MemKv
from tarn.kv.port import Kv, Partition, Row
from tarn.testing.faults.gates import GatedKv


class CountedKv(GatedKv):
    """Counts the rows that scans return."""

    rows = 0

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        found = await super().scan(partition, start, end, limit)
        self.rows += len(found)
        return found


async def _open(store: str, path: Path) -> Kv:
    return MemKv() if store == "memory" else await open_embedded(path, durability="os")


@pytest.fixture(params=["memory", "embedded"])
async def lake(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lake]:
    """A repository; examples of a property make repositories of their own beside it."""
    replicas = Replicas(tmp_path)
    replicas.kv = CountedKv(await _open(request.param, tmp_path / "kv.db"))
    async with replicas.replica() as graveler:
        repository = await create_repository(graveler)
        yield Lake(graveler, repository, replicas.kv, replicas.clock)
    await replicas.tasks.close()
    await replicas.kv.close()
    await replicas.blocks.close()
