"""A TCP proxy that loses one exchange on purpose: the way to an unknown outcome, on demand.

async with TcpProxy("127.0.0.1", port) as proxy:
proxy.lose(Loss.ANSWER, b"marker")      # in the first request that holds these bytes
...                                     # talk to 127.0.0.1:{proxy.port}

A late request is one whose client is gone and that is done all the same, when `land` says so: as a server
that was slow to take it up would do it.
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
    """What happens to the exchange."""

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
"""Decides what happens to a request; is awaited before it is forwarded."""


class _Late:
    """A request that waits, without a client."""

    __slots__ = ("answered", "sent")

    def __init__(self) -> None:
        self.sent = asyncio.Event()
        self.answered = asyncio.Event()


class TcpProxy:
    """Forwards connections of a free local port. Entered and used in one event loop.

    Markers are looked for in what arrives at once: keep requests smaller than a few KiB.

    Args:
        host: where to.
        port: where to.
        listen: host and port to take connections at, instead of a free one.

    Attributes:
        judge: is asked about each request that `lose` does not mean; None: they are forwarded.
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
            await asyncio.sleep(0)  # their sockets close in the next tick of the loop

    def lose(
        self,
        loss: Loss,
        marker: bytes,
        meanwhile: Callable[[], Awaitable[object]] | None = None,
    ) -> asyncio.Event:
        """Plans the loss of the next exchange whose request holds `marker`.

        Args:
            loss: what happens.
            marker: bytes of the request.
            meanwhile: is awaited after the request was answered (or cut), before the client sees it.

        Returns:
            Is set when it has happened.
        """
        self._plan = _Plan(loss, marker, meanwhile, asyncio.Event())
        return self._plan.done

    async def land(self) -> int:
        """Forwards late requests in their order, each when the one before it is answered; how many."""
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
            # A reset: clients notice at once, as when nobody listens.
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
                continue  # answers to what was asked before
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
    """Both ends of a connection, what is to happen to the next answer, and a request that waits."""

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
