"""A lake whose journal is drained to a bucket with faults, and what the store and the bucket have of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lake import Lake, Replicas
from tests.support.drained_files import Files, read_files

from tarn.block.local import LocalBlockStore
from tarn.block.port import BlockKey, BlockStore
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import COMPANION_KEYS, Partition
from tarn_graveler.journal.draining import Drain

__all__ = [
    "Bucket",
    "FaultyBlocks",
    "drain_of",
    "events_of",
    "held_events",
    "record_events_of",
    "refs_of",
]


class FaultyBlocks:
    """A store of blocks whose writes have the faults of a bucket."""

    def __init__(self, blocks: LocalBlockStore) -> None:
        self._blocks = blocks
        self.bucket: Bucket | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blocks, name)

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        if self.bucket is not None and (beside := self.bucket.beside) is not None:
            self.bucket.beside = None
            await beside()
        if self.bucket is not None and self.bucket.is_refused(key):
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the bucket refuses files")
        await self._blocks.put(key, body)
        if self.bucket is not None and self.bucket.loses in key.path:
            raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, "the answer is lost")


class Bucket:
    """The files of a lake, and their faults.

    Attributes:
        refuses: names of blocks whose writes fail before they land.
        loses: names of blocks whose writes land, and whose answers are lost.
        closed: a namespace that refuses every write.
        beside: is called once, before the next write.
    """

    def __init__(self, lake: Lake, replicas: Replicas, folder: Path) -> None:
        blocks: object = replicas.blocks
        assert isinstance(blocks, FaultyBlocks)
        self._lake = lake
        self._blocks = blocks
        self._folder = folder
        self._reads = 0
        self.refuses = self.loses = "nothing"
        self.closed = ""
        self.beside: Callable[[], Awaitable[None]] | None = None
        blocks.bucket = self

    def is_refused(self, key: BlockKey) -> bool:
        return self.refuses in key.path or self.closed == key.namespace

    @property
    def blocks(self) -> BlockStore:
        return self._blocks

    async def paths(self, ends: str) -> list[str]:
        """The files of the lake's journal whose names end so."""
        namespace = self._lake.repository.storage_namespace
        found = await self._blocks.list_page(namespace, "_tarn/journal/", "", 1_000)
        return [each.path for each in found if each.path.endswith(ends)]

    async def read(self) -> Files:
        self._reads += 1
        namespace = self._lake.repository.storage_namespace
        return await read_files(self._blocks, namespace, self._folder / f"replay{self._reads}")


def drain_of(lake: Lake) -> Drain:
    drain = lake.graveler.drain
    assert drain is not None
    return drain


async def events_of(lake: Lake, token: Partition) -> int:
    return len(await lake.kv.scan_companions(token, b"", None, 1_000))


def refs_of(lake: Lake) -> Partition:
    return lake.graveler.repositories.keys_of(lake.repository).refs


def record_events_of(files: Files) -> set[tuple[str, bytes]]:
    return {(row.key, row.event_id) for row in files.events if not row.token}


async def held_events(lake: Lake) -> set[bytes]:
    found = await lake.kv.scan_companions(refs_of(lake), b"", None, 1_000)
    return {each.key.removeprefix(COMPANION_KEYS) for each in found}
