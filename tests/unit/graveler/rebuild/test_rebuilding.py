"""A rebuild makes a lost store anew from the bucket: records, and uncommitted changes as listings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rebuild_lab import RebuildLab, rebuild_lab


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[RebuildLab]:
    async with rebuild_lab(tmp_path) as made:
        yield made


async def test_a_rebuilt_store_shows_what_the_lost_one_showed(lab: RebuildLab) -> None:
    """Commits, tags, branches, and uncommitted changes with deletions."""
    lake = lab.lake
    await lake.put("a", 1)
    await lake.put("b", 2)
    await lake.commit("first")
    await lake.put("c", 3)
    await lake.delete("a")
    await lab.drain()
    before = await lab.shown(lake.graveler, lake.repository)
    report = await lab.rebuild()
    async with lab.rebuilt() as (graveler, repository):
        assert await lab.shown(graveler, repository) == before
    assert report.is_whole, report.as_record()
