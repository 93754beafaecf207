"""The local store keeps the contract and its own promises about files."""

import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest

from tarn.block.local import LocalBlockStore, open_local
from tarn.block.port import CHUNK_BYTES, BlockKey, BlockStore, FileBacked
from tarn.testing.contract.block_contract import BlockContract
from tarn.testing.contract.block_samples import data_path


class _Clock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


def _drafts(root: Path) -> list[Path]:
    return list(root.glob("**/.tmp/*"))


class _Local(BlockContract):
    scheme = "local"
    durability: Literal["fsync", "os"]

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[BlockStore]:
        store = await open_local(tmp_path / "root", clock=_Clock(), durability=self.durability)
        yield store
        await store.close()
        # After each test, no draft and no open descriptor may remain.
        assert not _drafts(tmp_path)
        assert store._files.count == 0


class TestLocalWithFsync(_Local):
    durability = "fsync"

    async def test_store_is_file_backed(self, store: BlockStore) -> None:
        assert isinstance(store, FileBacked)
        assert isinstance(store, LocalBlockStore)
        backed: FileBacked = store  # with these signatures, says mypy
        assert backed is store


class TestLocalWithoutFsync(_Local):
    durability = "os"


@pytest.mark.slow
async def test_256_mib_pass_in_bounded_memory(tmp_path: Path) -> None:
    store: LocalBlockStore = await open_local(tmp_path, clock=_Clock(), durability="os")
    key = BlockKey("local://lake", data_path(1))
    chunk = bytearray(CHUNK_BYTES)
    tracemalloc.start()
    try:
        async with await store.open_write(key) as writer:
            for _ in range(256):
                await writer.write(chunk)
            await writer.finish()
        size = 0
        async for piece in store.stream(key, 0, 256 << 20):
            size += len(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        await store.close()
    assert size == 256 << 20
    assert peak < 6 * CHUNK_BYTES
