"""The load client: sends prepared signed requests over raw sockets, each connection in a closed loop.

The client must be cheap, because it shares the machine with the server: one epoll loop, requests encoded
before the clock starts, one write and one read for a small exchange. While all good answers of a run
arrived in one read and with the same length, another one of that length with a good status is taken as
complete without parsing; all others are parsed. Latency is measured from before the first byte is written
until after the last one was read.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.load.answer import Answer
from bench.load.signing import Request

__all__ = ["Kept", "Load", "Measured", "address_of", "exchange"]

_RECEIVE_BYTES = 1 << 18
_STALL_SECONDS = 60.0
_FAILURES_MAX = 100
"""A run with more failures has no valid measurement, and ends."""
_GOOD = b"HTTP/1.1 2"
_VARIES = -1
_READ = select.EPOLLIN | select.EPOLLRDHUP


def address_of(endpoint: str) -> tuple[str, int]:
    """Host and port of an `http://host:port`."""
    host, _, port = endpoint.removeprefix("http://").rpartition(":")
    return host, int(port)


@dataclass(slots=True)
class Measured:
    """The measurements of a run.

    Attributes:
        seconds: from the first request to the last answer.
        latencies_s: latencies of the good answers, in seconds, in order.
        failures: number of failures by kind: a status, or an error of the connection.
        first_failure: beginning of the first failure's body.
        client_cpu_s: CPU seconds that the client itself used.
    """

    seconds: float = 0.0
    latencies_s: array[float] = field(default_factory=lambda: array("d"))
    failures: Counter[str] = field(default_factory=Counter)
    first_failure: str = ""
    client_cpu_s: float = 0.0

    @property
    def count(self) -> int:
        """Number of good answers."""
        return len(self.latencies_s)

    @property
    def per_second(self) -> float:
        """Good answers per second."""
        return self.count / self.seconds if self.seconds else 0.0

    def quantile_ms(self, part: float) -> float:
        """A quantile of the latencies; 0 without any."""
        ranked = sorted(self.latencies_s)
        return ranked[int(part * (len(ranked) - 1))] * 1e3 if ranked else 0.0

    def fail(self, kind: str, text: str) -> None:
        """Counts a failure."""
        if not self.failures:
            self.first_failure = text[:300]
        self.failures[kind] += 1

    @property
    def is_hopeless(self) -> bool:
        """Whether there are too many failures to continue."""
        return self.failures.total() > _FAILURES_MAX


@dataclass(slots=True)
class Kept:
    """Connections that outlive a run: the next run uses them again, as clients with a pool do.

    Attributes:
        sockets: those that no run uses.
    """

    sockets: list[socket.socket] = field(default_factory=list)

    def close(self) -> None:
        """Closes all."""
        while self.sockets:
            self.sockets.pop().close()


class _Connection:
    """One connection and the exchange on it."""

    __slots__ = ("answer", "began", "is_head", "receive", "rest", "socket", "unsent")

    def __init__(self, address: tuple[str, int], kept: socket.socket | None = None) -> None:
        self.answer: Answer | None = None
        self.began = 0.0
        self.is_head = False
        self.rest = b""
        self.unsent: memoryview | None = None
        self.connect(address, kept)

    def connect(self, address: tuple[str, int], kept: socket.socket | None = None) -> None:
        self.socket = kept or socket.create_connection(address, timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.receive = self.socket.recv

    def close(self) -> None:
        self.socket.close()


class Load:
    """One run of a closed loop.

    Args:
        address: address of the server.
        requests: sent in order, by any free connection.
        connections: number of connections.
        seconds: no request begins after this time.
        repeat: whether to start again with the first request after the last one; otherwise the run ends.
        until: ends the run early when it returns true; called between rounds of the loop.
        kept: connections to use, and to leave open after the run; None: those of this run only.
    """

    def __init__(
        self,
        address: tuple[str, int],
        requests: Sequence[Request],
        connections: int,
        seconds: float,
        *,
        repeat: bool = False,
        until: Callable[[], bool] | None = None,
        kept: Kept | None = None,
    ) -> None:
        assert requests, "there is something to send"
        self._address = address
        self._requests = requests
        self._repeat = repeat
        self._seconds = seconds
        self._until = until
        self._next = 0
        self._ends = 0.0
        self._is_over = False
        self._usual = 0
        self._measured = Measured()
        self._poll = select.epoll()
        self._scratch = bytearray(1 << 20)
        self._connections: dict[int, _Connection] = {}
        self._busy = 0
        self._kept = kept
        for _ in range(connections):
            open_one = kept.sockets.pop() if kept is not None and kept.sockets else None
            self._register(_Connection(address, open_one))

    def run(self) -> Measured:
        """Sends until the time or the requests are used up and every request is answered."""
        measured = self._measured
        cpu = time.process_time()
        began = time.perf_counter()
        self._ends = began + self._seconds
        try:
            for connection in list(self._connections.values()):
                self._begin(connection)
            while self._busy:
                events = self._poll.poll(_STALL_SECONDS)
                if not events:
                    measured.fail("stalled", f"no byte moved for {_STALL_SECONDS:.0f} s")
                    break
                for descriptor, event in events:
                    self._serve(self._connections[descriptor], event)
                if measured.failures and measured.is_hopeless:
                    break
                if self._until is not None and not self._is_over:
                    self._is_over = self._until()
        finally:
            measured.seconds = time.perf_counter() - began
            measured.client_cpu_s = time.process_time() - cpu
            for connection in self._connections.values():
                if self._kept is not None and connection.began == 0.0:
                    self._kept.sockets.append(connection.socket)
                else:
                    connection.close()
            self._poll.close()
        return measured

    def _register(self, connection: _Connection) -> None:
        descriptor = connection.socket.fileno()
        self._connections[descriptor] = connection
        self._poll.register(descriptor, _READ)

    def _begin(self, connection: _Connection) -> None:
        """Sends the next request, if there is one."""
        number = self._next
        if number == len(self._requests):
            if not self._repeat:
                self._is_over = True
            number = 0
        now = time.perf_counter()
        if self._is_over or now >= self._ends:
            connection.began = 0.0
            return
        self._next = number + 1
        request = self._requests[number]
        self._busy += 1
        connection.began = now
        connection.answer = None
        connection.is_head = request.is_head
        sent = 0
        with contextlib.suppress(BlockingIOError):
            sent = connection.socket.send(request.head)
        if sent < len(request.head) or request.body:
            connection.unsent = memoryview(request.head)[sent:]
            connection.rest = request.body
            self._poll.modify(connection.socket.fileno(), _READ | select.EPOLLOUT)

    def _serve(self, connection: _Connection, event: int) -> None:
        try:
            if event & select.EPOLLOUT:
                self._send(connection)
            if event & ~select.EPOLLOUT:
                self._receive(connection)
        except BlockingIOError:
            return
        except (OSError, ValueError) as error:
            self._lose(connection, error)

    def _send(self, connection: _Connection) -> None:
        """Continues a request that did not fit into the socket's buffer."""
        if connection.unsent is not None:
            connection.unsent = connection.unsent[connection.socket.send(connection.unsent) :]
            if connection.unsent:
                return
        connection.unsent = memoryview(connection.rest) if connection.rest else None
        connection.rest = b""
        if connection.unsent is None:
            self._poll.modify(connection.socket.fileno(), _READ)

    def _receive(self, connection: _Connection) -> None:
        answer = connection.answer
        if answer is not None and answer.may_skip:
            count = connection.socket.recv_into(self._scratch, min(answer.left, 1 << 20))
            if not count:
                raise ConnectionResetError("closed in the middle of an answer")
            if answer.skip(count):
                self._done(connection, answer)
            return
        data = connection.receive(_RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("closed before the answer was complete")
        if answer is None:
            if len(data) == self._usual and data.startswith(_GOOD):
                self._busy -= 1
                self._measured.latencies_s.append(time.perf_counter() - connection.began)
                self._begin(connection)
                return
            answer = connection.answer = Answer(is_head=connection.is_head)
            whole = answer.feed(data)
            if answer.status < 300:
                self._learn(len(data) if whole else _VARIES)
            if whole:
                self._done(connection, answer)
        elif answer.feed(data):
            self._done(connection, answer)

    def _learn(self, length: int) -> None:
        """Remembers the common length of all good answers, until two differ."""
        self._usual = length if self._usual in (0, length) else _VARIES

    def _done(self, connection: _Connection, answer: Answer) -> None:
        self._busy -= 1
        if answer.status < 300:
            self._measured.latencies_s.append(time.perf_counter() - connection.began)
        else:
            self._measured.fail(str(answer.status), answer.body.decode(errors="replace"))
        if connection.unsent is not None:  # refused in the middle of a body: the rest is not sent
            self._reconnect(connection)
        self._begin(connection)

    def _lose(self, connection: _Connection, error: OSError | ValueError) -> None:
        """Handles a broken connection; one that is closed at the end while idle is not a failure."""
        if connection.began == 0.0:
            self._poll.unregister(connection.socket.fileno())
            self._connections.pop(connection.socket.fileno()).close()
            return
        self._busy -= 1
        self._measured.fail(type(error).__name__, str(error))
        self._reconnect(connection)
        self._begin(connection)

    def _reconnect(self, connection: _Connection) -> None:
        del self._connections[connection.socket.fileno()]
        connection.close()
        connection.unsent, connection.rest = None, b""
        connection.connect(self._address)
        self._register(connection)


def exchange(address: tuple[str, int], request: Request) -> bytes:
    """Sends one request; returns the answer's body.

    Raises:
        RuntimeError: the answer is not a success; the text quotes the answer.
    """
    answer = Answer(is_head=request.is_head, keep=True)
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(request.head)
        connection.sendall(request.body)
        while data := connection.recv(_RECEIVE_BYTES):
            if answer.feed(data):
                break
        else:
            raise RuntimeError("the server closed before the answer was complete")
    if answer.status >= 300:
        line = request.head.split(b"\r\n")[0].decode()
        raise RuntimeError(f"{line}: {answer.status} {answer.body.decode(errors='replace')[:500]}")
    return bytes(answer.body)
