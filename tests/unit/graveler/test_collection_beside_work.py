"""Random interleavings of a collector with writers, readers and builds: nothing that is referenced is deleted."""

from pathlib import Path

import pytest
from beside_work import World, play


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_nothing_that_is_referenced_is_deleted(seed: int, tmp_path: Path) -> None:
    world = await play(seed, tmp_path, 25, World)
    assert world.problems == []
    assert world.deleted > 5
