"""Clients of streams of events: they take what the endpoint sends, or do not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from rest_service import Rest, scope_of

from tarn.aio.task_set import TaskSet

__all__ = ["EVENTS", "Stream", "watching"]

EVENTS = "/api/tarn/v1/repositories/lake/branches/main/events"
_STEPS = 200


class Stream:
    """A client.

    Attributes:
        status: of the answer; 0: there is none yet.
        headers: of the answer.
        pieces: of its body.
        is_whole: whether it was completed.
        is_stuck: whether the client takes nothing.
        gone: set it to have the client go.
        task: answers the request.
    """

    task: asyncio.Task[None]

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.is_whole = False
        self.is_stuck = False
        self.gone = asyncio.Event()

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events so far, each with its `id`."""
        found = []
        for block in self.body.decode().split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if "data" in lines:
                found.append(json.loads(lines["data"]) | {"id": lines["id"]})
        return found

    @property
    def kinds(self) -> list[str]:
        return [each["kind"] for each in self.events]

    @property
    def last_id(self) -> str:
        found: str = self.events[-1]["id"]
        return found

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            return
        if self.is_stuck:
            await asyncio.Event().wait()
        self.pieces.append(bytes(message["body"]))
        self.is_whole = not message.get("more_body", False)

    async def until(self, count: int) -> list[dict[str, Any]]:
        """Lets time pass until there are so many events; returns them all."""
        for _ in range(_STEPS):
            if len(self.events) >= count:
                break
            await self.later(0.5)
        assert len(self.events) == count, self.body
        return self.events

    async def until_end(self) -> None:
        """Lets time pass until the answer ends."""
        for _ in range(_STEPS):
            if self.task.done():
                break
            await self.later(0.5)
        assert self.task.done()

    async def later(self, seconds: float) -> None:
        """Lets some time pass, and what follows happen."""
        self.rest.service.clock.advance(seconds)
        await asyncio.sleep(0.005)


@asynccontextmanager
async def watching(
    rest: Rest,
    target: str = EVENTS,
    *,
    caller: str | None = "",
    headers: Mapping[str, str] | None = None,
    remote: str = "192.0.2.1",
    method: str = "GET",
) -> AsyncIterator[Stream]:
    """Yields a client once its answer has begun; arguments as `Rest.ask`."""
    stream = Stream(rest)
    sent = {**(headers or {})}
    if caller is not None:
        sent["authorization"] = caller or rest.admin
    scope = scope_of(method, target, sent) | {"client": (remote, 5), "scheme": "http", "state": {}}
    tasks = TaskSet()
    stream.task = tasks.spawn(rest.endpoint(scope, stream.receive, stream.send))
    try:
        for _ in range(1000):
            if stream.pieces or stream.task.done() or (stream.status and stream.is_stuck):
                break
            await asyncio.sleep(0.002)
        yield stream
    finally:
        stream.gone.set()
        await tasks.close()
