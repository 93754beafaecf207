"""`MemKv` is held to the port."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tarn.kv.mem import MemKv
from tarn.kv.port import Kv
from tarn.testing.kv_contract import KvContract


class TestMemKv(KvContract):
    @pytest.fixture
    async def kv(self) -> AsyncIterator[Kv]:
        store = MemKv()
        yield store
        await store.close()
