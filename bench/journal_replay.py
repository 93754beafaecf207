"""Replay of a journal: events per second of one process, and of Spark, over files of local blocks. Prints a table.

    python -m bench.journal_replay [--events 2000000] [--writes 2] [--tokens 4] [--spark] [--compacted]

One branch; each path is written `--writes` times on average, in `--tokens` tokens, of which the branch names all but
one. Reading and checking the files is in the time. With `--compacted` the first nine of ten events are in the files of
a compaction, as in a large journal, and the others in passes. `--spark` replays as `python -m tarn_spark.rebuild` does,
with the listing's files, first cold and then in the warm session, so the difference is what a session costs once;
and at last without the files: what a branch has is then decided and sorted, and thrown away. Beside other
work, the processor time says more than the clock; that of Spark is the time of its JVM and of its Python processes.
"""
# ruff: noqa: SLF001 - leaves out a part of a module

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tarn.block.committed import open_committed
from tarn.block.opening import BlockPlace
from tarn.block.port import BlockKey, BlockStore
from tarn.config import load
from tarn.core.branch import Branch, Token, TokenKind
from tarn.core.commit import Commit, commit_id_of, commit_path, to_json
from tarn.core.entry import Entry, pack
from tarn.core.ids import MetarangeId, TokenId
from tarn.journal.accounts import Accounts
from tarn.journal.compacting import InProcess, compact
from tarn.journal.epochs import Epoch, EpochCause, begin_epoch, next_epoch
from tarn.journal.events import EVENT_SCHEMA, EventRow, table_of
from tarn.journal.reading import EpochReader
from tarn.journal.replay import REPLAYED, Replay, StagedRows
from tarn.journal.replayed import BuiltListing
from tarn.journal.writing import BranchPass, JournalWriter
from tarn.kv.records import encode_branch
from tarn.rpc.process.system import SystemClock, SystemIds

LAKE = "local://lake"
FILE_EVENTS = 131_072
ENTRIES = 4096


def tables(events: int, writes: int, tokens: list[str]) -> Iterator[pa.Table]:
    rng = np.random.default_rng(1)
    bits = random.Random(1)
    entries = [
        pack(
            Entry(
                number, 1, bits.randbytes(16), bits.randbytes(16), lineage=bits.randbytes(16).hex()
            )
        )
        for number in range(ENTRIES)
    ]
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
            pa.array([entries[at] for at in rng.integers(0, ENTRIES, count).tolist()], pa.binary()),
            pa.repeat(pa.scalar(b"", pa.binary()), count),
        ]
        table = pa.Table.from_arrays(columns, schema=EVENT_SCHEMA)
        yield table.sort_by([("key", "ascending"), ("order", "ascending")])


async def written(blocks: BlockStore, arguments: argparse.Namespace) -> Epoch:
    epoch = next_epoch(None, "e" * 32, EpochCause.ENABLED, 1)
    await begin_epoch(blocks, LAKE, epoch)
    writer = JournalWriter(blocks, LAKE, epoch, "a" * 32)
    tokens = [f"{at:032x}" for at in range(arguments.tokens)]
    count = 0
    for table in tables(arguments.events, arguments.writes, tokens):
        count += len(table)
        is_past = arguments.compacted and count <= arguments.events * 9 // 10
        begin_us = 2 if is_past else SystemClock().now_us()
        await writer.write(begin_us, table, [BranchPass("main", 9, tokens)], is_full=False)
    named = [Token(TokenId(each), TokenKind.PLAIN, 8, 0) for each in reversed(tokens[1:])]
    commit = Commit((), await empty_listing(blocks), "bench", "nothing", 1, 0)
    commit_id = commit_id_of(commit)
    await blocks.put(BlockKey(LAKE, commit_path(commit_id)), to_json(commit))
    branch = Branch(b"i", named[0], tuple(named[1:]), commit_id, create_time_us=1)
    row = EventRow(
        b"r" * 16, "main", "", 9, 3, b"", b"", "seal", "branches/main", encode_branch(branch), b""
    )
    await writer.write(
        SystemClock().now_us(), table_of([row]), [BranchPass("main", 9, tokens[1:])], is_full=False
    )
    if arguments.compacted:
        with tempfile.TemporaryDirectory() as folder:

            def rows(epoch: Epoch) -> InProcess:
                return InProcess(blocks, LAKE, epoch, SystemIds(SystemClock()), Path(folder))

            await compact(blocks, LAKE, rows, SystemClock(), keep_us=1 << 60)
    return epoch


async def empty_listing(blocks: BlockStore) -> MetarangeId:
    with tempfile.TemporaryDirectory() as folder:
        async with open_committed(blocks, Path(folder)) as committed:
            return (await committed.build(LAKE, None, [])).metarange_id


async def in_one_process(blocks: BlockStore, epoch: Epoch, folder: Path) -> int:
    accounts = Accounts(epoch.number, epoch.begin_time_us)
    reader = EpochReader(blocks, LAKE, epoch, accounts, REPLAYED)
    replayed = Replay(folder)
    for files in (reader.base(), reader.passes()):
        async for table in files:
            for batch in table.to_batches():
                replayed.add(batch)
    rows = sum(len(e.paths) for e in replayed.results() if isinstance(e, StagedRows))
    replayed.close()
    return rows


async def by_spark(place: BlockPlace, blocks: BlockStore, events: int, times: int) -> None:
    from tarn_spark.collection.session import started
    from tarn_spark.journal import rebuild
    from tarn_spark.journal.rebuild import SESSION_SETTINGS, SparkReplay

    class Decided(rebuild._Build):
        """Builds no listing."""

        __slots__ = ()

        async def __call__(
            self, blocks: BlockStore, items: Iterable[tuple[int, Any]]
        ) -> AsyncIterator[rebuild._Built | int]:
            span, count, found = await self.staged(blocks, items)
            yield count
            for each in found:
                yield rebuild._Built(span, each.branch_id, "", len(each.paths), "")

    async def decided(
        work: rebuild._Work,  # noqa: ARG001
        done: Mapping[tuple[str, int], rebuild._Built],
        building: rebuild._Build,  # noqa: ARG001
    ) -> list[BuiltListing]:
        rows = sum(each.rows for each in done.values())
        return [BuiltListing("main", rows, None, "no file was written")]

    spark = started("local[2]", SESSION_SETTINGS, is_local_store=True)
    spark.sparkContext.setLogLevel("ERROR")
    for number in range(times):
        what = "warm, with the listing" if number else "cold, with the listing"
        if number == times // 2 + 1:
            rebuild._Build = Decided  # type: ignore[misc]
            rebuild._Work._joined = decided  # type: ignore[method-assign, assignment]
        if number > times // 2:
            what = "warm, without the listing"
        began, cpu = time.perf_counter(), tree_cpu_seconds()
        made = await SparkReplay(spark, place, blocks, LAKE).run()
        seconds, cpu = time.perf_counter() - began, tree_cpu_seconds() - cpu
        (listing,) = made.listings
        rates = f"{events / seconds:,.0f} | {events / cpu:,.0f}"
        print(f"| Spark, {what} | {listing.rows:,} | {seconds:.1f} | {cpu:.1f} | {rates} |")
    spark.stop()


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
        await by_spark(place, blocks, arguments.events, 5)
    print(f"peak of this process: {peak} MiB")
    await blocks.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--writes", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--compacted", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(measured(arguments, Path(name)))


if __name__ == "__main__":
    main()
