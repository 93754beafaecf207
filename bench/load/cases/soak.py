"""Ten minutes of writes and deletes without a commit, with the compactor: listings, and the size of the store.

Four connections put new objects, delete the oldest of these, delete committed objects from the front, and overwrite
others. Meanwhile one connection, which stays open, lists the first 1,000 objects behind the deleted ones, in turn with
the same listings of a branch without uncommitted changes. Between the slices it does so without writes.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import uvloop
from bench.load.cases.objects import BODY, REPOSITORY, make_repository
from bench.load.client import Kept, Load, Measured, exchange
from bench.load.node import Form, Node, running
from bench.load.seeding import OLD, Seeder, seeder
from bench.load.signing import Request
from bench.load.table import Goal, Row
from bench.load.trial import Case, Trial, pooled, trouble

from tarn.core.ids import BranchId
from tarn.kv.records import Repository
from tarn_graveler.records.branches import BranchName

__all__ = ["CASES"]

_SECONDS = 600.0
_SLICE_SECONDS = 5.0
_QUIET_SECONDS = 0.5
_PIECE_SECONDS = 0.5
_SIZES_EVERY = 3
_WRITES_PER_SECOND = 4000
_CONNECTIONS = 4
_LISTED = 1000
_BASE = 400_000
_QUEUE = "date=2026-01-02"
_BUSY, _CLEAN = "busy", "clean"


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The metadata of the node at one moment, in bytes.

    Attributes:
        kv_files: the metadata store's file and log.
        kv_free: free pages in it.
        kv_rows: all rows: keys and values.
        kv_live: rows that a record names: registers, and rows of staging and sealed tokens.
        ranges: files of ranges and metaranges.
        ranges_live: those that a branch's commit or compacted listing names.
        listings: number of metaranges.
    """

    kv_files: int
    kv_free: int
    kv_rows: int
    kv_live: int
    ranges: int
    ranges_live: int
    listings: int


@dataclass(slots=True)
class _Soak:
    """The writes still to make, and the measurements so far, by branch.

    Attributes:
        quiet_cpu_s: processor time of the node's workers in each of the `quiet` runs.
        kept: the connection of the listings.
    """

    unsent: list[Request] = field(default_factory=list)
    beside: dict[str, list[Measured]] = field(default_factory=lambda: {_BUSY: [], _CLEAN: []})
    quiet: dict[str, list[Measured]] = field(default_factory=lambda: {_BUSY: [], _CLEAN: []})
    quiet_cpu_s: dict[str, list[float]] = field(default_factory=lambda: {_BUSY: [], _CLEAN: []})
    writes: list[Measured] = field(default_factory=list)
    sizes: list[_Sizes] = field(default_factory=list)
    kept: Kept = field(default_factory=Kept)


def _run(trial: Trial) -> None:
    lasts = max(10.0, _SECONDS * trial.scale)
    with running(trial.within("node"), Form("os")) as node:
        make_repository(node)
        uvloop.run(_prepare(trial, node))
        lists = {
            branch: [_list(node, branch, folder) for folder in (OLD, _QUEUE)]
            for branch in (_BUSY, _CLEAN)
        }
        soak, writes = _Soak(), _writes(node)
        ends = time.monotonic() + lasts
        while time.monotonic() < ends:
            _slice(node, lists, writes, soak)
            if len(soak.writes) % _SIZES_EVERY == 0:
                soak.sizes.append(uvloop.run(_sizes(trial, node, len(soak.sizes))))
        soak.kept.close()
        for requests in lists.values():
            for request in requests:
                found = exchange(node.address, request).count(b"<Key>")
                if found != _LISTED:
                    raise RuntimeError(f"a listing found {found} objects, not {_LISTED}")
        soak.sizes.append(uvloop.run(_sizes(trial, node, len(soak.sizes))))
        _report(trial, node, soak)


async def _prepare(trial: Trial, node: Node) -> None:
    async with seeder(node, trial.within("cache")) as seed:
        repository = await seed.graveler.repositories.get(REPOSITORY)
        await seed.base(repository, "base", trial.count(_BASE, 20_000))
        call = seed.connection.call
        await seed.client.create_branch(call(), REPOSITORY, _CLEAN, "base")
        await seed.stage(repository, _CLEAN, np.arange(2 * _LISTED, dtype=np.int64), _QUEUE)
        await seed.client.create_commit(call(), REPOSITORY, _CLEAN, "queue")
        await seed.client.create_branch(call(), REPOSITORY, _BUSY, _CLEAN)


def _list(node: Node, branch: str, folder: str) -> Request:
    prefix = f"{branch}/lake/events/{folder}/"
    query = {"list-type": "2", "max-keys": str(_LISTED), "prefix": prefix}
    return node.signer.request("GET", f"/{REPOSITORY}", query)


def _writes(node: Node) -> Iterator[Request]:
    """Yields two writes and two deletes in turn, for ever."""
    root = f"/{REPOSITORY}/{_BUSY}/lake/events"
    sign, number = node.signer.request, 0
    while True:
        yield sign("PUT", f"{root}/{_QUEUE}/part-{number + 2 * _LISTED:09}.parquet", body=BODY)
        yield sign("DELETE", f"{root}/{_QUEUE}/part-{number:09}.parquet")
        yield sign("DELETE", f"{root}/{OLD}/part-{number * 10:09}.parquet")
        yield sign(
            "PUT", f"{root}/{OLD}/part-{(number % 997 + 3_000_000) * 10:09}.parquet", body=BODY
        )
        number += 1


def _slice(
    node: Node, lists: dict[str, list[Request]], writes: Iterator[Request], soak: _Soak
) -> None:
    """Writes and lists for some seconds, then only lists for a moment."""
    # Signed before the slice. The next slice goes on where this one stops, so that the order stays.
    missing = int(_WRITES_PER_SECOND * _SLICE_SECONDS) - len(soak.unsent)
    requests = [*soak.unsent, *itertools.islice(writes, missing)]
    # Effects of the writes, such as a compaction, must not always meet the same branch.
    branches = (_BUSY, _CLEAN) if len(soak.writes) % 2 else (_CLEAN, _BUSY)
    over = threading.Event()
    load = Load(node.address, requests, _CONNECTIONS, 60, until=over.is_set)
    done: list[Measured] = []
    thread = threading.Thread(target=lambda: done.append(load.run()))
    thread.start()
    ends = time.monotonic() + _SLICE_SECONDS
    while time.monotonic() < ends:
        for branch in branches:
            run = _listed(node, lists[branch], _PIECE_SECONDS, soak.kept)
            soak.beside[branch].append(run)
    over.set()
    thread.join()
    soak.writes += done
    soak.unsent = requests[sum(run.count + run.failures.total() for run in done) :]
    for branch in branches:
        before = node.processes.cpu_s()
        run = _listed(node, lists[branch], _QUIET_SECONDS, soak.kept)
        soak.quiet_cpu_s[branch].append(node.processes.cpu_s() - before)
        soak.quiet[branch].append(run)


def _listed(node: Node, requests: Sequence[Request], seconds: float, kept: Kept) -> Measured:
    return Load(node.address, requests, 1, seconds, repeat=True, kept=kept).run()


async def _sizes(trial: Trial, node: Node, number: int) -> _Sizes:
    with closing(sqlite3.connect(f"file:{node.data}/kv/tarn.db?mode=ro", uri=True)) as store:

        def one(statement: str) -> int:
            return int(store.execute(statement).fetchone()[0] or 0)

        registers, plains = (
            one(f"SELECT sum(length(key) + length(value)) FROM {table}")
            for table in ("registers", "plains")
        )
        free = one("PRAGMA freelist_count") * one("PRAGMA page_size")
    kv_files = sum(path.stat().st_size for path in (node.data / "kv").glob("tarn.db*"))
    async with seeder(node, trial.within(f"look{number}")) as seed:
        repository = await seed.graveler.repositories.get(REPOSITORY)
        staged, live = 0, set()
        for branch in ("main", "base", _BUSY, _CLEAN):
            name = BranchName(repository, BranchId(branch))
            found = await seed.graveler.staging_statistics.count(name, 1 << 40)
            staged += found.size_bytes
            live |= await _files_of(seed, repository, name)
    files = _range_files(node.data / "blocks")
    return _Sizes(
        kv_files,
        free,
        registers + plains,
        registers + staged,
        sum(files.values()),
        sum(size for name, size in files.items() if name in live),
        len(list((node.data / "blocks").rglob("_tarn/metaranges/*"))),
    )


async def _files_of(seed: Seeder, repository: Repository, name: BranchName) -> set[str]:
    """Returns the ids of all ranges and metaranges of a branch."""
    record = (await seed.graveler.branches.fresh(name)).branch
    commit = await seed.graveler.commits.get(repository, record.commit_id)
    found: set[str] = set()
    for listing in {commit.metarange_id, record.compacted_metarange_id} - {None}:
        assert listing is not None
        metarange = await seed.graveler.committed.metarange(repository.storage_namespace, listing)
        found |= {listing, *(info.range_id for info in metarange.ranges)}
    return found


def _range_files(blocks: Path) -> dict[str, int]:
    """Returns the sizes of the files of ranges and metaranges, by id."""
    return {
        path.stem: path.stat().st_size
        for kind in ("ranges", "metaranges")
        for path in blocks.rglob(f"_tarn/{kind}/*")
    }


def _report(trial: Trial, node: Node, soak: _Soak) -> None:
    """The last quarter counts."""
    writes = pooled(soak.writes)
    load = f"{writes.per_second:,.0f} writes and deletes per second"
    load += f"; load average of the machine {os.getloadavg()[1]:.0f}"
    cpu = {branch: _cpu_us(soak, branch) for branch in (_BUSY, _CLEAN)}
    of_clean = f"CPU of a clean branch: {cpu[_CLEAN]:,.0f} µs"
    for what, runs in (("beside them", soak.beside), ("in pauses of them", soak.quiet)):
        late = {branch: each[-max(1, len(each) // 4) :] for branch, each in runs.items()}
        busy, clean = pooled(late[_BUSY]), pooled(late[_CLEAN])
        trial.emit(
            Row(
                trial.case,
                f"ten minutes of writes and deletes without a commit: LIST of 1,000 {what}",
                form=str(node.form),
                per_second=busy.per_second,
                p50_ms=busy.quantile_ms(0.5),
                p99_ms=busy.quantile_ms(0.99),
                ratio=busy.quantile_ms(0.99) / max(1e-9, clean.quantile_ms(0.99)),
                yardstick=f"p99 of a clean branch: {clean.quantile_ms(0.99):.3g} ms, "
                f"median {clean.quantile_ms(0.5):.3g} ms",
                goal=Goal(ratio_max=1.5),
                cpu_us=cpu[_BUSY] if runs is soak.quiet else None,
                note="; ".join(
                    filter(
                        None,
                        (
                            load,
                            of_clean if runs is soak.quiet else "",
                            *map(trouble, (writes, busy, clean)),
                        ),
                    )
                ),
                failed=not busy.count or bool(writes.failures or busy.failures or clean.failures),
            )
        )
    late_sizes = soak.sizes[-max(1, len(soak.sizes) // 4) :]
    for what, goal, ratio in (
        ("size of the metadata without replaced ranges", Goal(ratio_max=2), _ratio),
        (
            "size of the metadata with replaced ranges, which wait for a collection",
            Goal(),
            _ratio_of_all,
        ),
    ):
        ratios = [ratio(each) for each in late_sizes]
        row = Row(
            trial.case,
            f"ten minutes of writes and deletes without a commit: {what}",
            form=str(node.form),
            ratio=statistics.median(ratios),
            ratio_low=min(ratios),
            ratio_high=max(ratios),
            yardstick="what is live",
            goal=goal,
            rounds=len(ratios),
        )
        trial.emit(replace(row, note=_parts(late_sizes[-1])))


def _cpu_us(soak: _Soak, branch: str) -> float:
    """Returns the processor time of a listing without writes beside it, in the last quarter."""
    late = max(1, len(soak.quiet[branch]) // 4)
    count = sum(run.count for run in soak.quiet[branch][-late:])
    return sum(soak.quiet_cpu_s[branch][-late:]) * 1e6 / max(1, count)


def _ratio(sizes: _Sizes) -> float:
    """Compactions hand replaced ranges to garbage collection, which always keeps them for a day."""
    return (sizes.kv_files + sizes.ranges_live) / max(1, sizes.kv_live + sizes.ranges_live)


def _ratio_of_all(sizes: _Sizes) -> float:
    return (sizes.kv_files + sizes.ranges) / max(1, sizes.kv_live + sizes.ranges_live)


def _parts(sizes: _Sizes) -> str:
    mib = {name: getattr(sizes, name) / (1 << 20) for name in _Sizes.__slots__}
    return (
        f"MiB at the end: metadata store {mib['kv_files']:.1f} (free pages {mib['kv_free']:.1f}, rows "
        f"{mib['kv_rows']:.1f}, of which live {mib['kv_live']:.1f}); ranges {mib['ranges']:.1f}, of which live "
        f"{mib['ranges_live']:.1f}, in {sizes.listings} listings"
    )


CASES = (Case("compaction-soak", _run, limit_s=1500),)
