"""Rates of the local block store; prints a table. Run: `python -m bench.block [directory]`."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import uvloop

from tarn.block.local import LocalBlockStore, open_local
from tarn.block.port import BlockKey
from tarn.core.ids import physical_path

KIB, MIB = 1 << 10, 1 << 20


class _Clock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Keys:
    def __init__(self) -> None:
        self._tail = itertools.count()

    def next(self) -> BlockKey:
        head = (time.time_ns() // 1_000_000).to_bytes(6, "big")
        return BlockKey("local://bench", physical_path(head + next(self._tail).to_bytes(10, "big")))


async def _rate(count: int, tasks: int, one: Callable[[int], Awaitable[object]]) -> float:
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await one(number)

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(work())
    return count / (time.perf_counter() - begin)


async def _measure(store: LocalBlockStore, durability: str) -> None:
    keys = _Keys()
    written: dict[int, list[BlockKey]] = {}

    def put(size: int) -> Callable[[int], Awaitable[object]]:
        body = os.urandom(size)
        names = written.setdefault(size, [])

        async def one(_: int) -> None:
            key = keys.next()
            await store.put(key, body)
            names.append(key)

        return one

    def get(size: int) -> Callable[[int], Awaitable[object]]:
        return lambda number: store.read(written[size][number * 7919 % len(written[size])])

    async def stream(_: int) -> None:
        async for _chunk in store.stream(written[64 * MIB][0], 0, 64 * MIB):
            pass

    async def show(
        what: str, count: int, tasks: int, one: Callable[[int], Awaitable[object]]
    ) -> None:
        rate = await _rate(count, tasks, one)
        print(f"{durability:6} {what:24} {tasks:3} tasks {rate:10,.0f}/s {1e6 / rate:10,.1f} us")

    await show("put 1 KiB", 1_000, 1, put(KIB))
    await show("put 1 KiB", 30_000, 32, put(KIB))
    await show("put 64 KiB", 1_000, 32, put(64 * KIB))
    await show("put 256 KiB", 200, 1, put(256 * KIB))
    await show("put 256 KiB", 400, 8, put(256 * KIB))
    await show("put 64 MiB", 4, 1, put(64 * MIB))
    await show("read 1 KiB", 50_000, 1, get(KIB))
    await show("read 64 KiB", 10_000, 1, get(64 * KIB))
    await show("read 256 KiB", 5_000, 1, get(256 * KIB))
    await show("stream 64 MiB", 8, 1, stream)


async def _main(parent: str | None) -> None:
    modes: tuple[Literal["fsync", "os"], ...] = ("fsync", "os")
    for durability in modes:
        with tempfile.TemporaryDirectory(dir=parent) as directory:
            store = await open_local(Path(directory), clock=_Clock(), durability=durability)
            await _measure(store, durability)
            await store.close()


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1] if len(sys.argv) > 1 else None))
