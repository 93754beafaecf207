"""ListObjectsV2 of 1,000: staged, committed, mixed, common prefixes, over uncommitted deletes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import uvloop
from bench.load.cases.objects import REPOSITORY, at_work
from bench.load.client import exchange
from bench.load.node import Form, Node
from bench.load.seeding import OLD, Seeder, seeder
from bench.load.table import Goal, Row
from bench.load.trial import Case, Trial, Yardstick, compare

from tarn.kv.records import Repository

__all__ = ["CASES"]

_LISTED = 1000
_BASE = 200_000
_DELETED = 100_000
_FOLDERS = 1000


@dataclass(frozen=True, slots=True)
class _Listing:
    """One kind of listing.

    Attributes:
        what: its name in the table.
        prefix: branch and path.
        mark: XML element of an item.
        delimiter: delimiter of the request.
    """

    what: str
    prefix: str
    goal: Goal
    mark: bytes = b"<Key>"
    delimiter: str = ""


_LISTINGS = (
    _Listing("1,000 staged", "staged/lake/", Goal(p50_ms_max=4)),
    _Listing("1,000 committed", "base/lake/", Goal(p50_ms_max=2)),
    _Listing("500 staged among 500 committed", "mixed/lake/", Goal()),
    _Listing(
        "1,000 common prefixes, committed", "folders/lake/events/", Goal(), b"<CommonPrefixes>", "/"
    ),
    _Listing("1,000 behind 100,000 uncommitted deletes", "deleted/lake/", Goal(p50_ms_max=20)),
)


def _run(trial: Trial) -> None:
    with at_work(trial, Form("os", compactor=False)) as (node, yardstick):
        uvloop.run(_prepare(trial, node))
        for listing in _LISTINGS[:2] if trial.quick else _LISTINGS:
            for connections in (1,) if trial.quick else (1, 4):
                _measure(trial, node, yardstick, listing, connections)


def _measure(
    trial: Trial, node: Node, yardstick: Yardstick, listing: _Listing, connections: int
) -> None:
    listed = trial.count(_LISTED, 10)
    query = {"list-type": "2", "max-keys": str(listed), "prefix": listing.prefix}
    if listing.delimiter:
        query["delimiter"] = listing.delimiter
    request = node.signer.request("GET", f"/{REPOSITORY}", query)
    found = exchange(node.address, request).count(listing.mark)
    if found != listed:
        raise RuntimeError(f"listing {listing.prefix} found {found}, not {listed}")
    goal = listing.goal if connections == 1 else Goal()
    plural = "s" if connections > 1 else ""
    row = Row(trial.case, f"LIST {listing.what}, {connections} connection{plural}", goal=goal)
    compare(trial, node, yardstick, row, lambda _round: [request], connections, repeat=True)


async def _prepare(trial: Trial, node: Node) -> None:
    """Creates a branch for each kind, all on one base."""
    listed = trial.count(_LISTED, 10)
    async with seeder(node, trial.within("cache")) as seed:
        repository = await seed.graveler.repositories.get(REPOSITORY)
        await _branch(seed, "staged", "main")
        await seed.stage(repository, "staged", np.arange(listed, dtype=np.int64))
        await seed.base(repository, "base", trial.count(_BASE, 4 * listed))
        if trial.quick:
            return
        await _branch(seed, "mixed", "base")
        between = np.arange(listed // 2, dtype=np.int64) * 10 + 5
        await seed.stage(repository, "mixed", between)
        await _folders(seed, repository, trial.count(_FOLDERS, 10))
        await _branch(seed, "deleted", "base")
        gone = range(0, trial.count(_DELETED, 2 * listed) * 10, 10)
        paths = [f"lake/events/{OLD}/part-{number:09}.parquet" for number in gone]
        await seed.unstage(repository, "deleted", paths)


async def _branch(seed: Seeder, branch: str, source: str) -> None:
    await seed.client.create_branch(seed.connection.call(), REPOSITORY, branch, source)


async def _folders(seed: Seeder, repository: Repository, count: int) -> None:
    await _branch(seed, "folders", "main")
    for number in range(count):
        await seed.stage(repository, "folders", np.arange(3, dtype=np.int64), f"day={number:05}")
    await seed.client.create_commit(seed.connection.call(), REPOSITORY, "folders", "folders")


CASES = (Case("list", _run, quick=True),)
