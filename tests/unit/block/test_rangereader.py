"""Finding metaranges and ranges, and keeping them in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.clock import ManualClock
from tests.support.listings import run_of, sample_entry

from tarn.block import rangereader
from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.block.rangecache import RangeCache
from tarn.block.rangefile import (
    describe_range,
    encode_metarange,
    encode_range,
    metarange_path,
    range_path,
)
from tarn.block.rangereader import RangeReader
from tarn.core.ids import RangeId
from tarn.core.listing.metarange import EMPTY_METARANGE, Metarange

SPACE = "mem://lake"


@pytest.fixture
def reader(tmp_path: Path) -> RangeReader:
    return RangeReader(MemBlockStore(ManualClock()), RangeCache(tmp_path), None)


def metarange_of(number: int) -> Metarange:
    return Metarange((describe_range(run_of({"a": sample_entry(number)})),))


async def test_a_metarange_is_read_once(reader: RangeReader) -> None:
    made = metarange_of(1)
    key = BlockKey(SPACE, metarange_path(made.metarange_id))
    await reader.store.put(key, memoryview(encode_metarange(made)))
    assert reader.held_metarange(SPACE, made.metarange_id) is None
    assert await reader.metarange(SPACE, made.metarange_id) == made
    await reader.store.delete_many(SPACE, [key.path])
    assert await reader.metarange(SPACE, made.metarange_id) == made


async def test_the_empty_metarange_needs_no_file(reader: RangeReader) -> None:
    assert await reader.metarange(SPACE, EMPTY_METARANGE.metarange_id) == EMPTY_METARANGE


async def test_a_metarange_that_was_never_written_is_not_found(reader: RangeReader) -> None:
    with pytest.raises(BlockNotFoundError):
        await reader.metarange(SPACE, metarange_of(1).metarange_id)
    with pytest.raises(BlockNotFoundError):
        await reader.range(SPACE, RangeId("ab" * 32))


async def test_a_range_is_found_on_the_disk_of_this_machine(reader: RangeReader) -> None:
    run = run_of({"a": sample_entry(1)})
    range_id = describe_range(run).range_id
    key = BlockKey(SPACE, range_path(range_id))
    await reader.store.put(key, memoryview(encode_range(run)))
    assert (await reader.range(SPACE, range_id)).get("a") == sample_entry(1)
    await reader.store.delete_many(SPACE, [key.path])
    reader.cache.close()
    assert (await reader.range(SPACE, range_id)).get("a") == sample_entry(1)


def test_the_least_recently_used_metaranges_make_room(
    reader: RangeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rangereader, "_HELD_RANGES_MAX", 4)
    reader = RangeReader(reader.store, reader.cache, None)
    made = [metarange_of(number) for number in range(3)]
    reader.hold(SPACE, made[0])
    reader.hold(SPACE, made[1])
    assert reader.held_metarange(SPACE, made[0].metarange_id) is made[0]
    reader.hold(SPACE, made[2])
    held = [reader.held_metarange(SPACE, each.metarange_id) for each in made]
    assert held == [made[0], None, made[2]]
