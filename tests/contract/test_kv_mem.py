"""`MemKv` keeps the contract of the port."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tarn.kv.mem import MemKv
from tarn.kv.port import Group, Kv, Partition
from tarn.testing.contract.kv_contract import KvContract, TogetherContract
from tarn.testing.contract.kv_fixtures import get


class TestMemKv(KvContract, TogetherContract):
    @pytest.fixture
    async def kv(self) -> AsyncIterator[Kv]:
        store = MemKv()
        yield store
        await store.close()

    async def test_rows_beside_their_anchor_are_not_found_by_their_keys(
        self, kv: Kv, either: Partition
    ) -> None:
        """On Cassandra the key decides whether they are found, so tests must not rely on the opposite answer."""
        spread = Partition(f"{either.name}/spread", either.kind, buckets=4)
        beside = Group(b"row", ((b"row", b"1"), (b"note", b"")))
        assert await kv.set_many(spread, [beside]) == [None]
        assert await kv.get_many(spread, [b"note"]) == [None]
        assert await kv.set_many(spread, [Group(b"note", ((b"note", b"2"),))]) == [None]
        assert await get(kv, spread, b"note") == b"2"
