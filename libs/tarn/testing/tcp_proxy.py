"""A TCP proxy that loses one exchange on purpose: the way to an unknown outcome, on demand.

async with TcpProxy("127.0.0.1", port) as proxy:
proxy.lose(Loss.ANSWER, b"marker")      # in the first request that holds these bytes
...                                     # talk to 127.0.0.1:{proxy.port}
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


@dataclass(slots=True)
class _Plan:
    loss: Loss
    marker: bytes
    meanwhile: Callable[[], Awaitable[object]] | None
    done: asyncio.Event


class TcpProxy:
    """Forwards connections of a free local port. Entered and used in one event loop.

    Markers are looked for in what arrives at once: keep requests smaller than a few KiB.

    Args:
        host: where to.
        port: where to.
        listen: host and port to take connections at, instead of a free one.
    """

    def __init__(self, host: str, port: int, *, listen: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._target = (host, port)
        self._listen = listen
        self._plan: _Plan | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, *self._listen)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()

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

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
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
            plan = self._plan
            if plan is not None and plan.marker in data:
                self._plan = None
                if plan.loss is Loss.REQUEST:
                    await self._finish(plan)
                    break
                link.plan = plan
            link.to_server.write(data)
            await link.to_server.drain()
        link.close()

    async def _down(self, server: asyncio.StreamReader, link: _Link) -> None:
        while data := await server.read(_CHUNK_BYTES):
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
    """Both ends of a connection, and what is to happen to the next answer."""

    def __init__(self, to_client: asyncio.StreamWriter, to_server: asyncio.StreamWriter) -> None:
        self.to_client = to_client
        self.to_server = to_server
        self.plan: _Plan | None = None

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.to_client.close()
            self.to_server.close()
