"""A TCP proxy that loses chosen exchanges, so that a test gets an unknown outcome on demand.

async with TcpProxy("127.0.0.1", port) as proxy:
proxy.lose(Loss.ANSWER, b"marker")      # in the first request that holds these bytes
...                                     # talk to 127.0.0.1:{proxy.port}

A late request is executed although its client has disconnected, when `land` is called: as by a server
that was slow to read it.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

__all__ = ["Loss", "TcpProxy"]

_CHUNK_BYTES = 1 << 16


class Loss(enum.Enum):
    """The fault of an exchange."""

    REQUEST = "the connection is cut before the request is forwarded"
    ANSWER = "the request is answered, then the connection is cut without the answer"
    SILENCE = "the request is answered, the answer is swallowed, the connection stays"
    LATE = "the connection is cut, and the request is forwarded by `land`"


@dataclass(slots=True)
class _Plan:
    loss: Loss
    marker: bytes
    meanwhile: Callable[[], Awaitable[object]] | None
    done: asyncio.Event


Judge = Callable[[bytes], Awaitable[Loss | None]]
"""Decides the fate of a request; awaited before the request is forwarded."""


class _Late:
    """A waiting request whose client has disconnected."""

    __slots__ = ("answered", "sent")

    def __init__(self) -> None:
        self.sent = asyncio.Event()
        self.answered = asyncio.Event()


class TcpProxy:
    """Forwards connections from a local port. Must be entered and used in one event loop.

    A marker must arrive in one read: keep requests smaller than a few KiB.

    Args:
        host: host of the server.
        port: port of the server.
        listen: host and port to listen on; by default a free port of the loopback.

    Attributes:
        judge: decides about each request that no `lose` matches; None: all are forwarded.
    """

    def __init__(self, host: str, port: int, *, listen: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._target = (host, port)
        self._listen = listen
        self._plan: _Plan | None = None
        self._late: list[_Late] = []
        self._connections: set[asyncio.Task[None]] = set()
        self.judge: Judge | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, *self._listen)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        connections = set(self._connections)
        for each in connections:
            each.cancel()
        if connections:
            await asyncio.wait(connections)
            await asyncio.sleep(0)  # sockets close in the next tick of the loop

    def lose(
        self,
        loss: Loss,
        marker: bytes,
        meanwhile: Callable[[], Awaitable[object]] | None = None,
    ) -> asyncio.Event:
        """Plans the loss of the next exchange whose request contains `marker`.

        Args:
            loss: the fault.
            marker: bytes of the request.
            meanwhile: awaited after the request was answered (or cut), before the client notices.

        Returns:
            An event that is set when the loss has happened.
        """
        self._plan = _Plan(loss, marker, meanwhile, asyncio.Event())
        return self._plan.done

    async def land(self) -> int:
        """Forwards late requests in order, each after the answer to the one before; returns how many."""
        late, self._late = self._late, []
        for each in late:
            each.sent.set()
            await each.answered.wait()
        return len(late)

    async def _plan_for(self, data: bytes) -> _Plan | None:
        plan = self._plan
        if plan is not None and plan.marker in data:
            self._plan = None
            return plan
        loss = None if self.judge is None else await self.judge(data)
        return None if loss is None else _Plan(loss, b"", None, asyncio.Event())

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection has a task"
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            server, to_server = await asyncio.open_connection(*self._target)
        except OSError:
            # A reset: clients notice immediately, as if no process listened.
            to_client.transport.abort()
            return
        link = _Link(to_client, to_server)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._up(client, link))
                tasks.create_task(self._down(server, link))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            link.close()

    async def _up(self, client: asyncio.StreamReader, link: _Link) -> None:
        while data := await client.read(_CHUNK_BYTES):
            plan = await self._plan_for(data)
            if plan is not None and plan.loss is Loss.REQUEST:
                await self._finish(plan)
                break
            if plan is not None and plan.loss is Loss.LATE:
                await self._delay(data, link, plan)
                break
            link.plan = plan or link.plan
            link.to_server.write(data)
            await link.to_server.drain()
        link.close()

    async def _delay(self, data: bytes, link: _Link, plan: _Plan) -> None:
        link.late = late = _Late()
        self._late.append(late)
        link.to_client.transport.abort()
        await self._finish(plan)
        await late.sent.wait()
        link.to_server.write(data)
        await link.to_server.drain()
        await late.answered.wait()

    async def _down(self, server: asyncio.StreamReader, link: _Link) -> None:
        while data := await server.read(_CHUNK_BYTES):
            if link.late is not None:
                if link.late.sent.is_set():
                    break
                continue  # answers to earlier requests
            plan, link.plan = link.plan, None
            if plan is not None:
                await self._finish(plan)
                if plan.loss is Loss.ANSWER:
                    break
                continue
            link.to_client.write(data)
            await link.to_client.drain()
        link.close()

    @staticmethod
    async def _finish(plan: _Plan) -> None:
        if plan.meanwhile is not None:
            await plan.meanwhile()
        plan.done.set()


class _Link:
    """Both ends of a connection, the plan for the next answer, and a waiting request."""

    def __init__(self, to_client: asyncio.StreamWriter, to_server: asyncio.StreamWriter) -> None:
        self.to_client = to_client
        self.to_server = to_server
        self.plan: _Plan | None = None
        self.late: _Late | None = None

    def close(self) -> None:
        if self.late is not None:
            self.late.answered.set()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.to_client.close()
            self.to_server.close()
