"""Fixtures: a lake with a journal, over the embedded store and local blocks, and its bucket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from drained_lake import Bucket, FaultyBlocks
from lake import Lake, Replicas

from tarn.block.local import open_local
from tarn.kv.embedded import open_embedded


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    """Real components: the embedded store, and blocks in files."""
    kv = await open_embedded(tmp_path / "kv.db", durability="os")
    made = Replicas(tmp_path, kv, keeps_events=True)
    await made.blocks.close()
    blocks = await open_local(tmp_path / "blocks", clock=made.clock)
    made.blocks = FaultyBlocks(blocks)  # type: ignore[assignment]
    yield made
    await made.tasks.close()
    await made.kv.close()
    await made.blocks.close()


@pytest.fixture
async def bucket(lake: Lake, replicas: Replicas, tmp_path: Path) -> Bucket:
    return Bucket(lake, replicas, tmp_path)
