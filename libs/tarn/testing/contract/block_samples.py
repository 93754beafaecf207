"""Bodies, paths and helpers for tests of block stores."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence

from tarn.block.port import CHUNK_BYTES, BlockKey, BlockStore, BlockWriter
from tarn.core.errors import TarnError

__all__ = ["collect", "data_path", "fill", "outcomes", "sample"]


def sample(size: int, seed: int = 0) -> bytes:
    """Returns bytes that differ by seed and by position."""
    return random.Random(seed).randbytes(size)  # noqa: S311 - test data


def data_path(number: int) -> str:
    """Returns a path of the form that `physical_path` makes; paths ascend with the number."""
    return f"data/2026112106/{number:032x}"


async def collect(store: BlockStore, key: BlockKey, start: int, length: int) -> bytes:
    """Reads all chunks of a stream, and checks that each is within the limit."""
    chunks = [chunk async for chunk in store.stream(key, start, length)]
    assert all(0 < len(chunk) <= CHUNK_BYTES for chunk in chunks)
    return b"".join(chunks)


async def outcomes(calls: Sequence[Awaitable[object]]) -> list[object]:
    """Runs calls concurrently; returns a `TarnError` like any other result."""

    async def settle(call: Awaitable[object]) -> object:
        try:
            return await call
        except TarnError as error:
            return error

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(settle(call)) for call in calls]
    return [task.result() for task in tasks]


async def fill(writer: BlockWriter, body: bytes, step: int = 70_000) -> None:
    """Writes a body through one buffer that is overwritten after each call, as a socket's buffer is."""
    buffer = bytearray(step)
    for at in range(0, len(body), step):
        piece = body[at : at + step]
        buffer[: len(piece)] = piece
        await writer.write(memoryview(buffer)[: len(piece)])
        buffer[:] = bytes(step)
