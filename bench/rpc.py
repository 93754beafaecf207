"""Cost of an operation in process, over the coalesced stream, and as a unary call.

    python -m bench.rpc [--seconds 1]

Client and server are separate processes; CPU is the user and system time of each per operation. The
handler does nothing, so the numbers are those of `tarn.rpc`, protobuf and grpc.aio.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

import psutil
import uvloop
from tests.support.servers.toy_service import OpenGate

from tarn.client.graveler import GravelerClient
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.process.log import LogConfig
from tarn.rpc.process.serve import Application, Runtime, ServeConfig, serve
from tarn.rpc.process.system import SystemClock
from tarn.rpc.server.grpc_server import ServerConfig
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.methods import Endpoint
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

ENTRY = bytes(180)
SERVICE = pb.DESCRIPTOR.services_by_name["EntryService"]


class Idle:
    """Answers immediately."""

    async def lookup(self, _request: pb.Lookup, _call: Call) -> pb.LookupResult:
        return pb.LookupResult(entry=ENTRY, storage_namespace="local://lake")

    async def stage(self, _request: pb.Stage, _call: Call) -> pb.StageResult:
        return pb.StageResult()

    async def unstage(self, _request: pb.Unstage, _call: Call) -> pb.UnstageResult:
        return pb.UnstageResult()

    async def ListEntries(  # noqa: N802 - the rpc's name
        self, _request: pb.ListEntriesRequest, _call: Call
    ) -> pb.ListEntriesResponse:
        return pb.ListEntriesResponse(
            paths=["a"], packed_entries=[ENTRY], storage_namespace="local://lake"
        )

    async def UnstageEntries(  # noqa: N802 - the rpc's name
        self, _request: pb.UnstageEntriesRequest, _call: Call
    ) -> pb.UnstageEntriesResponse:
        return pb.UnstageEntriesResponse()

    async def FindErased(  # noqa: N802 - the rpc's name
        self, _request: pb.FindErasedRequest, _call: Call
    ) -> pb.FindErasedResponse:
        return pb.FindErasedResponse()


class App:
    """The idle service as an application."""

    name = "idle"
    endpoints = (Endpoint(SERVICE, Idle(), OpenGate()),)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return

    async def drain(self, timeout_s: float) -> None:
        assert timeout_s >= 0


def build(_runtime: Runtime) -> list[Application]:
    return [App()]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; CPU in microseconds per operation."""

    name: str
    callers: int
    per_second: float
    p50_us: float
    p99_us: float
    client_us: float
    server_us: float


Operation = Callable[[GravelerClient, Call], Awaitable[object]]


async def lookup(client: GravelerClient, call: Call) -> object:
    return await client.lookup(call, "lake", "main", "tables/events/part-00001.parquet")


async def stage(client: GravelerClient, call: Call) -> object:
    await client.stage(call, "lake", "uid", "main", "tables/events/part-1.parquet", ENTRY)
    return None


async def list_page(client: GravelerClient, call: Call) -> object:
    return await client.list_entries(call, "lake", "main")


async def measure(
    name: str, client: GravelerClient, operation: Operation, callers: int, seconds: float, pid: int
) -> Row:
    server = psutil.Process(pid)
    times: list[float] = []
    call = Call("request", "t" * 120, time.monotonic() + 600)
    await operation(client, call)

    async def work(end: float) -> None:
        while (start := time.perf_counter()) < end:
            await operation(client, call)
            times.append(time.perf_counter() - start)

    before = time.process_time(), sum(server.cpu_times()[:2]), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(work(time.perf_counter() + seconds))
    after = time.process_time(), sum(server.cpu_times()[:2]), time.perf_counter()
    used = [(b - a) * 1e6 / len(times) for a, b in zip(before, after, strict=True)]
    times.sort()
    p50, p99 = (times[int(len(times) * part)] * 1e6 for part in (0.5, 0.99))
    server_us = 0.0 if pid == os.getpid() else used[1]
    return Row(name, callers, 1e6 / used[2], p50, p99, used[0], server_us)


async def run(address: str, pid: int, seconds: float) -> list[Row]:
    clock = SystemClock()
    inside = InProcessTransport(App.endpoints, clock)
    outside = GrpcTransport([address], clock=clock, rng=random.Random(1))
    near, far = GravelerClient(inside), GravelerClient(outside)
    rows = [
        await measure("in process, lookup", near, lookup, 64, seconds, os.getpid()),
        await measure("in process, stage", near, stage, 64, seconds, os.getpid()),
    ]
    for name, operation, callers in (
        *(("stream, lookup", lookup, callers) for callers in (1, 8, 64, 256)),
        ("stream, stage", stage, 64),
        *(("unary", list_page, callers) for callers in (1, 64)),
    ):
        row = await measure(name, far, operation, callers, seconds, pid)
        rows.append(row)
    await outside.close()
    await inside.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="per line of the table")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        log = LogConfig(level="warning")
        listen = ServerConfig("127.0.0.1:0")
        sys.exit(serve(build, ServeConfig("idle", listen, ready_fd=arguments.serve, log=log)))
    read, write = os.pipe()
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.rpc", "--serve", str(write)], pass_fds=[write]
    )
    os.close(write)
    try:
        with os.fdopen(read) as ready:
            address = ready.readline().split('"grpc": "')[1].split('"')[0]
        rows = uvloop.run(run(address, server.pid, arguments.seconds))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)
    print("| what | callers | op/s | p50 µs | p99 µs | CPU µs client | server |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        numbers = f"{row.p50_us:.0f} | {row.p99_us:.0f} | {row.client_us:.1f} | {row.server_us:.1f}"
        print(f"| {row.name} | {row.callers} | {row.per_second:,.0f} | {numbers} |")


if __name__ == "__main__":
    main()
