"""`MeteredBlocks` keeps the contract of the port, and counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.clock import ManualClock

from tarn.block.local import open_local
from tarn.block.mem import MemBlockStore
from tarn.block.metered import metered
from tarn.block.port import (
    BlockKey,
    BlockNotFoundError,
    BlockStore,
    FileBacked,
    PresignsParts,
    PresignsReads,
    PresignsWrites,
    ThreadWriter,
)
from tarn.rpc.process.system import SystemClock
from tarn.telemetry.meters import Meters
from tarn.testing.contract.block_contract import BlockContract

KEY = BlockKey("local://lake", "data/a")


class TestMeteredBlocks(BlockContract):
    scheme = "local"

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[BlockStore]:
        clock = SystemClock()
        blocks = await open_local(tmp_path / "blocks", clock=clock, durability="os")
        store = metered(blocks, clock, Meters())
        yield store
        await store.close()


def calls(meters: Meters) -> dict[str, float]:
    found = meters.samples("block.duration.count")
    return {labels["operation"]: count for labels, count in found if count}


async def test_a_driver_with_files_keeps_offering_them(tmp_path: Path) -> None:
    clock, meters = SystemClock(), Meters()
    local = metered(await open_local(tmp_path / "blocks", clock=clock), clock, meters)
    assert isinstance(local, FileBacked)
    await local.put(KEY, bytes(1 << 20))
    file = await local.open_file(KEY)
    assert file is not None
    file.close()
    assert calls(meters) == {"put": 1, "open_file": 1}
    await local.close()
    in_memory = metered(MemBlockStore(ManualClock()), clock, Meters())
    assert not isinstance(in_memory, FileBacked)


async def test_only_buckets_offer_urls(tmp_path: Path) -> None:
    clock = SystemClock()
    local = await open_local(tmp_path / "blocks", clock=clock)
    for store in (local, metered(local, clock, Meters()), MemBlockStore(ManualClock())):
        assert not isinstance(store, PresignsReads | PresignsWrites | PresignsParts)
    await local.close()


async def test_calls_bytes_and_failures_are_counted(tmp_path: Path) -> None:
    clock, meters = SystemClock(), Meters()
    store = metered(await open_local(tmp_path / "blocks", clock=clock), clock, meters)
    async with await store.open_write(KEY) as writer:
        await writer.write(b"abc")
        assert isinstance(writer, ThreadWriter)
        await writer.write_by_thread(lambda append, _: append(memoryview(b"de")))
        await writer.finish()
    assert await store.read(KEY) == b"abcde"
    assert b"".join([chunk async for chunk in store.stream(KEY, 1, 3)]) == b"bcd"
    with pytest.raises(BlockNotFoundError):
        await store.stat(BlockKey(KEY.namespace, "data/none"))
    found = calls(meters)
    assert found.pop("stream") >= 1
    assert found == {"open_write": 1, "write": 2, "finish": 1, "read": 1, "stat": 1}
    assert list(meters.samples("block.written")) == [({}, 5)]
    assert list(meters.samples("block.read")) == [({}, 8)]
    failed = {"operation": "stat", "reason": "BLOCK_NOT_FOUND"}
    assert list(meters.samples("block.failed")) == [(failed, 1)]
    assert all(count == 0 for _, count in meters.samples("block.in_flight"))
    await store.close()
