"""Services open a store only if it may be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.clock import ManualClock, SeededIds

from tarn.config import load
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import LEVEL_MAX, StoreLevel
from tarn.kv.fence import Fence, FenceState, read_fence, read_level, write_fence
from tarn.kv.opening import open_kv, open_kv_to_read, open_store

CLOCK = ManualClock()
IDS = SeededIds(CLOCK)


async def test_a_service_does_not_start_behind_a_fence_but_a_tool_does(tmp_path: Path) -> None:
    config = load(None, {"TARN_DATA_DIR": str(tmp_path)})
    store = await open_kv(config, CLOCK, IDS)
    _, predicate = await read_fence(store, "tarn")
    await write_fence(store, "tarn", Fence(FenceState.MOVED, "t", "r", "to x", 1), predicate)
    await store.close()
    for _ in range(2):  # the refused attempt leaves nothing open
        with pytest.raises(TarnError, match="has moved elsewhere") as caught:
            await open_kv(config, CLOCK, IDS)
        assert caught.value.kind is Kind.FAILED_PRECONDITION
    await (await open_store(config, CLOCK, IDS, alone=True)).close()


async def test_a_release_that_is_too_old_opens_a_store_in_no_way(tmp_path: Path) -> None:
    config = load(None, {"TARN_DATA_DIR": str(tmp_path)})
    store = await open_kv(config, CLOCK, IDS)
    assert (await read_level(store, "tarn")).level == LEVEL_MAX
    _, predicate = await read_fence(store, "tarn")
    level = StoreLevel(LEVEL_MAX + 1, LEVEL_MAX + 1)
    await write_fence(store, "tarn", None, predicate, level=level)
    await store.close()
    for opening in (open_kv, open_store, open_kv_to_read):
        with pytest.raises(TarnError, match="too old") as caught:
            await opening(config, CLOCK, IDS)
        assert caught.value.reason is Reason.FEATURE_LEVEL


async def test_exclusive_use_and_shared_use_exclude_each_other(tmp_path: Path) -> None:
    config = load(None, {"TARN_DATA_DIR": str(tmp_path)})
    first, second = await open_kv(config, CLOCK, IDS), await open_kv(config, CLOCK, IDS)
    await second.close()
    with pytest.raises(TarnError, match="stop Tarn first") as caught:
        await open_store(config, CLOCK, IDS, alone=True)
    assert caught.value.kind is Kind.FAILED_PRECONDITION
    await first.close()
    tool = await open_store(config, CLOCK, IDS, alone=True)
    with pytest.raises(TarnError, match="a tool has it alone"):
        await open_kv(config, CLOCK, IDS)
    await tool.close()
    await (await open_kv(config, CLOCK, IDS)).close()
