"""Replays `make compaction-soak` without servers and clocks: what compactions leave in the store. Prints a table.

python -m bench.compaction_sizes --rows 400000 --compactions 14 --writes 10400

Between two compactions, as many writes come as in the soak: a quarter each puts new objects, deletes the oldest of
these, deletes committed objects from the front, and overwrites a few hundred others. Nothing is garbage-collected.
The numbers of rows and ranges depend only on the arguments; the bytes also on the version of Parquet. No asserts.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from bench.lake import MAIN
from bench.reset import AT_ONCE, Lake, open_lake

from tarn.core.entry import TOMBSTONE, Entry, pack
from tarn.kv.keys import path_key
from tarn.kv.port import Group
from tarn_graveler.branch.committing import CommitRequest

OLD, QUEUE = "date=2026-01-01", "date=2026-01-02"
LISTED = 1000
MIB = 1 << 20


async def stage(lake: Lake, rows: list[tuple[str, bytes]]) -> None:
    """Stages rows, directly in the token."""
    branch = (await lake.graveler.branches.fresh(lake.name)).branch
    token = lake.graveler.repositories.keys_of(lake.name.repository).token(MAIN, branch.staging)
    for start in range(0, len(rows), AT_ONCE):
        keys = [(path_key(path), value) for path, value in rows[start : start + AT_ONCE]]
        await lake.kv.set_many(token, [Group(key, ((key, value),)) for key, value in keys])


def put(folder: str, number: int, version: int) -> tuple[str, bytes]:
    """A staged object, with bytes that do not compress: address and MD5."""
    identity = (number * 0x9E3779B97F4A7C15F39CC0605CEDC835 + version) % (1 << 128)
    random = identity.to_bytes(16, "big")
    return f"lake/events/{folder}/part-{number:09}.parquet", pack(Entry(version, 0, random, random))


def delete(folder: str, number: int) -> tuple[str, bytes]:
    return f"lake/events/{folder}/part-{number:09}.parquet", TOMBSTONE


def changes(first: int, count: int) -> list[tuple[str, bytes]]:
    """The writes of one interval, of each kind as many."""
    rows: dict[str, bytes] = {}
    for number in range(first, first + count):
        rows |= (
            put(QUEUE, number + 2 * LISTED, number),
            delete(QUEUE, number),
            delete(OLD, number * 10),
            put(OLD, (number % 997 + 3_000_000) * 10, number),
        )
    return list(rows.items())


def sizes(folder: Path, kind: str) -> dict[str, int]:
    """The sizes of all ranges or metaranges, by id."""
    return {path.stem: path.stat().st_size for path in folder.rglob(f"_tarn/{kind}/*")}


async def live(lake: Lake) -> set[str]:
    """The names of the ranges and listings that the branch needs."""
    graveler, repository = lake.graveler, lake.name.repository
    record = (await graveler.branches.fresh(lake.name)).branch
    commit = await graveler.commits.get(repository, record.commit_id)
    found: set[str] = set()
    for listing in {commit.metarange_id, record.compacted_metarange_id} - {None}:
        assert listing is not None
        metarange = await graveler.committed.metarange(repository.storage_namespace, listing)
        found |= {listing, *(info.range_id for info in metarange.ranges)}
    return found


async def report(lake: Lake, folder: Path, what: str, rows_written: int) -> None:
    ranges = sizes(folder, "ranges")
    files = ranges | sizes(folder, "metaranges")
    needed = await live(lake)
    alive = sum(size for name, size in files.items() if name in needed)
    whole = sum(files.values())
    print(
        f"{what:>14} {rows_written:>9,} {len(ranges):>6} {whole / MIB:>8.2f}"
        f" {alive / MIB:>8.2f} {whole / alive:>6.2f}",
        flush=True,
    )


async def run(folder: Path, rows: int, compactions: int, writes: int) -> None:
    print(
        f"{'':12} {'rewritten':>9} {'ranges':>6} {'MiB':>8} {'live':>8} {'ratio':>6} {'KV MiB':>8}"
    )
    async with open_lake(folder) as lake:
        await stage(lake, [put(OLD, 10 * number, 1) for number in range(rows)])
        await stage(lake, [put(QUEUE, number, 1) for number in range(2 * LISTED)])
        await lake.commit()
        await report(lake, folder, "commit", rows)
        each = writes // 4
        for number in range(compactions):
            await stage(lake, changes(number * each, each))
            result = await lake.graveler.compacting.compact(lake.name)
            await report(lake, folder, f"compaction {number + 1}", result.rows_written)
        made = await lake.graveler.committing.commit(lake.name, CommitRequest("ann", "all"))
        await report(lake, folder, "commit", made.built.rows_written)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--compactions", type=int, default=14)
    parser.add_argument("--writes", type=int, default=10_400)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), given.rows, given.compactions, given.writes))


if __name__ == "__main__":
    main()
