"""Places of paths in a listing, as far as opened ranges tell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.clock import ManualClock
from tests.support.listings import sample_entry, staged

from tarn.block.committed import Committed
from tarn.block.mem import MemBlockStore
from tarn.block.rangecache import RangeCache
from tarn.core.ids import MetarangeId, RangeId
from tarn.core.listing.breaks import BreakRule

SPACE = "mem://lake"
PATHS = [f"k{number:03}" for number in range(0, 90, 3)]


class Listed:
    """A listing of several ranges, and a machine that has opened none of them."""

    def __init__(self, committed: Committed, metarange_id: MetarangeId) -> None:
        self.committed, self.metarange_id = committed, metarange_id

    def held(self, paths: list[str]) -> list[str]:
        """Returns the paths of the rows at the places that are found."""
        return [
            PATHS[self._before(range_id) + int(row)]
            for range_id, rows in self._places(paths)
            for row in rows
        ]

    def _places(self, paths: list[str]) -> list[tuple[RangeId, list[int]]]:
        found = self.committed.held_places(SPACE, self.metarange_id, paths)
        return [(info.range_id, list(map(int, rows))) for info, rows in found]

    def _before(self, range_id: RangeId) -> int:
        metarange = self.committed._reader.held_metarange(SPACE, self.metarange_id)
        assert metarange is not None
        ids = [info.range_id for info in metarange.ranges]
        return sum(info.count for info in metarange.ranges[: ids.index(range_id)])


@pytest.fixture
async def listed(tmp_path: Path) -> AsyncIterator[Listed]:
    store, rule = MemBlockStore(ManualClock()), BreakRule(rows_mean=4, rows_max=50)
    writer = Committed(store, RangeCache(tmp_path / "writer"), rule=rule)
    rows = {path: sample_entry(number) for number, path in enumerate(PATHS)}
    built = await writer.build(SPACE, None, [staged(rows, 7)])
    yield Listed(Committed(store, RangeCache(tmp_path / "reader"), rule=rule), built.metarange_id)
    await store.close()


async def test_nothing_is_fetched(listed: Listed) -> None:
    assert listed.held(PATHS) == []
    await listed.committed.metarange(SPACE, listed.metarange_id)
    assert listed.held(PATHS) == []
    await listed.committed.lookup(SPACE, listed.metarange_id, PATHS[0])
    first = listed.held(PATHS)
    assert 0 < len(first) < len(PATHS)
    assert first == PATHS[: len(first)]


async def test_each_path_has_its_own_row_and_others_have_none(listed: Listed) -> None:
    for path in PATHS:
        await listed.committed.lookup(SPACE, listed.metarange_id, path)
    assert listed.held(PATHS) == PATHS
    assert listed.held(PATHS[3:20:4]) == PATHS[3:20:4]
    between = sorted([*PATHS[5:9], "a", "k016", "k0", "k085", "k087x", "z"])
    assert listed.held(between) == PATHS[5:9]
    assert listed.held(["k0880", "zz"]) == []
    assert listed.held([]) == []
