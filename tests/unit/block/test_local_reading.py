"""The local block store opened for reading."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.clock import ManualClock

from tarn.block.local import open_local
from tarn.block.port import BlockKey
from tarn.core.errors import Kind, TarnError

SMALL = BlockKey("local://lake", "data/2026010100/" + "1" * 32)
LARGE = BlockKey("local://lake", "data/2026010100/" + "2" * 32)


def contents(folder: Path) -> list[Path]:
    return list(folder.rglob("*"))


async def test_it_reads_both_kinds_of_blocks_and_touches_nothing(tmp_path: Path) -> None:
    root = tmp_path / "blocks"
    store = await open_local(root, clock=ManualClock())
    await store.put(SMALL, b"small")
    await store.put(LARGE, b"large" * 100_000)
    await store.close()
    before = sorted(path for path in root.rglob("*"))
    reader = await open_local(root, clock=ManualClock(), read_only=True)
    assert await reader.read(SMALL) == b"small"
    assert (await reader.stat(LARGE)).size == 500_000
    page = await reader.list_page("local://lake", "data/", "", 10)
    assert [info.path for info in page] == [SMALL.path, LARGE.path]
    await reader.close()
    after = [path for path in root.rglob("*") if not path.name.endswith(("-wal", "-shm"))]
    assert sorted(after) == before


async def test_a_missing_store_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(TarnError) as refused:
        await open_local(tmp_path / "blocks", clock=ManualClock(), read_only=True)
    assert refused.value.kind is Kind.NOT_FOUND
    assert contents(tmp_path) == []
