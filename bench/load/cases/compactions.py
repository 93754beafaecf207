"""Compactions: beside PUTs, against commits, and what they do to listings under deletes."""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import partial

import numpy as np
import uvloop
from bench.load.cases.commits import (
    MILLION,
    Change,
    Clocked,
    Lake,
    puts_during,
    rounds_of,
    with_lake,
    with_ratio,
)
from bench.load.cases.objects import REPOSITORY, make_repository
from bench.load.client import Load, Measured, exchange
from bench.load.node import Form, Node, running
from bench.load.seeding import OLD, seeder
from bench.load.table import Goal, Row
from bench.load.trial import Case, Trial, pooled, trouble

from tarn_cli.connection import Connection
from tarn_proto.graveler.v1.compaction_service_pb2 import COMPACTION_OUTCOME_COMPACTED

__all__ = ["CASES"]

_ALONE = Form("os", compactor=False)
"""These cases compact by rpc, at a known moment."""
_LISTED = 1000
_BASE = 200_000
_DELETED = 100_000
_LISTS_SECONDS = 0.5
_LISTINGS = {
    "clean": "clean",
    "behind 100,000 uncommitted deletes": "deleted",
    "after their compaction": "folded",
}
_ROUNDS = 8
"""Of each listing: more and shorter ones than of other cases, because their ratio is what counts."""


async def _compact(
    connection: Connection, branch: str, rows: int, *, is_background: bool = False
) -> None:
    """Compacts a branch and checks the number of rows."""
    done = await connection.graveler.compact_branch(
        connection.call(), REPOSITORY, branch, is_background=is_background
    )
    if done.outcome != COMPACTION_OUTCOME_COMPACTED or done.rows_read != rows:
        raise RuntimeError(f"the compaction of {rows} rows answers {done}")


async def _compact_as_compactor(connection: Connection, branch: str, rows: int) -> None:
    await _compact(connection, branch, rows, is_background=True)


async def _against_commits(lake: Lake) -> None:
    """Compacts and commits as many staged rows, in turn."""
    trial = lake.trial
    for change in (
        Change("100,000 staged entries", 100_000),
        Change("1,000,000 staged entries", MILLION),
    ):
        compactions, commits = Clocked.on(lake.node), Clocked.on(lake.node)
        for _ in range(rounds_of(trial, change)):
            branch, rows = await lake.staged(change, "main", 0)
            await commits.time(partial(lake.commit, branch, rows))
            branch, rows = await lake.staged(change, "main", 0)
            await compactions.time(partial(_compact, lake.seed.connection, branch, rows))
        ratios = [a / b for a, b in zip(compactions.seconds, commits.seconds, strict=True)]
        row = compactions.row(trial, f"compaction of {change.what}", Goal(ratio_max=1.2))
        row = with_ratio(row, ratios, f"commit: {statistics.median(commits.seconds) * 1e3:,.0f} ms")
        cpu_ms = [each.cpu_s * 1e3 / len(each.seconds) for each in (compactions, commits)]
        trial.emit(replace(row, note=f"CPU {cpu_ms[0]:,.0f} ms, of the commit {cpu_ms[1]:,.0f} ms"))


def _listings(trial: Trial) -> None:
    """Lists the same 1,000 objects: committed, behind uncommitted deletes, and after these were compacted."""
    with running(trial.within("node"), _ALONE) as node:
        make_repository(node)
        uvloop.run(_prepare(trial, node))
        runs: dict[str, list[Measured]] = {what: [] for what in _LISTINGS}
        cpu_s = dict.fromkeys(_LISTINGS, 0.0)
        listed = trial.count(_LISTED, 10)
        for _ in range(_ROUNDS):
            for what, branch in _LISTINGS.items():
                query = {"list-type": "2", "max-keys": str(listed), "prefix": f"{branch}/lake/"}
                request = node.signer.request("GET", f"/{REPOSITORY}", query)
                for _ in range(4):  # so that each worker learns what it can
                    found = exchange(node.address, request).count(b"<Key>")
                    if found != listed:
                        raise RuntimeError(f"the listing {what} found {found}, not {listed}")
                before = node.processes.cpu_s()
                runs[what].append(
                    Load(node.address, [request], 1, _LISTS_SECONDS, repeat=True).run()
                )
                cpu_s[what] += node.processes.cpu_s() - before
        goals = (Goal(), Goal(p50_ms_max=20), Goal(ratio_max=1.2))
        clean = [run.quantile_ms(0.5) for run in runs["clean"]]
        for (what, measured), goal in zip(runs.items(), goals, strict=True):
            whole = pooled(measured)
            medians = [run.quantile_ms(0.5) for run in measured]
            row = Row(
                trial.case,
                f"LIST of 1,000 {what}, 1 connection",
                form=str(node.form),
                per_second=whole.per_second,
                p50_ms=statistics.median(medians),
                p99_ms=whole.quantile_ms(0.99),
                cpu_us=cpu_s[what] * 1e6 / max(1, whole.count),
                goal=goal,
                note=trouble(whole),
                failed=not whole.count or bool(whole.failures),
                rounds=_ROUNDS,
            )
            ratios = [a / max(b, 1e-9) for a, b in zip(medians, clean, strict=True)]
            trial.emit(with_ratio(row, ratios, "the clean branch"))


async def _prepare(trial: Trial, node: Node) -> None:
    """Makes three branches with the same content."""
    count = trial.count(_DELETED, 2 * _LISTED)
    gone = [f"lake/events/{OLD}/part-{number:09}.parquet" for number in range(0, count * 10, 10)]
    async with seeder(node, trial.within("cache")) as seed:
        repository = await seed.graveler.repositories.get(REPOSITORY)
        await seed.base(repository, "base", trial.count(_BASE, 2 * count))
        call = seed.connection.call
        for branch in _LISTINGS.values():
            await seed.client.create_branch(call(), REPOSITORY, branch, "base")
            await seed.unstage(repository, branch, gone)
            # One object more, so that a compacted listing remains.
            await seed.stage(repository, branch, np.arange(1, dtype=np.int64), "date=2026-01-02")
        await seed.client.create_commit(call(), REPOSITORY, "clean", "deletes")
        await _compact(seed.connection, "folded", len(gone) + 1)


CASES = (
    Case("compaction", partial(with_lake, _against_commits, form=_ALONE), limit_s=1800),
    Case("list-compacted", _listings, limit_s=600),
    Case(
        "put-in-compaction",
        partial(puts_during, what="compaction", form=_ALONE, work=_compact_as_compactor),
        limit_s=1200,
    ),
)
