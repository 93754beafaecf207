"""`EmbeddedKv` is held to the port, alone and shared by processes, in both durabilities."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tarn.kv.embedded import open_embedded
from tarn.kv.port import Kv
from tarn.testing.kv_contract import (
    KvContract,
    Opener,
    SharedKvContract,
)


class TestEmbeddedKv(KvContract, SharedKvContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return functools.partial(open_embedded, tmp_path / "kv.db")

    @pytest.fixture
    async def kv(self, opener: Opener) -> AsyncIterator[Kv]:
        store = await opener()
        yield store
        await store.close()


class TestEmbeddedKvWithoutSync(KvContract, SharedKvContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return functools.partial(open_embedded, tmp_path / "kv.db", durability="os")

    @pytest.fixture
    async def kv(self, opener: Opener) -> AsyncIterator[Kv]:
        store = await opener()
        yield store
        await store.close()
