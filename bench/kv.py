"""Benchmark of the KV drivers: prints a table of rates and latencies. No asserts.

python -m bench.kv --driver embedded --durability fsync --seconds 2
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tarn.kv.embedded import open_embedded
from tarn.kv.mem import MemKv
from tarn.kv.port import Group, Kv, Partition, PartitionKind, Predicate

PLAIN = Partition("bench/plain", PartitionKind.PLAIN)
REGISTER = Partition("bench/register", PartitionKind.REGISTER)
VALUE = bytes(200)
KEYS = 100_000


def key_of(number: int) -> bytes:
    return b"data/lake/tables/events/part-%012d.parquet" % number


def report(what: str, count: int, seconds: float, latencies: list[float]) -> None:
    latencies.sort()
    p50 = latencies[len(latencies) // 2] * 1e6
    p99 = latencies[len(latencies) * 99 // 100] * 1e6
    worst = latencies[-1] * 1e6
    print(
        f"{what:42} {count / seconds:>10,.0f}/s  p50 {p50:>8,.0f} us  p99 {p99:>8,.0f}  {worst:>8,.0f}"
    )


async def run(
    what: str,
    tasks: int,
    seconds: float,
    operation: Callable[[int], Awaitable[object]],
    rows: int = 1,
) -> None:
    """Runs `operation(n)` in a closed loop of `tasks` tasks, n ascending over all of them."""
    latencies: list[float] = []
    numbers = iter(range(1 << 60))
    end = time.perf_counter() + seconds

    async def work() -> None:
        while (began := time.perf_counter()) < end:
            await operation(next(numbers))
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(work())
    report(what, len(latencies) * rows, time.perf_counter() - began, latencies)


async def load(kv: Kv) -> None:
    began = time.perf_counter()
    for at in range(0, KEYS, 1000):
        groups = [Group(key_of(n), ((key_of(n), VALUE),)) for n in range(at, at + 1000)]
        assert not any(await kv.set_many(PLAIN, groups))
    print(f"{'load, 1,000 rows a call':42} {KEYS / (time.perf_counter() - began):>10,.0f} rows/s")


async def sets(path: Path, durability: str, tasks: int, seconds: float, salt: int) -> None:
    kv = await open_embedded(path, durability="os" if durability == "os" else "fsync")

    async def set_row(number: int) -> None:
        key = key_of(number * 16 + salt)
        assert await kv.set_many(PLAIN, [Group(key, ((key, VALUE),))]) == [None]

    await run(f"set, 1 row, {tasks} tasks, process {salt}", tasks, seconds, set_row)
    await kv.close()


def sets_in_process(path: Path, durability: str, tasks: int, seconds: float, salt: int) -> None:
    asyncio.run(sets(path, durability, tasks, seconds, salt))


async def measure(kv: Kv, seconds: float) -> None:
    await load(kv)

    async def set_row(number: int) -> None:
        key = key_of(number * 7919 % KEYS)
        await kv.set_many(PLAIN, [Group(key, ((key, VALUE),))])

    async def set_pair(number: int) -> None:
        key = key_of(number * 7919 % KEYS)
        event = b"event/%016d" % number
        await kv.set_many(PLAIN, [Group(key, ((key, VALUE), (event, VALUE)))])

    async def get_one(number: int) -> None:
        await kv.get_many(PLAIN, (key_of(number * 7919 % KEYS),))

    async def get_ten(number: int) -> None:
        await kv.get_many(PLAIN, [key_of((number + n) * 7919 % KEYS) for n in range(10)])

    async def scan(number: int) -> None:
        await kv.scan(PLAIN, key_of(number * 7919 % KEYS), None, 1000)

    versions: dict[bytes, Predicate] = {}

    async def compare_and_set(number: int) -> None:
        key = key_of(number % 1000)
        known = versions.get(key)
        versions[key] = await kv.set_if(REGISTER, key, VALUE, known)

    await run("get, 1 key, 1 task", 1, seconds, get_one)
    await run("get, 10 keys, 1 task", 1, seconds, get_ten)
    await run("scan, 1,000 rows, 1 task", 1, seconds, scan, rows=1000)
    for tasks in (1, 32, 256):
        await run(f"set, 1 row, {tasks} tasks", tasks, seconds, set_row)
    await run("set, 2 rows in a group, 32 tasks", 32, seconds, set_pair)
    await run("compare-and-set, 1 task", 1, seconds, compare_and_set)
    await run("compare-and-set, 32 tasks", 32, seconds, compare_and_set)
    began = time.perf_counter()
    rows = 0
    async for batch in kv.scan_arrow(PLAIN, b"", None):
        rows += batch.num_rows
    print(f"{'scan_arrow':42} {rows / (time.perf_counter() - began):>10,.0f} rows/s")
    began = time.perf_counter()
    await kv.drop_partition(PLAIN)
    print(f"{'drop_partition':42} {rows / (time.perf_counter() - began):>10,.0f} rows/s")


async def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmark of the KV drivers.")
    parser.add_argument("--driver", choices=("embedded", "mem"), default="embedded")
    parser.add_argument("--durability", choices=("fsync", "os"), default="fsync")
    parser.add_argument("--seconds", type=float, default=1.0, help="per line")
    parser.add_argument("--processes", type=int, default=2, help="for the shared store")
    options = parser.parse_args()
    if options.driver == "mem":
        await measure(MemKv(), options.seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        kv = await open_embedded(Path(folder, "kv.db"), durability=options.durability)
        await measure(kv, options.seconds)
        await kv.close()
        shared = Path(folder, "shared.db")
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.processes, mp_context=context) as pool:
            arguments = (options.durability, 16, options.seconds * 2)
            for salt in range(options.processes):
                pool.submit(sets_in_process, shared, *arguments, salt)


if __name__ == "__main__":
    asyncio.run(main())
