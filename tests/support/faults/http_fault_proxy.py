"""An HTTP/1.1 proxy that injects faults of an object store, by plan or by seed.

It reads each request completely, decides, and answers completely: bodies must fit in memory. It runs in a
thread of its own, so that tests and servers of any process can use it.

with HttpFaultProxy("127.0.0.1", port) as proxy:
    proxy.plan(Fault.LOST_REPLY, lambda request: request.method == "PUT")
    ...                                     # talk to proxy.url
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Self

__all__ = ["Answer", "Fault", "HttpFaultProxy", "Request", "FaultProfile", "any_request"]

_HEAD_BYTES_MAX: Final = 1 << 20
_BODY_BYTES_MAX: Final = 256 << 20
_START_SECONDS: Final = 10
_HANG_UP_SECONDS: Final = 2.0
_SLOW_DOWN: Final = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code>"
    b"<Message>Please reduce your request rate.</Message></Error>"
)


class Fault(enum.Enum):
    """The fault of one exchange."""

    SLOW_DOWN = "503 SlowDown; the server never sees the request"
    LOST_REQUEST = "the connection is cut; the server never sees the request"
    LOST_REPLY = "the server executes the request; the connection is cut instead of its answer"
    HALF_REQUEST = "the server gets half of the body, then both connections are cut"
    HALF_REPLY = "the client gets half of the answer's body, then the connection is cut"
    DELAY = "the exchange is correct but delayed"


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it was received. Header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    head: bytes
    body: bytes

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        """The query, without `?`."""
        return self.target.partition("?")[2]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer whose length is that of its body."""

    status: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def encoded(self, *, is_head: bool) -> tuple[bytes, bytes]:
        """Returns head and body as they are sent; the answer to HEAD keeps its own Content-Length."""
        kept = [pair for pair in self.headers if pair[0].lower() not in _HOP]
        if not is_head:
            kept = [pair for pair in kept if pair[0].lower() != "content-length"]
            kept.append(("Content-Length", str(len(self.body))))
        lines = "".join(f"{name}: {value}\r\n" for name, value in kept)
        return f"HTTP/1.1 {self.status}\r\n{lines}\r\n".encode("latin-1"), self.body


_HOP: Final = frozenset({"transfer-encoding", "connection", "keep-alive"})
Match = Callable[[Request], bool]


def any_request(_: Request) -> bool:
    """Matches every request."""
    return True


class FaultProfile:
    """Random faults.

    Args:
        seed: the same requests in the same order meet the same faults.
        share: share of requests that meet a fault, 0 to 1.
        faults: the faults to choose from.
    """

    def __init__(self, seed: int, share: float, faults: tuple[Fault, ...] = tuple(Fault)) -> None:
        self._chance = random.Random(seed)
        self._share = share
        self._faults = faults

    def __call__(self, _: Request) -> Fault | None:
        """Returns the fault of a request; None for none."""
        if self._chance.random() >= self._share:
            return None
        return self._chance.choice(self._faults)


@dataclass(slots=True)
class _Plan:
    fault: Fault
    match: Match
    times: int


@dataclass(slots=True)
class HttpFaultProxy:
    """Forwards requests from a free local port to a server.

    Attributes:
        host: host of the server.
        port: port of the server.
        decide: returns the fault of a request that no plan matches.
        turn: returns the group of a request; requests of one group run one at a time; None: no waiting.
        before: may answer instead of the server.
        after: may change the server's answer.
        delay_s: delay of `Fault.DELAY`, in seconds.
        seen: method, target and fault of every request.
    """

    host: str
    port: int
    decide: Callable[[Request], Fault | None] | None = None
    turn: Callable[[Request], str | None] | None = None
    before: Callable[[Request], Answer | None] | None = None
    after: Callable[[Request, Answer], Answer] | None = None
    delay_s: float = 0.2
    seen: list[tuple[str, str, Fault | None]] = field(default_factory=list)
    _plans: list[_Plan] = field(default_factory=list)
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _loop: asyncio.AbstractEventLoop | None = None
    _stop: asyncio.Event | None = None
    _thread: threading.Thread | None = None
    _ready: threading.Event = field(default_factory=threading.Event)
    _own_port: int = 0

    @property
    def url(self) -> str:
        """The URL that clients connect to."""
        return f"http://127.0.0.1:{self._own_port}"

    def plan(self, fault: Fault, match: Match = any_request, times: int = 1) -> None:
        """Gives the next `times` matching requests a fault."""
        with self._lock:
            self._plans.append(_Plan(fault, match, times))

    def clear(self) -> None:
        """Forgets plans and seen requests."""
        with self._lock:
            self._plans.clear()
            self.seen.clear()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="http-fault-proxy", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_SECONDS):
            raise TimeoutError("the proxy did not start")
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_START_SECONDS)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=_HEAD_BYTES_MAX)
        self._own_port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)  # closed transports are notified in the next tick of the loop

    async def _connection(
        self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        upstream = _Upstream(self.host, self.port)
        task = asyncio.current_task()
        assert task is not None, "the server runs each connection in a task"
        self._tasks.add(task)
        try:
            while (request := await _read_request(client, to_client)) is not None:
                if not await self._exchange(request, upstream, to_client):
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            upstream.close()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                to_client.close()

    def _fault(self, request: Request) -> Fault | None:
        with self._lock:
            fault = None
            for plan in self._plans:
                if plan.times and plan.match(request):
                    plan.times -= 1
                    fault = plan.fault
                    break
            else:
                fault = self.decide(request) if self.decide is not None else None
            self.seen.append((request.method, request.target, fault))
            return fault

    async def _exchange(
        self, request: Request, upstream: _Upstream, to_client: asyncio.StreamWriter
    ) -> bool:
        """Handles one exchange; returns False if the connection must be cut."""
        fault = self._fault(request)
        if fault is Fault.LOST_REQUEST:
            return False
        if fault is Fault.HALF_REQUEST:
            async with self._own_turn(request):
                await upstream.break_off(request)
            return False
        if fault is Fault.SLOW_DOWN:
            xml = (("Content-Type", "application/xml"),)
            answer = Answer("503 Slow Down", xml, _SLOW_DOWN)
        else:
            if fault is Fault.DELAY:
                await asyncio.sleep(self.delay_s)
            async with self._own_turn(request):
                answer = await self._forward(request, upstream)
        if fault is Fault.LOST_REPLY:
            return False
        head, body = answer.encoded(is_head=request.method == "HEAD")
        half = fault is Fault.HALF_REPLY
        to_client.write(head + (body[: len(body) // 2] if half else body))
        await to_client.drain()
        return not half

    def _own_turn(self, request: Request) -> AbstractAsyncContextManager[object]:
        turn = self.turn(request) if self.turn is not None else None
        if turn is None:
            return contextlib.nullcontext()
        return self._turns.setdefault(turn, asyncio.Lock())

    async def _forward(self, request: Request, upstream: _Upstream) -> Answer:
        answer = self.before(request) if self.before is not None else None
        if answer is None:
            await upstream.send(request, len(request.body))
            answer = await upstream.receive(request.method)
        return self.after(request, answer) if self.after is not None else answer


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, bytes, dict[str, str]] | None:
    """Reads first line, raw head and headers; None at the end of the stream."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return first, head, headers


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = bytearray()
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
            if len(body) > _BODY_BYTES_MAX:
                raise ConnectionError("the body is too large for this proxy")
        await reader.readuntil(b"\r\n")
        return bytes(body)
    size = int(headers.get("content-length", "0"))
    if size > _BODY_BYTES_MAX:
        raise ConnectionError("the body is too large for this proxy")
    return await reader.readexactly(size)


async def _read_request(
    client: asyncio.StreamReader, to_client: asyncio.StreamWriter
) -> Request | None:
    found = await _read_head(client)
    if found is None:
        return None
    first, head, headers = found
    method, target, _ = first.split(" ", 2)
    if headers.get("expect", "").lower() == "100-continue":
        to_client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        head = b"\r\n".join(
            line for line in head.split(b"\r\n") if not line.lower().startswith(b"expect:")
        )
    body = await _read_body(client, headers)
    if headers.get("transfer-encoding"):
        raise ConnectionError("this proxy does not support chunked requests")
    return Request(method, target, headers, head, body)


class _Upstream:
    """A connection to the server, opened when needed and kept while it works."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, request: Request, size: int) -> None:
        """Sends head and the first `size` bytes of the body."""
        if self._writer is None or self._writer.is_closing() or self._at_end():
            self.close()
            self._reader, self._writer = await asyncio.open_connection(
                *self._target, limit=_HEAD_BYTES_MAX
            )
        self._writer.write(request.head + request.body[:size])
        # A server may answer and close before it has read a body that it refuses.
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def break_off(self, request: Request) -> None:
        """Sends head and half of the body, closes, and waits until the server has closed, too.

        Otherwise the server's cleanup could affect the next request of the group: an rclone that gives up
        one write while another one of the same object ends may lose the object.
        """
        await self.send(request, len(request.body) // 2)
        assert self._reader is not None
        assert self._writer is not None
        with contextlib.suppress(OSError, TimeoutError):
            self._writer.write_eof()
            async with asyncio.timeout(_HANG_UP_SECONDS):
                await self._reader.read()
        self.close()

    def _at_end(self) -> bool:
        return self._reader is None or self._reader.at_eof()

    async def receive(self, method: str) -> Answer:
        """Reads the answer to the sent request."""
        assert self._reader is not None
        found = await _read_head(self._reader)
        if found is None:
            raise ConnectionError("the server closed the connection")
        first, head, headers = found
        has_body = method != "HEAD" and first.split(" ")[1] not in ("204", "304")
        body = await _read_body(self._reader, headers) if has_body else b""
        lines = head[:-4].decode("latin-1").split("\r\n")[1:]
        pairs = [
            (name, value.strip()) for name, _, value in (line.partition(":") for line in lines)
        ]
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Answer(first.partition(" ")[2], tuple(pairs), body)

    def close(self) -> None:
        """Closes the connection."""
        if self._writer is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._writer.close()
        self._reader = self._writer = None
