"""Benchmark of the Cassandra driver on real nodes of this machine: prints a table. No asserts.

python -m bench.kv_cassandra --nodes 1 --seconds 2

Latencies are of one task; rates of 128. CPU is that of this process alone (driver thread included), per
row, which is what a graveler pays; nodes on the same cores make the rates worse than a cluster's.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tarn.kv.cassandra import CassandraKv, CassandraSettings
from tarn.kv.port import Group, Partition, PartitionKind, Predicate, PredicateFailedError
from tarn.testing.cassandra_nodes import CassandraNodes
from tarn.testing.cassandra_store import open_store

PLAIN = Partition("bench/plain", PartitionKind.PLAIN, 8)
REGISTER = Partition("bench/register", PartitionKind.REGISTER, 8)
CONDITIONAL = Partition("bench/conditional", PartitionKind.REGISTER, 16)
VALUE = bytes(200)
KEYS = 20_000
TASKS = 128


def key_of(number: int) -> bytes:
    return b"data/lake/tables/events/part-%012d.parquet" % number


def report(
    what: str, rows: int, took: float, cpu: float, p50: str = "", p99: str = "", tasks: int = 1
) -> None:
    rate, cpu_us = rows / took, cpu / rows * 1e6
    print(f"| {what:30} | {tasks:>5} | {rate:>9,.0f} | {p50:>6} | {p99:>6} | {cpu_us:>6.0f} |")


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

    began, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(work())
    count, took = len(latencies) * rows, time.perf_counter() - began
    latencies.sort()
    p50, p99 = (f"{latencies[len(latencies) * part // 100] * 1e3:.2f}" for part in (50, 99))
    report(what, count, took, time.process_time() - cpu, p50, p99, tasks)


async def measure(kv: CassandraKv, seconds: float) -> None:
    print(f"| {'what':30} | tasks | rows/s    | p50 ms | p99 ms | CPU us |")
    print(f"|{'-' * 32}|------:|----------:|-------:|-------:|-------:|")
    began, cpu = time.perf_counter(), time.process_time()
    for at in range(0, KEYS, 1000):
        groups = [Group(key_of(n), ((key_of(n), VALUE),)) for n in range(at, at + 1000)]
        assert not any(await kv.set_many(PLAIN, groups))
    took, used = time.perf_counter() - began, time.process_time() - cpu
    report("load, 1,000 rows a call", KEYS, took, used)

    async def set_row(number: int) -> None:
        key = key_of(number * 7919 % KEYS)
        await kv.set_many(PLAIN, [Group(key, ((key, VALUE), (b"event/%d" % number, VALUE)))])

    async def get_row(number: int) -> None:
        await kv.get_many(PLAIN, (key_of(number * 7919 % KEYS),))

    async def set_conditional(number: int) -> None:
        key = key_of(number)
        await kv.set_many(CONDITIONAL, [Group(key, ((key, VALUE),))])

    versions: dict[bytes, Predicate] = {}

    async def compare_and_set(number: int) -> None:
        key = key_of(number % 1000)
        try:
            versions[key] = await kv.set_if(REGISTER, key, VALUE, versions.get(key))
        except PredicateFailedError as error:
            if error.current is not None:
                versions[key] = error.current.predicate

    async def get_register(number: int) -> None:
        await kv.get_many(REGISTER, (key_of(number % 1000),))

    async def scan(number: int) -> None:
        await kv.scan(PLAIN, key_of(number * 7919 % (KEYS - 1000)), None, 1000)

    for tasks in (1, TASKS):
        await run("plain get", tasks, seconds, get_row)
        await run("plain set, entry and event", tasks, seconds, set_row)
        await run("register get", tasks, seconds, get_register)
        await run("compare-and-set, 1,000 rows", tasks, seconds, compare_and_set)
        await run("conditional token set", tasks, seconds, set_conditional)
    await run("scan, 1,000 rows of 8 buckets", 1, seconds, scan, rows=1000)
    began, cpu, rows = time.perf_counter(), time.process_time(), 0
    async for batch in kv.scan_arrow(PLAIN, b"", None):
        rows += batch.num_rows
    took, used = time.perf_counter() - began, time.process_time() - cpu
    report("scan_arrow, 8 buckets", rows, took, used)
    began, cpu = time.perf_counter(), time.process_time()
    await kv.drop_partition(PLAIN)
    report("drop_partition", rows, time.perf_counter() - began, time.process_time() - cpu)


async def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmark of the Cassandra driver.")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="per line")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        CassandraNodes(Path(folder), options.nodes) as nodes,
    ):
        settings = CassandraSettings(
            nodes.contact_points, nodes.LOCAL_DATACENTER, "bench", options.nodes
        )
        kv = await open_store(settings)
        await measure(kv, options.seconds)
        await kv.close()


if __name__ == "__main__":
    asyncio.run(main())
