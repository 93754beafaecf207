"""Compares Tarn with metadata in Cassandra with Tarn on its embedded store: GET, PUT, commit."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import numpy as np
import uvloop
from bench.load.cases.objects import REPOSITORY, fill, make_repository, requests_for
from bench.load.cassandra import SECTION, cassandra_node
from bench.load.client import Load
from bench.load.node import Form, Node, running
from bench.load.processes import Processes
from bench.load.seeding import Seeder, seeder
from bench.load.table import Goal, Row
from bench.load.trial import Case, Trial, Yardstick, compare, trouble

from tarn.kv.records import Repository

__all__ = ["CASES"]

_CONNECTIONS = 32
_KEYS = 1000
_WARM_SECONDS = 6.0
_WARM_JAVA_SECONDS = 30.0
"""Seconds of PUTs before the measurement. Java compiles code that is called often: in the first half
minute that is more work than the requests, and a node that has run for a day does not have it."""
_MILLION = 1_000_000
_GOALS = {"GET": Goal(), "PUT": Goal(ratio_min=0.5)}
_YARDSTICK = "embedded store, fsync"


def _run(trial: Trial) -> None:
    with cassandra_node(trial.within("cassandra")) as nodes:
        form = Form("fsync", cassandra=nodes.contact_points)
        with (
            running(trial.within("on-cassandra"), form) as node,
            running(trial.within("embedded"), Form("fsync")) as embedded,
        ):
            node.store = Processes(nodes.pids)
            for each in (node, embedded):
                make_repository(each)
                fill(each, "read/", trial.count(_KEYS, 10))
            _warm(trial, embedded, _WARM_SECONDS)
            _warm(trial, node, _WARM_JAVA_SECONDS)
            for operation in ("PUT", "GET"):
                _requests(trial, node, embedded, operation)
            uvloop.run(_commits(trial, node, embedded))


def _warm(trial: Trial, node: Node, seconds: float) -> None:
    requests = [
        node.signer.request("PUT", f"/{REPOSITORY}/main/warm/{number}", body=b"warm")
        for number in range(trial.count(50_000, 100))
    ]
    done = Load(node.address, requests, _CONNECTIONS, seconds).run()
    if done.failures:
        raise RuntimeError(f"warming up: {trouble(done)}")


def _requests(trial: Trial, node: Node, embedded: Node, operation: str) -> None:
    """Measures rounds of small requests to both nodes, alternately."""
    beside = Yardstick(
        _YARDSTICK,
        embedded.address,
        embedded.processes,
        requests_for(embedded, operation, _CONNECTIONS, trial),
    )
    what = f"{operation} 1 KiB, {_CONNECTIONS} connections"
    compare(
        trial,
        node,
        beside,
        Row(trial.case, what, goal=_GOALS[operation]),
        requests_for(node, operation, _CONNECTIONS, trial),
        _CONNECTIONS,
        repeat=operation != "PUT",
    )


@dataclass(frozen=True, slots=True)
class _Cost:
    """The cost of one commit: time, CPU of the node and of its metadata store, memory of the largest
    process.
    """

    seconds: float
    cpu_s: float
    store_cpu_s: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class _Lake:
    """A node, the benchmark's replica of it, and the repository."""

    node: Node
    seed: Seeder
    repository: Repository

    async def stage(self, branch: str, rows: int) -> float:
        """Stages rows on a new branch by graveler's own code; returns the seconds that it took."""
        call = self.seed.connection.call()
        await self.seed.client.create_branch(call, REPOSITORY, branch, "main")
        began = time.perf_counter()
        await self.seed.stage(self.repository, branch, np.arange(rows, dtype=np.int64))
        return time.perf_counter() - began

    async def commit(self, branch: str, rows: int) -> _Cost:
        """Commits a branch through the node, and checks the number of rows."""
        processes = self.node.workers()
        processes.forget_peak()
        cpu_s, store_s = processes.cpu_s(), self.node.store.cpu_s()
        call, began = self.seed.connection.call(), time.perf_counter()
        made = await self.seed.client.create_commit(call, REPOSITORY, branch, "bench")
        seconds = time.perf_counter() - began
        if made.added_count != rows:
            raise RuntimeError(f"the commit holds {made.added_count} entries, not {rows}")
        after = self.node.workers()  # a commit may have started a process
        return _Cost(
            seconds, after.cpu_s() - cpu_s, self.node.store.cpu_s() - store_s, after.peak_rss_mib()
        )


async def _commits(trial: Trial, node: Node, embedded: Node) -> None:
    """Stages and commits a million entries on the embedded store and then on Cassandra."""
    rows = trial.count(_MILLION, 1000)
    async with AsyncExitStack() as stack:
        lakes = []
        for each, cache in ((embedded, "cache-embedded"), (node, "cache")):
            seed = await stack.enter_async_context(seeder(each, trial.within(cache)))
            repository = await seed.graveler.repositories.get(REPOSITORY)
            lakes.append(_Lake(each, seed, repository))
        beside, tarn = lakes
        theirs, ours = await beside.stage("million", rows), await tarn.stage("million", rows)
        what = "staging of 1,000,000 entries without HTTP, 4,096 at once; the time is of all"
        # The benchmark's own replica does not wait for the disk of the embedded store.
        staged = _row(trial, node, what, ours, theirs, "embedded store, os")
        trial.emit(replace(staged, per_second=rows / ours))
        reference = await beside.commit("million", rows)
        cost = await tarn.commit("million", rows)
        what = "commit of 1,000,000 staged entries"
        trial.emit(
            replace(
                _row(trial, node, what, cost.seconds, reference.seconds),
                cpu_us=cost.cpu_s * 1e6,
                store_cpu_us=cost.store_cpu_s * 1e6,
                rss_mib=cost.peak_mib,
            )
        )


def _row(
    trial: Trial, node: Node, what: str, ours: float, theirs: float, beside: str = _YARDSTICK
) -> Row:
    """Returns a row that compares the seconds of both."""
    return Row(
        trial.case,
        what,
        form=str(node.form),
        per_second=1 / ours,
        p50_ms=ours * 1e3,
        ratio=theirs / ours,
        yardstick=f"{beside}: {theirs * 1e3:,.0f} ms",
    )


CASES = (Case("cassandra", _run, limit_s=360, section=SECTION),)
