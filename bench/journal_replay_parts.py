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
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

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
from tarn_spark.journal import rebuild
from tarn_spark.journal.dividing import Part, by_span
from tarn_spark.journal.sources import as_bytes, sha256_in
from tarn_spark.journal.spreading import InPlace, JudgeFiles, SpreadFiles, taken


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

    async def all_of(work: AsyncIterator[Any]) -> list[Any]:
        return [each async for each in work]

    sources = list(enumerate(map(as_bytes, names)))
    await all_of(JudgeFiles(LAKE, epoch, rule)(blocks, sources[:1]))
    began = time.process_time()
    files = [each async for _, each in JudgeFiles(LAKE, epoch, rule)(blocks, sources)]
    told("judge", began, events, "events")
    ((key, (_, payload)),) = [
        row for each in files if each.records for row in each.records.newest.items()
    ]
    branch = branch_of(key, payload)
    assert branch is not None
    ranks = ranks_of(key, branch)
    reading = SpreadFiles(LAKE, epoch, [], ranks)
    places = []
    for each in files:
        wanted = rebuild._wanted(each.groups, ranks)
        found = by_span(wanted, []) if wanted else None
        if found:
            places.append(InPlace(sources[each.at][1], found[0]))
    began = time.process_time()
    rows = await taken(blocks, places, reading, 0)
    told("read in place", began, len(rows), "rows of named tokens")
    began = time.process_time()
    top = topmost(rows)
    told("take what counts", began, len(rows), "rows of named tokens")
    began = time.process_time()
    top = top.take(pc.sort_indices(top.column("place")))
    told("sort it", began, len(rows), "rows of named tokens")
    head = await rebuild._listing_of(blocks, LAKE, branch.commit_id)
    part = Part("main", head, head, PathSpan("", None), is_first=True)
    erased = rebuild._KnownErasures(frozenset())
    began = time.process_time()
    building = rebuild._Build(reading, {0: [part]}, erased, rule)
    await all_of(building(blocks, [(0, each) for each in places]))
    told("read, take, sort, and write the listing", began, len(top), "objects")
    began = time.process_time()
    asked = [(sources[each.at][1], sha256_in(each.facts)) for each in files]
    pieces = await all_of(reading(blocks, asked))
    told("read, and spread for an exchange", began, events, "events")
    began = time.process_time()
    await taken(blocks, [each for _, each in pieces], reading, 0)
    told("take pieces", began, len(rows), "rows of named tokens")
    await blocks.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=250_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(measured(arguments.events, Path(name)))


if __name__ == "__main__":
    main()
