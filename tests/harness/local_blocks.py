"""A local block store in a folder, and its files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tarn.block.local import LocalBlockStore, open_local
from tarn.block.port import BlockKey

__all__ = ["Clock", "files", "key", "local_store"]


class Clock:
    """A clock that stands still; a store that sleeps is an error."""

    def __init__(self, now_us: int = 1_800_000_000_000_000) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        return self._now_us

    def monotonic(self) -> float:
        return self._now_us / 1e6

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


@asynccontextmanager
async def local_store(root: Path) -> AsyncIterator[LocalBlockStore]:
    """Opens a store that must have no open file at the end."""
    store = await open_local(root, clock=Clock())
    yield store
    await store.close()
    assert store._files.count == 0


def key(path: str, name: str = "lake") -> BlockKey:
    return BlockKey(f"local://{name}", path)


def files(root: Path) -> list[str]:
    """Returns all files below the root except the driver's own."""
    paths = (path.relative_to(root) for path in root.rglob("*") if not path.is_dir())
    return sorted(str(path) for path in paths if path.parts[0] != ".tarn")
