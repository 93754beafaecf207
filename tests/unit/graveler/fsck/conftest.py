"""A lake to check."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fsck_lab import FsckLab
from lake import Lake, Replicas, create_repository
from tests.support.clock import SeededIds
from tests.support.faults.gates import GatedKv

from tarn.kv.mem import MemKv


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[FsckLab]:
    kv = MemKv()
    replicas = Replicas(tmp_path)
    replicas.kv = GatedKv(kv)
    async with replicas.replica() as graveler:
        repository = await create_repository(graveler)
        lake = Lake(graveler, repository, replicas.kv, replicas.clock)
        yield FsckLab(lake, kv, replicas.blocks, tmp_path, SeededIds(replicas.clock, seed=99))
    await replicas.tasks.close()
    await kv.close()
    await replicas.blocks.close()
