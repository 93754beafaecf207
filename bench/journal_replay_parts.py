"""Processor time of each part of a replay by Spark, in this process and without Spark. Prints a table.

    python -m bench.journal_replay_parts [--events 250000]

The journal is that of `bench.journal_replay`; all rows are in one span.
"""
# ruff: noqa: SLF001 - measures the parts of a module one by one

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from bench.journal_replay import LAKE, written

from tarn.block.opening import BlockPlace
from tarn.config import load
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.spans import PathSpan
from tarn.journal.accounts import Accounts
from tarn.journal.reading import EpochReader
from tarn.journal.replay import branch_of, ranks_of, topmost
from tarn.rpc.process.system import SystemClock
from tarn_spark.collection.executor import BatchWork
from tarn_spark.journal import rebuild
from tarn_spark.journal.sources import judged, source_rows


async def measured(events: int, folder: Path) -> None:
    settings = {"TARN_BLOCKSTORE_LOCAL_PATH": str(folder / "blocks"), "TARN_DURABILITY": "os"}
    blocks = await BlockPlace.of(load(None, settings)).open(SystemClock())
    epoch = await written(blocks, argparse.Namespace(events=events, writes=2, tokens=4))
    reader = EpochReader(blocks, LAKE, epoch, Accounts(epoch.number, epoch.begin_time_us))
    names = await reader.names()
    rule = BreakRule()
    print("| part | µs of processor | for each of |")
    print("| --- | --- | --- |")

    def told(what: str, began: float, count: int, of: str) -> None:
        print(f"| {what} | {(time.process_time() - began) * 1e6 / count:.2f} | {count:,} {of} |")

    async def all_of(work: BatchWork, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        return [each async for each in work(blocks, batch)]

    began = time.process_time()
    found = await all_of(rebuild._Judge(LAKE, epoch, rule), source_rows(names))
    told("check", began, events, "events")
    rows = [row for batch in found for row in batch.to_pylist()]
    _, facts = judged([row for row in rows if row["facts"]], names, reader.selector)
    (record,) = (row for row in rows if row["payload"])
    branch = branch_of(record["key"], record["payload"])
    assert branch is not None
    ranks = ranks_of(record["key"], branch)
    began = time.process_time()
    again = source_rows(names, [each.sha256 for each in facts])
    spread = await all_of(rebuild._Spread(LAKE, epoch, ranks, []), again)
    told("read again, and spread", began, events, "events")
    span = pa.concat_batches(spread)
    began = time.process_time()
    table = pa.concat_tables(rebuild._unpacked(x.as_buffer() for x in span.column("rows")))
    top = topmost(table)
    top = top.take(pc.sort_indices(top.column("place")))
    told("take what counts, and sort", began, len(table), "rows of named tokens")
    head = await rebuild._listing_of(blocks, LAKE, branch.commit_id)
    part = rebuild._Part("main", head, head, PathSpan("", None), is_first=True)
    erased = rebuild._KnownErasures(frozenset())
    began = time.process_time()
    await all_of(rebuild._Build(LAKE, {0: [part]}, erased, rule), span)
    told("take, sort, and write the listing", began, len(top), "objects")
    await blocks.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=250_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(measured(arguments.events, Path(name)))


if __name__ == "__main__":
    main()
