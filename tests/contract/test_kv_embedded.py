"""`EmbeddedKv` keeps the contract of the port, alone and shared by processes, with both durabilities."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tarn.kv.embedded import open_embedded
from tarn.testing.contract.kv_contract import (
    AtOnceContract,
    BesideContract,
    KvContract,
    Opener,
    SharedKvContract,
    TogetherContract,
)


class TestEmbeddedKv(
    KvContract, SharedKvContract, TogetherContract, AtOnceContract, BesideContract
):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return functools.partial(open_embedded, tmp_path / "kv.db")


class TestEmbeddedKvWithoutSync(KvContract, SharedKvContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return functools.partial(open_embedded, tmp_path / "kv.db", durability="os")
