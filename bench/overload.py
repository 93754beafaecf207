"""Overload: answers in time at 1, 2 and 4 times the capacity, and the latency of a lone user beside a busy one.

    python -m bench.overload [--seconds 2] [--rounds 5] [--connections 1024] [--workers 1]

One Tarn serves GETs and PUTs of 1 KiB. Its capacity is the rate of a closed loop of 32 connections. Then requests
arrive at multiples of it, whatever has become of the earlier ones: each takes an idle connection of the pool, or is
dropped if there is none. `good` are answers 2xx within a second. A refused request is lost, and its connection takes
the next one at once: clients that wait before they ask again would cost the server less. The client shares the cores
with the server, so only ratios within one run count.

The second table has one connection of one user alone, and beside 256 of another one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path

from bench.load.answer import Answer
from bench.load.cases.objects import BODY, REPOSITORY, fill, make_repository
from bench.load.client import Load
from bench.load.node import Form, Node, running
from bench.load.signing import Signer

from tarn.rpc.process.system import SystemClock

WITHIN_S = 1.0
"""An answer that comes later is of no use to its client."""
LEVELS = (1, 2, 4)
_CLOSED = 32
_BESIDE = (0, 1, 16, 256)
_KEYS = 500
_ARRIVALS_AT_ONCE = 64
_RECEIVE = 1 << 16


@dataclass
class Level:
    """What became of the requests of one level."""

    arrived: int = 0
    good_s: list[float] = field(default_factory=list)
    late: int = 0
    refused: int = 0
    failed: int = 0
    dropped: int = 0
    client_cpu_s: float = 0.0

    def quantile_ms(self, part: float) -> float:
        ranked = sorted(self.good_s)
        return ranked[int(part * (len(ranked) - 1))] * 1e3 if ranked else 0.0


class Connection:
    """One connection of the pool."""

    __slots__ = ("answer", "sent", "socket")

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.sent = 0.0
        self.answer = Answer()


class Arrivals:
    """Requests that arrive at a constant rate, over a pool of connections.

    Args:
        address: of the server.
        connections: most of them.
    """

    def __init__(self, address: tuple[str, int], connections: int) -> None:
        self._address = address
        self._poll = select.epoll()
        self._all: dict[int, Connection] = {}
        self._idle: deque[Connection] = deque()
        for _ in range(connections):
            self._open()

    def _open(self) -> None:
        made = Connection(self._address)
        self._all[made.socket.fileno()] = made
        self._poll.register(made.socket.fileno(), select.EPOLLIN)
        self._idle.append(made)

    def close(self) -> None:
        for each in self._all.values():
            each.socket.close()
        self._poll.close()

    def run(self, requests: Sequence[bytes], rate: float, seconds: float) -> Level:
        """Has requests arrive for some seconds, and waits for the answers that may still be good."""
        level = Level()
        cpu = time.process_time()
        began = time.perf_counter()
        while (now := time.perf_counter()) < began + seconds + WITHIN_S:
            due = int(min(now - began, seconds) * rate)
            for _ in range(min(due - level.arrived, len(self._idle), _ARRIVALS_AT_ONCE)):
                connection = self._idle.popleft()
                connection.answer = Answer()
                connection.sent = time.perf_counter()
                connection.socket.send(requests[level.arrived % len(requests)])
                level.arrived += 1
            if due > level.arrived and not self._idle:
                level.dropped += due - level.arrived
                level.arrived = due
            for descriptor, _ in self._poll.poll(0 if due > level.arrived else 0.001):
                self._receive(self._all[descriptor], level)
        level.client_cpu_s = time.process_time() - cpu
        level.late += len(self._all) - len(self._idle)
        self._settle()
        return level

    def _receive(self, connection: Connection, level: Level) -> None:
        try:
            data = connection.socket.recv(_RECEIVE)
            if not data:
                raise ConnectionResetError
            if not connection.answer.feed(data):
                return
        except BlockingIOError:
            return
        except (OSError, ValueError):
            level.failed += 1
            del self._all[connection.socket.fileno()]
            connection.socket.close()
            self._open()
            return
        took = time.perf_counter() - connection.sent
        self._idle.append(connection)
        if connection.answer.status == 503:
            level.refused += 1
        elif connection.answer.status >= 300:
            level.failed += 1
        elif took > WITHIN_S:
            level.late += 1
        else:
            level.good_s.append(took)

    def _settle(self) -> None:
        """Waits for the answers that come too late, so that the next level begins with an idle server."""
        end = time.perf_counter() + 30
        while len(self._idle) < len(self._all) and time.perf_counter() < end:
            for descriptor, _ in self._poll.poll(0.1):
                self._receive(self._all[descriptor], Level())


def requests_of(signer: Signer, method: str) -> list[bytes]:
    """Returns signed requests for some hundred objects."""
    body = BODY if method == "PUT" else b""
    folder = "new" if method == "PUT" else "old"
    names = (f"/{REPOSITORY}/main/{folder}/{number}" for number in range(_KEYS))
    return [signer.request(method, name, body=body).head for name in names]


def overload(node: Node, method: str, seconds: float, connections: int, rounds: int) -> None:
    """Prints the levels of one method: medians of the rounds."""
    names = (f"/{REPOSITORY}/main/old/{number}" for number in range(_KEYS))
    body = BODY if method == "PUT" else b""
    closed = [node.signer.request(method, name, body=body) for name in names]
    requests = requests_of(node.signer, method)
    arrivals = Arrivals(node.address, connections)
    rows: dict[int, list[tuple[float, ...]]] = {times: [] for times in LEVELS}
    capacities = []
    for _ in range(rounds):
        capacities.append(
            Load(node.address, closed, _CLOSED, seconds, repeat=True).run().per_second
        )
        levels = {}
        for times in LEVELS:
            cpu_s = node.processes.cpu_s()
            level = arrivals.run(requests, capacities[-1] * times, seconds)
            levels[times] = level, node.processes.cpu_s() - cpu_s
        peak = max(len(level.good_s) for level, _ in levels.values())
        for times, (level, cpu_s) in levels.items():
            good = len(level.good_s)
            counts = (good, level.refused, level.late, level.dropped, level.failed)
            per_second = (count / seconds for count in counts)
            quantiles = level.quantile_ms(0.5), level.quantile_ms(0.99)
            rows[times].append(
                (good / max(1, peak), *per_second, *quantiles, good / max(0.01, cpu_s))
            )
    arrivals.close()
    print(f"\n{method}: {statistics.median(capacities):.0f}/s with {_CLOSED} connections")
    print(
        "load  of peak  good/s  refused/s  late/s  dropped/s  failed/s  p50 ms  p99 ms  good per CPU s of Tarn"
    )
    for times, found in rows.items():
        ratio, good, refused, late, dropped, failed, p50, p99, per_cpu_s = map(
            statistics.median, zip(*found, strict=True)
        )
        print(
            f"{times} x   {ratio:7.2f}  {good:6.0f}  {refused:9.0f}  {late:6.0f}  {dropped:9.0f}  {failed:8.0f}  "
            f"{p50:6.0f}  {p99:6.0f}  {per_cpu_s:8.0f}",
            flush=True,
        )


def second_user(node: Node, settings: Path) -> Signer:
    """Creates a user, and returns a signer with its key."""

    def tarn(*arguments: str) -> str:
        command = [sys.executable, "-m", "tarn_cli", "--settings", str(settings), "--json", "auth"]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, check=True, timeout=60, text=True
        )
        return done.stdout

    tarn("user", "create", "busy", "--role", "Admin")
    made = json.loads(tarn("credential", "create", "--user", "busy"))
    return Signer(node.signer.host, made["access_key_id"], made["secret_access_key"], SystemClock())


def _busy(
    address: tuple[str, int], signer: Signer, connections: int, begun: Event, ends: Event
) -> None:
    requests = [
        signer.request("GET", f"/{REPOSITORY}/main/old/{number}") for number in range(_KEYS)
    ]
    load = Load(address, requests, connections, 600, repeat=True, until=ends.is_set)
    begun.set()
    failures = load.run().failures
    if failures:
        print(f"the other user: {dict(failures)}", flush=True)


def fairness(node: Node, busy: Signer, seconds: float) -> None:
    """Prints the latency of a lone connection, alone and beside another user's."""
    requests = [
        node.signer.request("GET", f"/{REPOSITORY}/main/old/{number}") for number in range(_KEYS)
    ]
    print("\nGET of one connection        p50 ms   p99 ms", flush=True)
    spawn = multiprocessing.get_context("spawn")
    for beside in _BESIDE:
        begun, ends = spawn.Event(), spawn.Event()
        process = spawn.Process(target=_busy, args=(node.address, busy, beside, begun, ends))
        if beside:
            process.start()
            begun.wait(60)
        try:
            found = Load(node.address, requests, 1, seconds, repeat=True).run()
        finally:
            if beside:
                ends.set()
                process.join()
        what = f"beside {beside} of another user" if beside else "alone"
        failures = f"  {dict(found.failures)}" if found.failures else ""
        quantiles = f"{found.quantile_ms(0.5):7.2f}  {found.quantile_ms(0.99):7.2f}"
        print(f"{what:27}  {quantiles}{failures}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running(folder, Form("os", workers=given.workers, compactor=False)) as node:
            make_repository(node)
            fill(node, "old/", _KEYS)
            busy = second_user(node, folder / "credentials")
            fairness(node, busy, given.seconds)
            for method in ("GET", "PUT"):
                overload(node, method, given.seconds, given.connections, given.rounds)


if __name__ == "__main__":
    main()
