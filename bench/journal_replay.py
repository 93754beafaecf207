"""Replay of a journal: events per second of one process, and of Spark, over files of local blocks. Prints a table.

    python -m bench.journal_replay [--events 2000000] [--writes 2] [--tokens 4] [--spark]

One branch; each path is written `--writes` times on average, in `--tokens` tokens, of which the branch names all but
one. Reading and checking the files is in the time. Beside other work, the processor time says more than the clock; that
of Spark is the time of its JVM and of its Python processes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from tarn.block.opening import BlockPlace
from tarn.block.port import BlockStore
from tarn.config import load
from tarn.core.branch import Branch, Token, TokenKind
from tarn.core.ids import CommitId, TokenId
from tarn.journal.accounts import Accounts
from tarn.journal.epochs import Epoch, EpochCause, begin_epoch, next_epoch
from tarn.journal.events import EVENT_SCHEMA, EventRow, table_of
from tarn.journal.names import PassName
from tarn.journal.reading import EpochReader
from tarn.journal.replay import Replay, StagedRows
from tarn.journal.writing import BranchPass, JournalWriter
from tarn.kv.records import encode_branch
from tarn.rpc.process.system import SystemClock

LAKE = "local://lake"
FILE_EVENTS = 131_072
ENTRY_BYTES = 114


def tables(events: int, writes: int, tokens: list[str]) -> Iterator[pa.Table]:
    rng = np.random.default_rng(1)
    entries = [random.Random(1).randbytes(ENTRY_BYTES) for _ in range(4096)]
    for start in range(0, events, FILE_EVENTS):
        count = min(FILE_EVENTS, events - start)
        numbers = np.arange(start + 1, start + 1 + count)
        # Tokens follow each other, as in a branch that is sealed from time to time.
        token = tokens[start * len(tokens) // events]
        paths = rng.integers(0, max(1, events // writes), count).tolist()
        columns = [
            pa.array([each.to_bytes(16, "big") for each in numbers.tolist()], pa.binary(16)),
            pa.repeat("main", count),
            pa.repeat(token, count),
            pa.array(numbers),
            pa.array(numbers),
            pa.repeat(pa.scalar(b"u" * 16, pa.binary()), count),
            pa.repeat(pa.scalar(b"", pa.binary()), count),
            pa.repeat("put", count),
            pa.array(
                [f"tables/events/date=2026-11-{p % 30:02}/part-{p:08}.parquet" for p in paths]
            ),
            pa.array([entries[at] for at in rng.integers(0, 4096, count).tolist()], pa.binary()),
            pa.repeat(pa.scalar(b"", pa.binary()), count),
        ]
        yield pa.Table.from_arrays(columns, schema=EVENT_SCHEMA)


async def written(blocks: BlockStore, arguments: argparse.Namespace) -> Epoch:
    epoch = next_epoch(None, "e" * 32, EpochCause.ENABLED, 1)
    await begin_epoch(blocks, LAKE, epoch)
    writer = JournalWriter(blocks, LAKE, epoch, "a" * 32)
    tokens = [f"{at:032x}" for at in range(arguments.tokens)]
    for table in tables(arguments.events, arguments.writes, tokens):
        await writer.write(2, table, [BranchPass("main", 9, tokens)], is_full=False)
    named = [Token(TokenId(each), TokenKind.PLAIN, 8, 0) for each in reversed(tokens[1:])]
    branch = Branch(b"i", named[0], tuple(named[1:]), CommitId("c" * 64), create_time_us=1)
    row = EventRow(
        b"r" * 16, "main", "", 9, 3, b"", b"", "seal", "branches/main", encode_branch(branch), b""
    )
    await writer.write(3, table_of([row]), [BranchPass("main", 9, tokens[1:])], is_full=False)
    return epoch


async def in_one_process(blocks: BlockStore, epoch: Epoch, folder: Path) -> int:
    accounts = Accounts(epoch.number, epoch.begin_time_us)
    reader = EpochReader(blocks, LAKE, epoch, accounts)
    replayed = Replay(folder)
    async for table in reader.passes():
        for batch in table.to_batches():
            replayed.add(batch)
    found = sum(len(e.paths) for e in replayed.results() if isinstance(e, StagedRows))
    replayed.close()
    return found


def by_spark(
    place: BlockPlace, epoch: Epoch, names: list[PassName], reader: EpochReader, events: int
) -> None:
    from tarn_spark.collection.session import session_builder
    from tarn_spark.journal.rebuild import spark_rebuild

    spark = session_builder("local[2]").config("spark.driver.memory", "4g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # Processes of Python, and the compiled code of the JVM, are there in a job that is longer.
    for _ in range(2):
        spark.range(64).repartition(4).mapInArrow(lambda batches: batches, "id bigint").count()
    began, cpu = time.perf_counter(), tree_cpu_seconds()
    with ExitStack() as stack:
        made = spark_rebuild(spark, place, LAKE, epoch, names, reader.selector, stack)
        found = made.staged.count()
        seconds = time.perf_counter() - began
        cpu = tree_cpu_seconds() - cpu
    spark.stop()
    rates = f"{events / seconds:,.0f} | {events / cpu:,.0f}"
    print(f"| Spark, two threads | {found:,} | {seconds:.1f} | {cpu:.1f} | {rates} |")


def tree_cpu_seconds() -> float:
    """Processor time of this process and all below it that still run; Linux only."""
    parents, ticks = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(fields[1])
        ticks[int(folder.name)] = sum(map(int, fields[11:15]))  # with children that have ended
    found = 0
    for pid, own in ticks.items():
        above: int | None = pid
        while above is not None and above != os.getpid():
            above = parents.get(above)
        found += own if above is not None else 0
    return found / os.sysconf("SC_CLK_TCK")


async def measured(arguments: argparse.Namespace, folder: Path) -> None:
    settings = {"TARN_BLOCKSTORE_LOCAL_PATH": str(folder / "blocks"), "TARN_DURABILITY": "os"}
    place = BlockPlace.of(load(None, settings))
    blocks = await place.open(SystemClock())
    epoch = await written(blocks, arguments)
    print(
        f"{arguments.events:,} events; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    print("| replay | paths | s | CPU s | events/s | events/CPU s |")
    print("| --- | --- | --- | --- | --- | --- |")
    began, cpu = time.perf_counter(), time.process_time()
    found = await in_one_process(blocks, epoch, folder / "runs")
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    rates = f"{arguments.events / seconds:,.0f} | {arguments.events / cpu:,.0f}"
    print(f"| one process | {found:,} | {seconds:.1f} | {cpu:.1f} | {rates} |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    if arguments.spark:
        reader = EpochReader(blocks, LAKE, epoch, Accounts(epoch.number, epoch.begin_time_us))
        names = await reader.names()
        await asyncio.to_thread(by_spark, place, epoch, names, reader, arguments.events)
    print(f"peak of this process: {peak} MiB")
    await blocks.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--writes", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--spark", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(measured(arguments, Path(name)))


if __name__ == "__main__":
    main()
