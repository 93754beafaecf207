"""Benchmark of the embedded store's index of rows that are no tombstones: its price in time and space. No asserts.

python -m bench.live_index --rounds 5

Two stores take the same writes in turn; one has lost its index. Prints the time and the processor time of a write of
one row and of a row among 64, and the size of both files.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import AsyncExitStack, closing
from pathlib import Path

from tarn.core.entry import TOMBSTONE, Entry, pack
from tarn.kv.embedded import open_embedded
from tarn.kv.keys import path_key
from tarn.kv.port import Group, Kv, Partition, PartitionKind

TOKEN = Partition("bench/token", PartitionKind.PLAIN)
_WITH, _WITHOUT = "with the index", "without it"
_AMONG = 64


async def measure(kv: Kv, numbers: range, row: bytes, among: int) -> tuple[float, float]:
    """Returns the time and the processor time of one row, in µs."""
    keys = [path_key(f"lake/events/part-{number:09}.parquet") for number in numbers]
    began, cpu = time.perf_counter(), time.process_time()
    for start in range(0, len(keys), among):
        await kv.set_many(TOKEN, [Group(key, ((key, row),)) for key in keys[start : start + among]])
    each = 1e6 / len(keys)
    return (time.perf_counter() - began) * each, (time.process_time() - cpu) * each


async def run(folder: Path, rounds: int, rows: int) -> None:
    figures: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        stores: dict[str, Kv] = {}
        for name in (_WITH, _WITHOUT):
            stores[name] = await open_embedded(folder / f"{name}.db", durability="os")
            stack.push_async_callback(stores[name].close)
        with closing(sqlite3.connect(folder / f"{_WITHOUT}.db")) as other:
            other.execute("DROP INDEX plains_live")
        for number in range(rounds):
            entry = pack(Entry(number, 0, os.urandom(16), os.urandom(16)))
            single = range(number * 2 * rows, number * 2 * rows + rows)
            among = range(single.stop, single.stop + rows)
            writes = (
                ("an object alone", single, entry, 1),
                ("an object among 64", among, entry, _AMONG),
                ("its delete alone", single, TOMBSTONE, 1),
                ("its delete among 64", among, TOMBSTONE, _AMONG),
                ("a new object among 64", among, entry, _AMONG),
            )
            for what, numbers, row, count in writes:
                for name in sorted(stores, reverse=bool(number % 2)):
                    figures[what, name].append(await measure(stores[name], numbers, row, count))
    print(f"{'µs for a row: median time, median CPU':42} {_WITH:>16} {_WITHOUT:>16}")
    for what in dict.fromkeys(what for what, _ in figures):
        texts = []
        for name in (_WITH, _WITHOUT):
            clock, cpu = map(statistics.median, zip(*figures[what, name], strict=True))
            texts.append(f"{clock:7.1f}, {cpu:6.1f}")
        print(f"{what:42} {texts[0]:>16} {texts[1]:>16}")
    sizes = [(folder / f"{name}.db").stat().st_size / (1 << 20) for name in (_WITH, _WITHOUT)]
    print(f"{'MiB of the file':42} {sizes[0]:>16.1f} {sizes[1]:>16.1f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=6_400)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), given.rounds, given.rows))


if __name__ == "__main__":
    main()
