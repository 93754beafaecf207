"""A run of the local block store, and the state that a crash must leave."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Coroutine, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.crash.examine import LostError
from tests.support.clock import ManualClock
from tests.support.crash.trace import Trace

from tarn.block.local import LocalBlockStore, open_local
from tarn.block.port import BlockKey, BlockNotFoundError, BlockWriter

ROOT = Path("data/blocks")
NAMESPACES = ("local://lake", "local://other/deep")
SMALL_BYTES = 1000
_TWO_DAYS_US = 48 * 3600 * 1_000_000


@dataclass(slots=True)
class _Block:
    key: BlockKey
    body: bytes
    sent_at: int
    is_row: bool
    answered_at: int | None = None
    removed_at: int | None = None  # when its removal was requested
    removal_answered_at: int | None = None

    def must_be_there(self, at: int) -> bool:
        return _before(self.answered_at, at) and (self.removed_at is None or self.removed_at >= at)

    def may_be_there(self, at: int, *, durably_removed: bool) -> bool:
        # The removal of a file is not synced.
        gone = durably_removed and _before(self.removal_answered_at, at)
        return self.sent_at < at and not gone


@dataclass(slots=True)
class _Upload:
    key: BlockKey
    name: str
    body: bytes
    parts: list[tuple[int, str]]
    parts_answered_at: int | None = None
    discarded_at: int | None = None  # when that was sent


def _before(answered_at: int | None, at: int) -> bool:
    return answered_at is not None and answered_at <= at


@dataclass(slots=True)
class BlockStory:
    """The writes and removals of a run, as its only client knows them."""

    durability: Literal["fsync", "os"]
    answered_at: list[int] = field(default_factory=list)
    blocks: dict[BlockKey, _Block] = field(default_factory=dict)
    uploads: list[_Upload] = field(default_factory=list)

    async def check(self, root: Path, at: int, *, power_failed: bool, go_on: bool = True) -> None:
        """See `Story.check`."""
        is_weak = power_failed and self.durability == "os"
        # Two days later: the drafts are old enough to be swept.
        clock = ManualClock(time.time_ns() // 1000 + _TWO_DAYS_US)
        store = await open_local(
            root / ROOT, clock=clock, durability=self.durability, small_bytes_max=SMALL_BYTES
        )
        try:
            if is_weak:
                await self._check_rows(store, at)
            else:
                left = [*(root / ROOT).glob("**/.tmp/*"), *(root / ROOT).glob(".tarn/probe*")]
                if left:
                    raise LostError(f"opening left {left}")
                await self._check_blocks(store, at, durably_removed=self.durability == "fsync")
                await self._check_listings(store, at)
                if go_on:
                    await self._check_uploads(store, at)
            with closing(sqlite3.connect(root / ROOT / ".tarn/small.sqlite")) as connection:
                if (told := connection.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
                    raise LostError(f"the file of small bodies is damaged: {told}")
        finally:
            await store.close()

    async def _check_blocks(
        self, store: LocalBlockStore, at: int, *, durably_removed: bool
    ) -> None:
        for block in self.blocks.values():
            body = await _read(store, block.key)
            if body is None:
                if block.must_be_there(at):
                    raise LostError(f"{block.key} is gone")
            elif not block.may_be_there(at, durably_removed=durably_removed and block.is_row):
                raise LostError(f"{block.key} was not written, or it was removed for good")
            elif body != block.body:
                raise LostError(f"{block.key} has other bytes than were written")

    async def _check_rows(self, store: LocalBlockStore, at: int) -> None:
        """With durability "os" a power failure loses the last rows; a row that exists proves earlier ones."""
        rows = [block for block in self.blocks.values() if block.is_row]
        bodies = {block.key: await _read(store, block.key) for block in rows}
        there = [block for block in rows if bodies[block.key] is not None]
        if any(bodies[block.key] != block.body for block in there):
            raise LostError("a row has other bytes than were written")
        last = max((block.sent_at for block in there), default=-1)
        for block in rows:
            older = _before(block.answered_at, last) and block.must_be_there(at)
            if older and bodies[block.key] is None:
                raise LostError(f"{block.key} is gone, but what was written after it is there")

    async def _check_listings(self, store: LocalBlockStore, at: int) -> None:
        for namespace in NAMESPACES:
            listed = {
                BlockKey(namespace, info.path): info.size
                for info in await store.list_page(namespace, "", "", 10_000)
            }
            for key, size in listed.items():
                block = self.blocks.get(key)
                if block is None or len(block.body) != size:
                    raise LostError(f"{key} of {size} bytes is listed")
            for block in self.blocks.values():
                there = block.key in listed
                if block.key.namespace == namespace and block.must_be_there(at) and not there:
                    raise LostError(f"{block.key} is not listed")

    async def _check_uploads(self, store: LocalBlockStore, at: int) -> None:
        """Checks that acknowledged parts can be joined until the upload is discarded."""
        for upload in self.uploads:
            if not _before(upload.parts_answered_at, at):
                continue
            if upload.discarded_at is not None and upload.discarded_at < at:
                continue
            joined = await store.uploads.complete(upload.key, upload.name, upload.parts)
            if joined.size != len(upload.body) or await _read(store, upload.key) != upload.body:
                raise LostError(f"upload {upload.name} joins to other bytes than its parts'")


async def _read(store: LocalBlockStore, key: BlockKey) -> bytes | None:
    try:
        return await store.read(key)
    except BlockNotFoundError:
        return None


class BlockRun:
    """Plays a seeded run on a store whose folder is recorded."""

    def __init__(self, trace: Trace, seed: int, durability: Literal["fsync", "os"]) -> None:
        self.story = BlockStory(durability)
        self._trace = trace
        self._chance = random.Random(seed)
        self._clock = ManualClock()
        self._count = 0
        self._open_writers: list[BlockWriter] = []

    async def play(self, rounds: int) -> BlockStory:
        """Plays `rounds` rounds and returns the story; the operations of a round run concurrently."""
        store = await self._open()
        for number in range(rounds):
            if number % 12 == 11:
                await store.close()  # aborts open writes, empties and removes the log
                store = await self._open()
            await self._round(store)
        await store.close()
        return self.story

    async def _open(self) -> LocalBlockStore:
        return await open_local(
            self._trace.root / ROOT,
            clock=self._clock,
            durability=self.story.durability,
            small_bytes_max=SMALL_BYTES,
        )

    async def _round(self, store: LocalBlockStore) -> None:
        kinds = [self._small] * 8 + [self._large] * 3 + [self._metadata] * 2 + [self._streamed] * 2
        calls = [self._chance.choice(kinds)(store) for _ in range(self._chance.randint(1, 7))]
        fate = self._chance.random()
        if fate < 0.35:
            calls += [self._upload(store)]
        elif fate < 0.65:
            calls += [self._remove(store)]
        elif fate < 0.75:
            calls += [self._begin(store)]
        await self._together(calls)

    async def _together(self, calls: Sequence[Coroutine[Any, Any, None]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for call in calls:
                tasks.create_task(call)
        self.story.answered_at.append(self._trace.now)

    def _key(self, top: str = "data") -> BlockKey:
        self._count += 1
        folder = f"{top}/{self._chance.randrange(6):02}"
        return BlockKey(self._chance.choice(NAMESPACES), f"{folder}/{self._count:05}")

    def _body(self, low: int, high: int) -> bytes:
        return self._chance.randbytes(self._chance.randint(low, high))

    def _send(self, key: BlockKey, body: bytes, *, is_row: bool = False) -> _Block:
        block = self.story.blocks[key] = _Block(key, body, self._trace.now, is_row)
        return block

    def _answer(self, block: _Block) -> None:
        block.answered_at = self._trace.now
        self.story.answered_at.append(self._trace.now)

    async def _small(self, store: LocalBlockStore) -> None:
        await self._put(store, self._key(), self._body(0, SMALL_BYTES))

    async def _large(self, store: LocalBlockStore) -> None:
        await self._put(store, self._key(), self._body(SMALL_BYTES + 1, 9000))

    async def _metadata(self, store: LocalBlockStore) -> None:
        """Writes the same bytes under the same name from two writers concurrently."""
        key, body = self._key("_tarn"), self._body(1, 5000)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(2):
                tasks.create_task(self._put(store, key, body))

    async def _put(self, store: LocalBlockStore, key: BlockKey, body: bytes) -> None:
        is_row = len(body) <= SMALL_BYTES and not key.path.startswith("_tarn/")
        block = self.story.blocks.get(key) or self._send(key, body, is_row=is_row)
        await store.put(key, body)
        if block.answered_at is None:
            self._answer(block)

    async def _streamed(self, store: LocalBlockStore) -> None:
        key, body = self._key(), self._body(300_000, 310_000)
        block = self._send(key, body)
        async with await store.open_write(key) as writer:
            for at in range(0, len(body), 100_000):
                await writer.write(body[at : at + 100_000])
            await writer.finish()
        self._answer(block)

    async def _begin(self, store: LocalBlockStore) -> None:
        """Leaves a draft whose writer never finishes: it is never visible, and is removed later."""
        writer = await store.open_write(self._key())
        await writer.write(self._body(300_000, 310_000))
        self._open_writers.append(writer)

    async def _upload(self, store: LocalBlockStore) -> None:
        key = self._key()
        count = self._chance.choice((1, 2, 3))
        bodies = [self._body(1, 6000) for _ in range(count)]
        parts = [(number, f"a{number}") for number in range(1, count + 1)]
        upload = _Upload(key, f"u{self._count}", b"".join(bodies), parts)
        self.story.uploads.append(upload)
        for (number, attempt), body in zip(parts, bodies, strict=True):
            async with await store.uploads.open_part(key, upload.name, number, attempt) as writer:
                await writer.write(body)
                await writer.finish()
        upload.parts_answered_at = self._trace.now
        self.story.answered_at.append(self._trace.now)
        # An upload that was not completed may still appear: `check` completes it.
        block = self._send(key, upload.body)
        fate = self._chance.random()
        if fate < 0.7:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._chance.choice((1, 2))):
                    tasks.create_task(self._complete(store, upload, block))
        if fate < 0.4:
            upload.discarded_at = self._trace.now
            await store.uploads.discard(key, upload.name)

    async def _complete(self, store: LocalBlockStore, upload: _Upload, block: _Block) -> None:
        joined = await store.uploads.complete(upload.key, upload.name, upload.parts)
        assert joined.size == len(upload.body)
        if block.answered_at is None:
            self._answer(block)

    async def _remove(self, store: LocalBlockStore) -> None:
        """Removes half of a folder's blocks, or all, so that the folder is removed, too, and created again."""
        namespace = self._chance.choice(NAMESPACES)
        prefix = f"data/{self._chance.randrange(6):02}/"
        found = [
            block
            for block in self.story.blocks.values()
            if block.key.namespace == namespace
            and block.key.path.startswith(prefix)
            and block.answered_at is not None
            and block.removed_at is None
        ]
        found = found[: len(found) // self._chance.choice((1, 2))]
        for block in found:
            block.removed_at = self._trace.now
        await store.delete_many(namespace, [block.key.path for block in found])
        for block in found:
            block.removal_answered_at = self._trace.now
