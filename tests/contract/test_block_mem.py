"""The memory store keeps the contract."""

from collections.abc import AsyncIterator

import pytest

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockStore
from tarn.testing.contract.block_contract import BlockContract


class _Clock:
    def __init__(self) -> None:
        self._now_us = 1_800_000_000_000_000

    def now_us(self) -> int:
        self._now_us += 1
        return self._now_us

    def monotonic(self) -> float:
        return self._now_us / 1e6

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class TestMemBlockStore(BlockContract):
    scheme = "mem"

    @pytest.fixture
    async def store(self) -> AsyncIterator[BlockStore]:
        store = MemBlockStore(_Clock())
        yield store
        await store.close()
