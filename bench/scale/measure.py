"""Requests to the store per operation, by the number of processes: counted, and not timed.

    python -m bench.scale.measure [--processes 1,2,4,8] [--requests 1000] [--nodes 1]

Starts a real Cassandra node, and for each number N an installation with N gateways and N replicas of graveler. Sends a
fixed number of PUTs, GETs and LISTs, over 16 branches alike, or half of them to one hot branch, and reads from the
metrics of all processes and of Cassandra how many requests of which kind they cost. Each load comes twice: with 32
connections in all, and with 32 to each gateway. Rows that share a request depend on how many requests are in flight in
one process, so the first shows what dividing one load over more processes costs. The result is
`bench/results/scale.json`; `bench.scale.model` computes larger installations from it.

Processor time is that of a shared machine, whose Java has just been started: read it as a ratio.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop
from bench.load.client import Load, address_of
from bench.load.processes import Processes
from bench.load.seeding import connected
from bench.load.signing import Request, Signer
from bench.scale.counters import Counts
from bench.scale.installation import Installation, installed
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn_cli.connection import Connection

__all__ = ["IDLE", "RESULT", "own_requests", "summary", "targets"]

RESULT = Path(__file__).parents[1] / "results" / "scale.json"
REPOSITORY = "lake"
IDLE = "idle second"
HOT = "b00"
BRANCHES = tuple(f"b{number:02}" for number in range(16))
CONNECTIONS = 32
BODY = bytes(range(256)) * 4
_OBJECTS = 10
"""Committed objects of each branch; GETs read them, LISTs list them."""
_LIST_SHARE = 10
"""One LIST for so many PUTs."""
_COMMITS = 8
_PHASE_SECONDS = 600
_IDLE_SECONDS = 10.0
_SHOWN = ("operation", "hot", "connections_per_gateway", "cql_requests", "rows_per_write", "cas")
_WARM_SHARE = 4
_FEW = 8
_ROUNDS = 2
"""Each connection sends at least so many requests."""
_REFUSED_MAX = 0.1


def targets(count: int, *, hot: bool) -> list[str]:
    """Returns the branches of `count` operations in order: all alike, or every second one the hot branch."""
    others = BRANCHES[1:]
    if hot:
        return [HOT if number % 2 else others[number // 2 % len(others)] for number in range(count)]
    return [BRANCHES[number % len(BRANCHES)] for number in range(count)]


def summary(counts: Counts, operations: int) -> dict[str, Any]:
    """Returns what each of `operations` cost: requests of each layer, rows to a request, processor time.

    CQL requests are prepared statements that ran alone, and batches of several rows, which Cassandra does not count
    among them.
    """

    def each(value: float) -> float:
        return round(value / operations, 4)

    batches = counts.total("tarn_kv_batch_count")
    alone = counts.total('tarn_kv_batch_bucket{le="1"}')
    calls = counts.by_label("tarn_kv_duration_seconds_count", "operation")
    rpcs = counts.by_label("tarn_rpc_duration_seconds_count", "method")
    lookups = counts.by_label("tarn_cache_lookups_total", "cache")
    misses = {
        cache: sum(
            value
            for counted in counts.metrics.values()
            for name, value in counted.items()
            if name.startswith("tarn_cache_lookups_total")
            and f'"{cache}"' in name
            and '"miss"' in name
        )
        for cache in lookups
    }
    return {
        "operations": operations,
        "cql_requests": each(counts.node["statements"] + batches - alone),
        "write_requests": each(batches),
        "rows_per_write": round(counts.total("tarn_kv_batch_sum") / batches, 2) if batches else 0,
        "cas": each(calls.get("set_if", 0) + calls.get("delete_if", 0)),
        "kv_calls": {name: each(value) for name, value in calls.items() if value},
        "node": {name: each(value) for name, value in sorted(counts.node.items()) if value},
        "rpcs": {name: each(value) for name, value in rpcs.items() if value},
        "cache_misses": {name: each(value) for name, value in misses.items() if value},
        "cpu_ms": {
            name: round(1e3 * value / operations, 3) for name, value in counts.cpu_s.items()
        },
    }


def own_requests(row: Mapping[str, Any], idle: Mapping[str, Any]) -> float:
    """Returns the CQL requests of an operation, without those that the installation sends anyway.

    On a slow machine these are many. Their scans are the clock: an idle installation scans all the time, a GET or a PUT
    never does, and a LIST scans once.

    Args:
        row: of a load.
        idle: the row of an idle second of the same installation.
    """
    scans = row["kv_calls"].get("scan", 0.0) - (1.0 if row["operation"] == "LIST" else 0.0)
    for_each_scan = idle["cql_requests"] / idle["kv_calls"]["scan"]
    return float(row["cql_requests"] - max(0.0, scans) * for_each_scan)


class Result:
    """The file of the result. It is written after each row, so that a run that ends early leaves what it has.

    Args:
        file: to write; what it holds of other numbers of processes stays.
        sizes: numbers of processes that are measured anew.
        notes: what is the same for all of these rows.
    """

    def __init__(self, file: Path, sizes: Sequence[int], notes: Mapping[str, Any]) -> None:
        before = json.loads(file.read_text())["rows"] if file.exists() else []
        self._rows = [row for row in before if row["processes"] not in sizes]
        self._file = file
        self._notes = notes

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds a row, and prints its main figures."""
        self._rows.append({**row, **self._notes})
        ordered = sorted(self._rows, key=lambda each: each["processes"])
        self._file.write_text(json.dumps({"rows": ordered}, indent=1) + "\n")
        print(*(f"{name}={row[name]}" for name in _SHOWN if name in row), flush=True)


class Phases:
    """Sends loads to an installation, and counts what they cost."""

    def __init__(self, installation: Installation, requests: int, result: Result) -> None:
        self._installation = installation
        self._requests = requests
        self._round = 0
        self._result = result
        # Connections to each gateway for what is not counted: a busy machine should refuse none.
        self._few = max(1, _FEW // len(installation.signers))

    def load(self, operation: str, connections: int, *, hot: bool) -> None:
        """Sends one load, `connections` to each gateway, and counts it."""
        gateways = len(self._installation.signers)
        whole = max(self._requests, _ROUNDS * connections * gateways)
        count = max(gateways, whole // (_LIST_SHARE if operation == "LIST" else 1))
        before = self._installation.counts()
        good = self._send(operation, count, connections, hot=hot)
        counted = self._installation.counts().since(before)
        row = {"operation": operation, "hot": hot, "connections_per_gateway": connections}
        self._add({**row, "refused": count - good, **summary(counted, good)})

    def calls(
        self, operation: str, count: int, call: Callable[[Connection, int], Awaitable[None]]
    ) -> None:
        """Makes `count` rpcs one after the other, and counts them."""
        before = self._installation.counts()

        async def run() -> None:
            async with connected(self._installation.node) as connection:
                for number in range(count):
                    await call(connection, number)

        uvloop.run(run())
        counted = self._installation.counts().since(before)
        self._add({"operation": operation, **summary(counted, count)})

    def idle(self) -> None:
        """Counts what the installation does without requests; "operations" are seconds."""
        before, began = self._installation.counts(), time.monotonic()
        time.sleep(_IDLE_SECONDS)
        counted = self._installation.counts().since(before)
        self._add({"operation": IDLE, **summary(counted, round(time.monotonic() - began))})

    def fill(self) -> None:
        """Puts the objects that GETs and LISTs read, and fills caches."""
        self._send("PUT", _OBJECTS * len(BRANCHES), self._few, hot=False, prefix="kept/")

    def warm(self) -> None:
        """Sends requests of each kind to every gateway, which fill caches and have Java compile."""
        for operation in ("PUT", "GET", "LIST"):
            count = max(CONNECTIONS, self._requests // _WARM_SHARE)
            few = count // (_LIST_SHARE if operation == "LIST" else 1)
            self._send(operation, max(few, len(self._installation.signers)), self._few, hot=False)

    def _add(self, row: dict[str, Any]) -> None:
        self._result.add({"processes": len(self._installation.signers), **row})

    def _send(
        self, operation: str, count: int, connections: int, *, hot: bool, prefix: str = ""
    ) -> int:
        """Sends requests; returns the number of good answers. A busy machine may make a gateway refuse some.

        Raises:
            RuntimeError: more than a tenth were refused.
        """
        signers = self._installation.signers
        self._round += 1
        named = [
            (branch, prefix or f"new-{self._round}/", number)
            for number, branch in enumerate(targets(count, hot=hot))
        ]
        shares = [named[start :: len(signers)] for start in range(len(signers))]

        def run(signer: Signer, share: Sequence[tuple[str, str, int]]) -> int:
            requests = [_request(signer, operation, *each) for each in share]
            load = Load(address_of(f"http://{signer.host}"), requests, connections, _PHASE_SECONDS)
            done = load.run()
            if done.count < len(requests) * (1 - _REFUSED_MAX):
                good = f"{done.count} of {len(requests)} good answers"
                raise RuntimeError(f"{operation}: {good}; {done.failures} {done.first_failure}")
            return done.count

        with ThreadPoolExecutor(len(signers)) as threads:
            return sum(threads.map(run, signers, shares))


def _request(signer: Signer, operation: str, branch: str, prefix: str, number: int) -> Request:
    if operation == "PUT":
        # All branches get the same objects of `kept/`, whose numbers have no gaps.
        own = number // len(BRANCHES) if prefix == "kept/" else number
        return signer.request("PUT", f"/{REPOSITORY}/{branch}/{prefix}{own:06}", body=BODY)
    if operation == "GET":
        return signer.request("GET", f"/{REPOSITORY}/{branch}/kept/{number % _OBJECTS:06}")
    query = {"list-type": "2", "prefix": f"{branch}/kept/"}
    return signer.request("GET", f"/{REPOSITORY}", query)


def _prepared(phases: Phases) -> None:
    """Makes the branches and objects."""

    async def first(connection: Connection, _: int) -> None:
        await connection.graveler.create_repository(connection.call(), REPOSITORY)

    async def branch(connection: Connection, number: int) -> None:
        await connection.graveler.create_branch(
            connection.call(), REPOSITORY, BRANCHES[number], "main"
        )

    phases.calls("CreateRepository", 1, first)
    phases.calls("CreateBranch", len(BRANCHES), branch)
    phases.fill()
    phases.calls("CreateCommit of few", _COMMITS, _commit)
    phases.warm()


async def _commit(connection: Connection, number: int) -> None:
    await connection.graveler.create_commit(
        connection.call(), REPOSITORY, BRANCHES[number], "bench"
    )


async def _merge(connection: Connection, number: int) -> None:
    await connection.graveler.merge(connection.call(), REPOSITORY, "main", BRANCHES[number])


def measure(installation: Installation, requests: int, result: Result) -> None:
    """Measures one installation; adds a row for each load."""
    phases = Phases(installation, requests, result)
    _prepared(phases)
    phases.idle()
    for connections in sorted({max(1, CONNECTIONS // len(installation.signers)), CONNECTIONS}):
        for operation in ("PUT", "GET"):
            for hot in (False, True):
                phases.load(operation, connections, hot=hot)
        phases.load("LIST", connections, hot=False)
    phases.calls("CreateCommit", _COMMITS, _commit)
    phases.calls("Merge", _COMMITS, _merge)


def main() -> None:
    """Measures, and writes the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--processes", default="1,2,4,8", help="numbers of gateways and of gravelers"
    )
    parser.add_argument("--requests", type=int, default=500, help="PUTs, and GETs, of each load")
    parser.add_argument(
        "--nodes", type=int, default=1, help="nodes of Cassandra to start, at most 3"
    )
    parser.add_argument(
        "--contact-points", default="", help="a running cluster instead, host:port,…"
    )
    parser.add_argument("--output", type=Path, default=RESULT)
    given = parser.parse_args()
    sizes = [int(each) for each in given.processes.split(",")]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        points, store = tuple(filter(None, given.contact_points.split(","))), Processes(())
        if not points:
            started = CassandraNodes(folder / "cassandra", given.nodes, start_seconds=600)
            nodes = stack.enter_context(started)
            points, store = nodes.contact_points, Processes(nodes.pids)
        notes = {"nodes": len(points), "replication": min(3, len(points))}
        result = Result(given.output, sizes, notes)
        for replicas in sizes:
            print(f"{replicas} gateways, {replicas} replicas of graveler", flush=True)
            place = folder / f"tarn-{replicas}"
            with installed(place, replicas, points, store) as installation:
                measure(installation, given.requests, result)


if __name__ == "__main__":
    main()
