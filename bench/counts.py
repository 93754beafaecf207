"""What small requests cost, counted and not timed: the same on a busy machine.

    python -m bench.counts [--operation PUT] [--connections 32] [--rounds 20] [--top 60]
    python -m bench.counts --features

One gateway and one REST endpoint have all services in their process, on the embedded store. A round sends one request
on each connection and waits for all answers; bodies have 1 KiB. Counted are the bytecode instructions that the event
loop's thread executes, by function, without those of the client; the calls of functions, of which each step of a
coroutine is one; and the memory of Python's at the peak. C code and other threads do not count.

`--features` prints what each feature costs a lone client that is on for all its requests, and what the modules of all
features execute while they are off.

Timers run by the clock, so a slow machine has more of their instructions in a round. `cheapest` leaves them out: it
takes the least of several rounds. `tests/unit/bench/test_counts.py` has bounds for these numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import CodeType, FrameType, MappingProxyType
from typing import Any

from bench.rest import Server
from bench.telemetry import BODY, Gateway, gateway

from tarn.core.quota import Limits, QuotaKind
from tarn.rpc.process.defects import new_loop
from tarn.rpc.process.log import LogConfig, logging_to
from tarn.rpc.process.system import SystemClock
from tarn.telemetry.audit.log import AuditConfig, auditing
from tarn.telemetry.meters import Meters

__all__ = [
    "FEATURES",
    "OPERATIONS",
    "SMALL",
    "Clients",
    "Counts",
    "cheapest",
    "counted",
    "off_instructions",
    "served",
]

OPERATIONS = (
    "GET",
    "HEAD",
    "PUT",
    "LIST",
    "GET through a view",
    "REST stat",
    "REST list of 1,000",
    "REST get",
    "REST upload",
)
FEATURES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "quotas and rates": ("gate/rates", "usage/admission", "records/quotas"),
        "journal of reads": ("tarn_graveler/reads/",),
        "journal of changes": (
            "tarn_graveler/journal/",
            "branch/object_events",
            "kv/record_events",
        ),
        "online deletion": ("collection/online_deletion", "branch/private_rows"),
        "audit of reads and writes": ("telemetry/audit/", "tarn_gateway/auditing"),
        "trace of every request": ("telemetry/tracing", "telemetry/spans"),
    }
)
"""What an operator may switch on, and parts of the paths of its modules."""
_SETTINGS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "journal of reads": {"TARN_LIFECYCLE_READS_ENABLED": "true"},
        "journal of changes": {"TARN_JOURNAL_ENABLED": "true"},
        "online deletion": {"TARN_LIFECYCLE_ONLINE_ENABLED": "true"},
    }
)
SMALL = ("GET", "HEAD", "PUT", "REST stat", "REST get", "REST upload")
"""Operations on one object of 1 KiB."""
_RATES = Limits(requests_per_second=10**6, bytes_per_second=10**12)
_LIMITS = replace(_RATES, staged_objects=10**9)
_REST = "REST "
_LISTED = 1000
_WARM_UP = 32
"""Requests before the first counted one, which fill the caches."""
_RECEIVE_BYTES = 1 << 16


@dataclass
class Counts:
    """Of one or more rounds, by function.

    Attributes:
        instructions: executed bytecode instructions.
        calls: calls of functions of Python, and steps of coroutines.
    """

    instructions: Counter[CodeType] = field(default_factory=Counter)
    calls: Counter[CodeType] = field(default_factory=Counter)


class Clients:
    """Connections in the thread and the loop of the gateway, which send at once and wait for all.

    `first` is a number that paths of PUTs begin with.
    """

    def __init__(self, of: Gateway, connections: int, first: int = 0) -> None:
        self._signer = signer = of.signer
        url = f"http://127.0.0.1:{of.rest_port}"
        self._rest = Server("Tarn", url, signer.access_key_id, signer.secret)
        self._loop = asyncio.get_running_loop()
        self._left = 0
        self._done = self._loop.create_future()
        self._sent = first
        self._answer = bytearray(_RECEIVE_BYTES)
        # Bytes of an answer that has begun.
        self._unread: dict[socket.socket, int] = {}
        self._has_bodies = True
        self._ports = {True: of.rest_port, False: of.application.port}
        self._count = connections
        # Made for the first request: a server closes those that send none.
        self._made: dict[bool, list[socket.socket]] = {}

    def _connected(self, port: int) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.add_reader(made.fileno(), self._receive, made)
        return made

    def _connections(self, operation: str) -> list[socket.socket]:
        is_rest = operation.startswith(_REST)
        if is_rest not in self._made:
            port = self._ports[is_rest]
            self._made[is_rest] = [self._connected(port) for _ in range(self._count)]
        return self._made[is_rest]

    def requests(self, operation: str) -> list[bytes]:
        """Returns the requests of a round, each that writes with a path of its own."""
        return [self._request(operation) for _ in self._connections(operation)]

    def _request(self, operation: str) -> bytes:
        if operation.startswith(_REST):
            return self._rest_request(operation)
        sign = self._signer.request
        if operation == "PUT":
            self._sent += 1
            return sign("PUT", f"/lake/main/puts/{self._sent:08d}", body=BODY).head
        if operation == "LIST":
            return sign("GET", "/lake", {"list-type": "2", "prefix": "main/a"}).head
        if operation == "GET through a view":
            return sign("GET", "/sales/a").head
        return sign(operation, "/lake/main/a").head

    def _rest_request(self, operation: str) -> bytes:
        ref = "/repositories/rest/refs/main/objects"
        match operation.removeprefix(_REST):
            case "stat":
                return self._rest.request("GET", f"{ref}/stat?path=data%2F00000").head
            case "list of 1,000":
                return self._rest.request("GET", f"{ref}/ls?prefix=data%2F&amount={_LISTED}").head
            case "get":
                return self._rest.request("GET", f"{ref}?path=data%2F00000").head
            case _:
                self._sent += 1
                return self.upload(f"new%2F{self._sent:08d}")

    def upload(self, path: str) -> bytes:
        """Returns an upload by REST."""
        place = f"/repositories/rest/branches/main/objects?path={path}"
        return self._rest.request("POST", place, BODY).head

    async def send(self, operation: str, requests: Sequence[bytes]) -> None:
        """Sends requests, at most one on each connection, and waits for the answers."""
        self._left = len(requests)
        self._has_bodies = operation != "HEAD"
        self._done = self._loop.create_future()
        for each, request in zip(self._connections(operation), requests, strict=False):
            each.sendall(request)
        await self._done

    async def count(self, operation: str, counts: Counts) -> None:
        """Counts one round."""
        requests = self.requests(operation)
        with counted(counts):
            await self.send(operation, requests)

    async def memory_bytes(self, operation: str) -> int:
        """Returns the memory of Python's that a round takes at its peak."""
        requests = self.requests(operation)
        tracemalloc.start()
        try:
            await self.send(operation, requests)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def _receive(self, each: socket.socket) -> None:
        size = each.recv_into(self._answer)
        left = self._unread.pop(each, None)
        if left is None:
            # A head comes in one piece.
            end = self._answer.find(b"\r\n\r\n", 0, size) + 4
            if not self._answer.startswith(b"HTTP/1.1 2") or end < 4:
                self._done.set_exception(AssertionError(bytes(self._answer[:size])))
                return
            head = bytes(self._answer[:end]).lower()
            length = int(head.partition(b"content-length: ")[2].partition(b"\r")[0])
            left = end + length * self._has_bodies
        if left > size:
            self._unread[each] = left - size
            return
        self._left -= 1
        if not self._left:
            self._done.set_result(None)

    def close(self) -> None:
        """Closes the connections."""
        for each in chain.from_iterable(self._made.values()):
            self._loop.remove_reader(each.fileno())
            each.close()


@contextmanager
def counted(counts: Counts) -> Iterator[None]:
    """Counts what this thread executes in the block, except for this module."""
    instructions, calls = counts.instructions, counts.calls

    def step(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - a function of this kind
        if event == "opcode":
            instructions[frame.f_code] += 1
        return step

    def enter(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - a function of this kind
        if frame.f_code.co_filename == __file__:
            return None
        calls[frame.f_code] += event == "call"
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)


async def cheapest(clients: Clients, operation: str, rounds: int) -> tuple[int, int, int]:
    """Returns the least instructions and the least calls of a round, and the least memory at its peak in bytes."""
    found: list[tuple[int, int, int]] = []
    for _ in range(rounds):
        counts = Counts()
        await clients.count(operation, counts)
        memory_bytes = await clients.memory_bytes(operation)
        found.append((counts.instructions.total(), counts.calls.total(), memory_bytes))
    instructions, calls, memory = zip(*found, strict=True)
    return min(instructions), min(calls), min(memory)


@asynccontextmanager
async def served(connections: int, feature: str = "") -> AsyncIterator[Clients]:
    """Yields connections to a new gateway, whose caches are filled; with one of `FEATURES`, or none."""
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            audit = None
            if feature.startswith("audit"):
                config = AuditConfig(folder=Path(folder, "audit"), reads=True)
                log = auditing(config, "gateway", SystemClock(), Meters(), sys.stdout)
                audit = stack.enter_context(log)
            found = await gateway(
                Path(folder),
                stack,
                measured=True,
                settings={"TARN_JOURNAL_ENABLED": "false", **_SETTINGS.get(feature, {})},
                traced=float(feature.startswith("trace")),
                audit=audit,
            )
            if feature.startswith("quotas"):
                await _limit(found)
            await found.client.create_bucket_view(found.admin, "sales", "lake")
            clients = Clients(found, connections)
            stack.callback(clients.close)
            await _fill(found, clients, connections)
            for operation in OPERATIONS:
                for _ in range(-(-_WARM_UP // connections)):
                    await clients.send(operation, clients.requests(operation))
            yield clients


async def _limit(of: Gateway) -> None:
    """Limits the user and the repositories, far above what the benchmark takes."""
    await of.client.set_quota(of.admin, QuotaKind.USER, "root", _RATES)
    await of.client.set_quota(of.admin, QuotaKind.REPOSITORY, "lake", _LIMITS)
    await of.application.rates.refresh()
    assert of.application.rates.is_on


async def _fill(of: Gateway, clients: Clients, connections: int) -> None:
    """Makes the objects of the list, half of them committed."""
    await of.client.create_repository(of.admin, "rest")
    halves = range(_LISTED // 2), range(_LISTED // 2, _LISTED)
    for half in halves:
        for at in range(0, len(half), connections):
            numbers = half[at : at + connections]
            uploads = [clients.upload(f"data%2F{number:05}") for number in numbers]
            await clients.send("REST upload", uploads)
        if half is halves[0]:
            await of.client.create_commit(of.admin, "rest", "main", "half")


async def off_instructions(clients: Clients, operation: str, rounds: int) -> int:
    """Returns the least that the modules of all features execute for one request while they are off."""
    parts = [part for each in FEATURES.values() for part in each]
    found: list[int] = []
    for _ in range(rounds):
        counts = Counts()
        await clients.count(operation, counts)
        found.append(
            sum(
                count
                for code, count in counts.instructions.items()
                if any(part in code.co_filename for part in parts)
            )
        )
    return min(found)


async def _show_features(rounds: int) -> None:
    """Prints a table in Markdown: instructions of one request of a lone client."""
    print(f"| feature | {' | '.join(SMALL)} |\n|{' --- |' * (len(SMALL) + 1)}")
    off: list[int] = []
    async with served(1) as clients:
        off = [(await cheapest(clients, each, rounds))[0] for each in SMALL]
        idle = [await off_instructions(clients, each, rounds) for each in SMALL]
    shares = [f"{one} ({one / whole:.1%})" for one, whole in zip(idle, off, strict=True)]
    print(f"| all off | {' | '.join(map(str, off))} |")
    print(f"| of these by modules of features | {' | '.join(shares)} |")
    for feature in FEATURES:
        async with served(1, feature) as clients:
            found = [(await cheapest(clients, each, rounds))[0] for each in SMALL]
        more = [f"{one - whole:+}" for one, whole in zip(found, off, strict=True)]
        print(f"| {feature} | {' | '.join(more)} |", flush=True)


async def _show(operation: str, connections: int, rounds: int, top: int) -> None:
    async with served(connections) as clients:
        counts = Counts()
        for _ in range(rounds):
            await clients.count(operation, counts)
        least, calls, memory_bytes = await cheapest(clients, operation, rounds)
    count = connections * rounds
    print(f"{operation}, {connections} at once, for each request; of all rounds:")
    print(f"{counts.instructions.total() / count:10.1f} instructions")
    print(f"{counts.calls.total() / count:10.1f} calls; of the cheapest round:")
    print(f"{least / connections:10.1f} instructions, {calls / connections:.1f} calls")
    print(f"{memory_bytes / connections:10.0f} bytes of memory at the peak; by function:")
    for code, number in counts.instructions.most_common(top):
        place = "/".join(code.co_filename.split("/")[-3:])
        print(
            f"{number / count:10.1f} {counts.calls[code] / count:6.1f} {place}:{code.co_qualname}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--operation", choices=OPERATIONS, default="PUT")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--top", type=int, default=60)
    parser.add_argument("--features", action="store_true")
    given = parser.parse_args()
    shown = _show(given.operation, given.connections, given.rounds, given.top)
    if given.features:
        shown.close()
        shown = _show_features(given.rounds)
    with (
        logging_to(LogConfig(output="/dev/null")),
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        runner.run(shown)


if __name__ == "__main__":
    main()
