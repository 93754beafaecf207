"""A toy entry service for tests of transports, and a real server for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from weakref import WeakSet

from google.protobuf.message import Message

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.process.tls import TlsFiles, server_credentials
from tarn.rpc.rules import Rule
from tarn.rpc.server.grpc_server import RpcServer, ServerConfig
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.methods import Endpoint, Handle
from tarn.telemetry.meters import Meters
from tarn.telemetry.tracing import Tracing
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

__all__ = [
    "SERVICE",
    "OpenGate",
    "TOKEN",
    "Served",
    "STRANGER",
    "Toy",
    "call_in",
    "close_what_is_left",
    "failure",
    "lookup",
    "serving",
    "stage",
    "transport_to",
    "until",
]

SERVICE = pb.DESCRIPTOR.services_by_name["EntryService"]

TOKEN = "caller-token"
"""The one caller token that the toy has accepted."""


STRANGER = "stranger"
"""A caller token that the toy does not recognize; it recognizes all others."""


class OpenGate:
    """Lets everyone in, and hands over the call."""

    def accepts(self, token: str) -> bool:
        """Whether it is the token of the toy's callers."""
        return token == TOKEN

    async def recognize(self, call: Call) -> None:
        """Refuses the stranger."""
        if call.caller_token == STRANGER:
            text = "the caller token is false"
            raise TarnError(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID, text)

    async def permit(self, _rule: Rule, _request: Message, call: Call) -> Call:
        """Returns the call."""
        return call

    def through_view(self, _rule: Rule, handle: Handle) -> Handle:
        """Takes any bucket."""
        return handle


class Toy:
    """Answers depending on the start of the path, and records its calls.

    `wait…` waits for `release`, `fail…` raises `error`, `bug…` raises an unexpected exception.

    Attributes:
        release: event that lets the waiting calls continue.
        begun: paths of calls, in order.
        ended: paths of calls that ended without cancellation.
        cancelled: paths of cancelled calls.
        calls: the calls, as they arrived.
        error: the error that `fail…` raises.
        page_bytes: size of the listed entry.
    """

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []
        self.calls: list[Call] = []
        self.page_bytes = 6
        self.error = TarnError(Kind.NOT_FOUND, Reason.ENTRY_NOT_FOUND, "no entry", path="x")

    @property
    def endpoint(self) -> Endpoint:
        """Returns its endpoint, for a server or a transport."""
        return Endpoint(SERVICE, self, OpenGate())

    async def lookup(self, request: pb.Lookup, call: Call) -> pb.LookupResult:
        """Returns the path as the entry."""
        await self._serve(request.path, call)
        return pb.LookupResult(entry=request.path.encode(), storage_namespace="local://toy")

    async def stage(self, request: pb.Stage, call: Call) -> pb.StageResult:
        """Changes nothing."""
        await self._serve(request.path, call)
        return pb.StageResult()

    async def unstage(self, request: pb.Unstage, call: Call) -> pb.UnstageResult:
        """Changes nothing."""
        await self._serve(request.path, call)
        return pb.UnstageResult()

    async def ListEntries(
        self, request: pb.ListEntriesRequest, call: Call
    ) -> pb.ListEntriesResponse:
        """Lists one entry, whose path is the prefix."""
        await self._serve(request.prefix, call)
        return pb.ListEntriesResponse(
            paths=[request.prefix],
            packed_entries=[bytes(self.page_bytes)],
            storage_namespace="local://toy",
        )

    async def UnstageEntries(
        self, request: pb.UnstageEntriesRequest, call: Call
    ) -> pb.UnstageEntriesResponse:
        """Serves one path after the other."""
        for path in request.paths:
            await self._serve(path, call)
        return pb.UnstageEntriesResponse(outcomes=[pb.UnstageOutcome() for _ in request.paths])

    async def FindErased(self, request: pb.FindErasedRequest, call: Call) -> pb.FindErasedResponse:
        """Knows no erased object."""
        await self._serve(request.path, call)
        return pb.FindErasedResponse()

    async def _serve(self, path: str, call: Call) -> None:
        self.calls.append(call)
        self.begun.append(path)
        try:
            if path.startswith("wait"):
                await self.release.wait()
            if path.startswith("fail"):
                raise self.error
            if path.startswith("bug"):
                raise ZeroDivisionError("secret detail")
        except asyncio.CancelledError:
            self.cancelled.append(path)
            raise
        self.ended.append(path)


class Served:
    """A toy behind a real gRPC server that can be stopped and started again on its port.

    Attributes:
        toy: the service; it survives when the server is killed.
        meters: metrics of the server.
        server: None while it is stopped.
        address: its current or last address.
    """

    def __init__(self, config: ServerConfig, tls: TlsFiles | None = None) -> None:
        self.toy = Toy()
        self._tls = tls
        self._clock = SystemClock()
        self.meters = Meters()
        self._config = config
        self.server: RpcServer | None = None
        self.address = ""

    async def start(self) -> RpcServer:
        """Starts serving at the configured address; later starts reuse the address of the first one."""
        _SERVERS.add(self)
        self.server = RpcServer(
            [self.toy.endpoint],
            replace(self._config, listen=self.address or self._config.listen),
            clock=self._clock,
            ids=SystemIds(self._clock),
            meters=self.meters,
            tracing=Tracing(None, 0, random.Random(1)),
            credentials=None if self._tls is None else server_credentials(self._tls),
        )
        self.address = await self.server.start()
        return self.server

    async def kill(self) -> None:
        """Stops without a drain: connections break."""
        if self.server is not None:
            await self.server.close()
            self.server = None


def transport_to(*addresses: str) -> GrpcTransport:
    """Returns a client of servers in plain text."""
    made = GrpcTransport(addresses, clock=SystemClock(), rng=random.Random(7))
    _TRANSPORTS.add(made)
    return made


_TRANSPORTS: WeakSet[GrpcTransport] = WeakSet()
_SERVERS: WeakSet[Served] = WeakSet()


async def close_what_is_left() -> None:
    """Closes the clients and the servers that a test made here and, because it failed, did not close.

    grpc.aio writes the requests of a server into memory of tasks of its loop. So a server must not outlive the loop.
    """
    for transport in list(_TRANSPORTS):
        await transport.close()
    for served in list(_SERVERS):
        served.toy.release.set()
        await served.kill()


def call_in(seconds: float = 10.0, request_id: str = "request-1") -> Call:
    """Returns a call with a deadline in `seconds` seconds."""
    return Call(request_id, TOKEN, SystemClock().monotonic() + seconds)


def lookup(path: str) -> tuple[str, pb.Lookup]:
    """Returns a read operation: its name and its request."""
    return "lookup", pb.Lookup(repository_id="repo", ref="main", path=path)


def stage(path: str) -> tuple[str, pb.Stage]:
    """Returns a write operation: its name and its request."""
    request = pb.Stage(repository_id="repo", branch_id="main", path=path, entry=b"packed")
    return "stage", request


async def until(fact: Callable[[], object], seconds: float = 5.0) -> None:
    """Runs the loop until `fact` returns true."""
    async with asyncio.timeout(seconds):
        while not fact():  # noqa: ASYNC110 - the fact is anything, there is no event for it
            await asyncio.sleep(0.001)


async def failure(work: Awaitable[object]) -> TarnError:
    """Returns the error that `work` raises."""
    try:
        answer = await work
    except TarnError as error:
        return error
    raise AssertionError(f"expected a TarnError, got {answer!r}")


@asynccontextmanager
async def serving(config: ServerConfig | None = None) -> AsyncIterator[Served]:
    """A toy behind a server on a free port of this machine, until the end of the block."""
    served = Served(config or ServerConfig(listen="127.0.0.1:0"))
    await served.start()
    try:
        yield served
    finally:
        served.toy.release.set()
        await served.kill()
