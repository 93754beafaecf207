"""Commits of staged entries, differences, new branches, and PUTs while a commit runs."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import uvloop
from bench.load.cases.objects import BODY, REPOSITORY, make_repository
from bench.load.client import Load, Measured
from bench.load.node import Form, Node, running
from bench.load.seeding import OLD, Seeder, connected, seeder
from bench.load.signing import Request
from bench.load.table import Goal, Row
from bench.load.trial import Case, Trial, pooled, trouble

from tarn.kv.records import Repository
from tarn_cli.connection import Connection

__all__ = [
    "CASES",
    "MILLION",
    "Change",
    "Clocked",
    "Lake",
    "puts_during",
    "rounds_of",
    "with_lake",
    "with_ratio",
]

MILLION = 1_000_000
_NEW = "date=2026-01-02"
_BRANCHES = 40
_IDLE_SECONDS = 4.0
_PUT_CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class Change:
    """Rows to stage over a base of numbers 0, 10, 20 …

    Attributes:
        what: in the table.
        rows: how many.
        spread: new rows among all of the base's, not behind them.
        adjacent: changes of neighbours in the middle of the base.
    """

    what: str
    rows: int
    spread: bool = False
    adjacent: bool = False

    def numbers(self, trial: Trial, base: int) -> tuple[np.ndarray, str]:
        """Returns the numbers to stage, and the folder."""
        count = trial.count(self.rows, 10)
        if self.adjacent:
            first = max(0, base // 2 - count)
            return np.arange(first, first + count, dtype=np.int64) * 10, OLD
        if self.spread:
            step = max(1, base // count)
            return np.arange(count, dtype=np.int64) * 10 * step + 5, OLD
        return np.arange(count, dtype=np.int64), _NEW


_ADJACENT = Change("10,000 adjacent changes", 10_000, adjacent=True)
_NEW_ROWS = Change("100,000 new entries beside them", 100_000)
_SPREAD = Change("1,000,000 new entries among them", MILLION, spread=True)


@dataclass(frozen=True, slots=True)
class Lake:
    """A node, the benchmark's own replica of it, and the repository of the case."""

    trial: Trial
    node: Node
    seed: Seeder
    repository: Repository
    names: itertools.count[int]

    async def branch(self, source: str) -> str:
        """Creates a branch."""
        name = f"b{next(self.names)}"
        await self.seed.client.create_branch(self.seed.connection.call(), REPOSITORY, name, source)
        return name

    async def staged(self, change: Change, source: str, base: int) -> tuple[str, int]:
        """Creates a branch and stages a change on it; returns its name and the number of rows."""
        name = await self.branch(source)
        numbers, folder = change.numbers(self.trial, base)
        await self.seed.stage(self.repository, name, numbers, folder)
        return name, len(numbers)

    async def commit(self, branch: str, rows: int) -> None:
        """Commits and checks the number of changes."""
        call = self.seed.connection.call()
        made = await self.seed.client.create_commit(call, REPOSITORY, branch, "bench")
        counted = made.added_count + made.changed_count
        if counted != rows:
            raise RuntimeError(f"the commit holds {counted} changes, not {rows}")

    async def diff(self, left: str, right: str, rows: int) -> None:
        """Reads all pages of a difference."""
        token, found = "", 0
        while True:
            page = await self.seed.client.diff_refs(
                self.seed.connection.call(),
                REPOSITORY,
                left,
                right,
                page_size=5000,
                page_token=token,
            )
            found += len(page.paths)
            token = page.next_page_token
            if not token:
                break
        if found != rows:
            raise RuntimeError(f"the difference has {found} changes, not {rows}")


@asynccontextmanager
async def _lake(trial: Trial, node: Node) -> AsyncIterator[Lake]:
    async with seeder(node, trial.within("cache")) as seed:
        repository = await seed.repository(REPOSITORY)
        yield Lake(trial, node, seed, repository, itertools.count())


@dataclass(slots=True)
class Clocked:
    """Durations and costs of one operation."""

    node: Node
    seconds: list[float]
    cpu_s: float = 0.0
    peak_mib: float = 0.0

    @staticmethod
    def on(node: Node) -> Clocked:
        """Returns a new one for a node."""
        return Clocked(node, [])

    async def time(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does the work once and measures it."""
        processes = self.node.workers()
        processes.forget_peak()
        cpu_s, began = processes.cpu_s(), time.perf_counter()
        await work()
        self.seconds.append(time.perf_counter() - began)
        after = self.node.workers()  # a commit may have started a process
        self.cpu_s += after.cpu_s() - cpu_s
        self.peak_mib = max(self.peak_mib, after.peak_rss_mib())

    def row(self, trial: Trial, what: str, goal: Goal) -> Row:
        """Returns the row of the measurements."""
        median = statistics.median(self.seconds)
        return Row(
            trial.case,
            what,
            form=str(self.node.form),
            per_second=1 / median,
            p50_ms=median * 1e3,
            cpu_us=self.cpu_s * 1e6 / len(self.seconds),
            rss_mib=self.peak_mib,
            goal=goal,
            rounds=len(self.seconds),
        )


def with_lake(
    work: Callable[[Lake], Awaitable[None]], trial: Trial, form: Form | None = None
) -> None:
    """Starts a node and runs the work on an event loop."""

    async def run(node: Node) -> None:
        async with _lake(trial, node) as lake:
            await work(lake)

    with running(trial.within("node"), form or Form("os")) as node:
        uvloop.run(run(node))


async def _commit_rounds(
    lake: Lake, change: Change, source: str, base: int, rounds: int
) -> tuple[Clocked, str, int]:
    """Commits the change on new branches; also returns the last branch and its number of rows."""
    clocked, branch, rows = Clocked.on(lake.node), "", 0
    for _ in range(rounds):
        branch, rows = await lake.staged(change, source, base)
        await clocked.time(partial(lake.commit, branch, rows))
    return clocked, branch, rows


def rounds_of(trial: Trial, change: Change) -> int:
    """Returns how often a change is measured: large ones three times."""
    return trial.rounds if change.rows < MILLION else min(3, trial.rounds)


async def _on_empty(lake: Lake) -> None:
    trial = lake.trial
    sizes = (100_000,) if trial.quick else (10_000, 100_000, MILLION)
    for rows in sizes:
        change = Change(f"{rows:,} staged entries on an empty branch", rows)
        goal = Goal(p50_ms_max=700, rss_mib_max=1024) if rows == MILLION else Goal()
        rounds = rounds_of(trial, change)
        clocked, _, _ = await _commit_rounds(lake, change, "main", 0, rounds)
        trial.emit(clocked.row(trial, f"commit of {change.what}", goal))


async def _on_million(lake: Lake) -> None:
    trial, base = lake.trial, lake.trial.count(MILLION, 1000)
    await lake.seed.base(lake.repository, "base", base)
    goals = {
        _ADJACENT.what: Goal(p50_ms_max=50),
        _NEW_ROWS.what: Goal(p50_ms_max=120),
    }
    for change in (_ADJACENT, _NEW_ROWS, _SPREAD):
        rounds = rounds_of(trial, change)
        clocked, branch, rows = await _commit_rounds(lake, change, "base", base, rounds)
        goal = goals.get(change.what, Goal(rss_mib_max=1024))
        trial.emit(clocked.row(trial, f"commit in 1,000,000: {change.what}", goal))
        if change is _ADJACENT:
            different = Clocked.on(lake.node)
            for _ in range(trial.rounds):
                await different.time(partial(lake.diff, "base", branch, rows))
            text = "difference of 10,000 changes in 1,000,000, all pages"
            trial.emit(different.row(trial, text, Goal(p50_ms_max=60)))


async def _on_ten_million(lake: Lake) -> None:
    """Measures the same changes in 1M and in 10M entries, alternately."""
    trial = lake.trial
    sizes = {"small": trial.count(MILLION, 1000), "base": trial.count(10 * MILLION, 10_000)}
    for branch, rows in sizes.items():
        await lake.seed.base(lake.repository, branch, rows)
    commits = {branch: Clocked.on(lake.node) for branch in sizes}
    diffs = {branch: Clocked.on(lake.node) for branch in sizes}
    for _ in range(trial.rounds):
        for source, base in sizes.items():
            branch, rows = await lake.staged(_ADJACENT, source, base)
            await commits[source].time(partial(lake.commit, branch, rows))
            await diffs[source].time(partial(lake.diff, source, branch, rows))
    for what, found in (
        ("commit in 10,000,000: 10,000 adjacent changes", commits),
        ("difference of 10,000 changes in 10,000,000, all pages", diffs),
    ):
        row = found["base"].row(trial, what, Goal(ratio_max=1.3))
        ratios = [b / a for a, b in zip(found["small"].seconds, found["base"].seconds, strict=True)]
        trial.emit(with_ratio(row, ratios, "the time in 1,000,000"))
    for change in (_NEW_ROWS, _SPREAD):
        rounds = rounds_of(trial, change)
        clocked, _, _ = await _commit_rounds(lake, change, "base", sizes["base"], rounds)
        trial.emit(clocked.row(trial, f"commit in 10,000,000: {change.what}", Goal()))


def with_ratio(row: Row, ratios: Sequence[float], yardstick: str) -> Row:
    """Returns a row with the median and the bounds of some ratios."""
    return replace(
        row,
        ratio=statistics.median(ratios),
        ratio_low=min(ratios),
        ratio_high=max(ratios),
        yardstick=yardstick,
    )


async def _new_branches(lake: Lake) -> None:
    trial = lake.trial
    await lake.seed.base(lake.repository, "base", trial.count(MILLION, 1000))

    async def create(source: str) -> None:
        await lake.branch(source)

    found = {source: Clocked.on(lake.node) for source in ("main", "base")}
    for _ in range(_BRANCHES):
        for source, clocked in found.items():
            await clocked.time(partial(create, source))
    row = found["base"].row(trial, "create a branch of 1,000,000 entries", Goal(ratio_max=1.2))
    medians = [statistics.median(found[source].seconds) for source in ("main", "base")]
    row = with_ratio(row, [medians[1] / medians[0]], "the time from an empty branch")
    trial.emit(replace(row, rounds=1))


class BranchWork(Protocol):
    """Work of the node on a branch with a number of staged rows, asked for over a connection."""

    async def __call__(self, connection: Connection, branch: str, rows: int) -> None:
        """Does the work, and checks the number of rows."""
        ...


def puts_during(trial: Trial, what: str, form: Form, work: BranchWork) -> None:
    """Measures PUTs while the node works on a branch with a million staged rows, and without, alternately."""
    with running(trial.within("node"), form) as node:
        make_repository(node)
        idle, busy, ratios = [], [], []
        for number in range(min(3, trial.rounds)):
            branch, rows = uvloop.run(_stage_million(trial, node, number))
            idle.append(_puts(trial, node, f"idle{number}"))
            busy.append(_puts_beside(trial, node, number, work, branch, rows))
            ratios.append(busy[-1].quantile_ms(0.99) / max(1e-6, idle[-1].quantile_ms(0.99)))
        quiet, loud = pooled(idle), pooled(busy)
        rates = f"{quiet.per_second:,.0f}/s idle, {loud.per_second:,.0f}/s beside the {what}"
        row = Row(
            trial.case,
            f"PUT 1 KiB while a 1,000,000-entry {what} runs, 4 connections",
            form=str(node.form),
            per_second=loud.per_second,
            p50_ms=loud.quantile_ms(0.5),
            p99_ms=loud.quantile_ms(0.99),
            goal=Goal(ratio_max=2),
            note="; ".join(filter(None, (rates, trouble(quiet), trouble(loud)))),
            failed=not loud.count or bool(quiet.failures or loud.failures),
            rounds=len(ratios),
        )
        p99 = quiet.quantile_ms(0.99)
        trial.emit(with_ratio(row, ratios, f"p99 of the idle node: {p99:.3g} ms"))


async def _stage_million(trial: Trial, node: Node, number: int) -> tuple[str, int]:
    async with seeder(node, trial.within(f"cache{number}")) as seed:
        repository = await seed.graveler.repositories.get(REPOSITORY)
        name = f"million{number}"
        await seed.client.create_branch(seed.connection.call(), REPOSITORY, name, "main")
        numbers = np.arange(trial.count(MILLION, 1000), dtype=np.int64)
        await seed.stage(repository, name, numbers)
        return name, len(numbers)


def _requests(node: Node, prefix: str, count: int) -> list[Request]:
    return [
        node.signer.request("PUT", f"/{REPOSITORY}/main/{prefix}/{number}", body=BODY)
        for number in range(count)
    ]


def _puts(trial: Trial, node: Node, prefix: str) -> Measured:
    seconds = max(0.5, _IDLE_SECONDS * trial.scale)
    requests = _requests(node, prefix, int(15_000 * seconds))
    return Load(node.address, requests, _PUT_CONNECTIONS, seconds).run()


async def _commit_all(connection: Connection, branch: str, rows: int) -> None:
    made = await connection.graveler.create_commit(connection.call(), REPOSITORY, branch, "bench")
    if made.added_count != rows:
        raise RuntimeError(f"the commit holds {made.added_count} entries, not {rows}")


def _puts_beside(
    trial: Trial, node: Node, number: int, work: BranchWork, branch: str, rows: int
) -> Measured:
    """Measures PUTs from just before some work of the node begins until it is done."""
    requests = _requests(node, f"busy{number}", int(60_000 * max(0.1, trial.scale)))
    over = threading.Event()
    errors: list[BaseException] = []

    async def do() -> None:
        async with connected(node) as connection:
            await work(connection, branch, rows)

    def run() -> None:
        try:
            asyncio.run(do())
        except BaseException as error:  # noqa: BLE001 - raised again below, in the main thread
            errors.append(error)
        finally:
            over.set()

    thread = threading.Thread(target=run)
    load = Load(node.address, requests, _PUT_CONNECTIONS, 600, until=over.is_set)
    thread.start()
    measured = load.run()
    thread.join()
    if errors:
        raise errors[0]
    return measured


CASES = (
    Case("commit", partial(with_lake, _on_empty), limit_s=1200, quick=True),
    Case("commit-1m", partial(with_lake, _on_million), limit_s=1800),
    Case("commit-10m", partial(with_lake, _on_ten_million), limit_s=3600),
    Case("branch", partial(with_lake, _new_branches), limit_s=600),
    Case(
        "put-in-commit",
        partial(puts_during, what="commit", form=Form("os"), work=_commit_all),
        limit_s=1200,
    ),
)
