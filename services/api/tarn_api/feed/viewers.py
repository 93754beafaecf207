"""Who watches a branch: the stream to one client, and whether its caller may still read the branch.

A viewer has no queue: it has its place among the events of its channel. A client that takes too little falls behind
them and is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tarn.core.access.policy import Grant
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.rpc.rules import rules_of
from tarn.rpc.wire.call import Call
from tarn_api.errors import ApiError
from tarn_proto.graveler.v1 import reflog_service_pb2 as pb

__all__ = ["STALE_S", "Caller", "Channel", "EventStream", "Viewer"]

STALE_S: Final = 10.0
"""Nothing is sent by an older check than this: as long as a deleted key may work for requests."""
_PIECE_BYTES: Final = 64 * 1024
_RULE: Final = rules_of(pb.DESCRIPTOR.services_by_name["ReflogService"])["ListReflog"]

Authenticate = Callable[[Call], Awaitable[Grant]]


class Caller:
    """Whoever a credential stands for, with all streams that were begun with it.

    Args:
        authenticate: asks for the grant again, as for a request.
        grant: of the request that began the first stream.
        now: when that was asked for, on the monotonic clock.
        check_s: how often it is asked for: a cookie at each time asks auth, a header the cache of grants.

    Attributes:
        viewers: how many streams it has.
    """

    def __init__(
        self, authenticate: Authenticate, grant: Grant, now: float, check_s: float
    ) -> None:
        self._authenticate = authenticate
        self._check_s = check_s
        self.grant: Grant | None = grant
        self.checked = now
        self.viewers = 0

    def is_due(self, now: float) -> bool:
        """Whether to check again."""
        return self.grant is not None and now >= self.checked + self._check_s

    async def check(self, call: Call, now: float) -> None:
        """Asks for the grant again. Without an answer the caller has none: its clients connect again."""
        try:
            self.grant = await self._authenticate(call)
        except (ApiError, TarnError):
            self.grant = None
        self.checked = now

    def may_read(self, resource: str, now: float) -> bool:
        """Whether the caller may read a branch, by a check that is not too old."""
        if self.grant is None or now > self.checked + STALE_S:
            return False
        return self.grant.allows(_RULE.require_action(), resource)


class Channel(Protocol):
    """The events of a branch (`tarn_api.feed.channels`)."""

    repository: str
    branch: str

    def after(self, number: int) -> list[bytes] | None:
        """Returns the events after one, as they are sent; None: some of them are gone."""
        ...

    def leave(self, viewer: Viewer) -> None:
        """Takes a viewer out."""
        ...


class Viewer:
    """One stream.

    Args:
        channel: whose events it gets.
        caller: who began it.
        clock: time.
        ends: when it ends, on the monotonic clock.
        place: the number of the last event that it does not need.

    Attributes:
        reason: why it was ended by this side; empty: it was not.
    """

    def __init__(
        self, channel: Channel, caller: Caller, clock: Clock, ends: float, place: int
    ) -> None:
        self.caller = caller
        self.ends = ends
        self.beaten = clock.monotonic()
        self.reason = ""
        self._channel = channel
        request = pb.ListReflogRequest(repository_id=channel.repository, branch_id=channel.branch)
        self._resource = _RULE.resource.of(request)
        self._clock = clock
        self._place = place
        self._woken = asyncio.Event()
        self._wants_beat = self._is_gone = False
        self._limit: asyncio.Timeout | None = None

    @property
    def is_behind(self) -> bool:
        """Whether events are gone that it did not take."""
        return self._channel.after(self._place) is None

    @property
    def may_read(self) -> bool:
        """Whether its caller may read the branch."""
        return self.caller.may_read(self._resource, self._clock.monotonic())

    def wake(self) -> None:
        """There is something to send."""
        self._woken.set()

    def beat(self) -> None:
        """Sends a comment, so that neither side takes the connection for dead."""
        self.beaten = self._clock.monotonic()
        self._wants_beat = True
        self.wake()

    def end(self, reason: str) -> None:
        """Ends the stream."""
        self.reason = self.reason or reason
        self.wake()

    def cut(self) -> None:
        """Ends the stream although the client takes nothing."""
        self.end("TOO_SLOW")
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())

    def left(self) -> None:
        """The client is gone."""
        self._is_gone = True
        self.wake()

    async def run(self, send: Send, first: bytes) -> None:
        """Sends events until the stream ends, on either side.

        Args:
            send: of ASGI.
            first: what comes before the events.
        """
        try:
            async with asyncio.timeout(None) as self._limit:
                await self._send(send, first)
                while not (self.reason or self._is_gone):
                    await self._send(send, self._next())
                    if not self._woken.is_set():
                        await self._woken.wait()
                    self._woken.clear()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            pass  # cut: the answer is not completed, so the connection ends
        finally:
            self._channel.leave(self)

    async def _send(self, send: Send, piece: bytes) -> None:
        if piece:
            await send({"type": "http.response.body", "body": piece, "more_body": True})

    def _next(self) -> bytes:
        """Returns the next events, or a heartbeat; nothing if there is nothing to send, or nothing may be sent."""
        if not self.may_read:
            self.end("DENIED")
            return b""
        found = self._channel.after(self._place)
        if found is None:
            self.end("TOO_SLOW")
            return b""
        taken, size = 0, 0
        for each in found:
            size += len(each)
            if taken and size > _PIECE_BYTES:
                self.wake()
                break
            taken += 1
        self._place += taken
        beat, self._wants_beat = self._wants_beat, False
        return b"".join(found[:taken]) or (b":\n\n" if beat else b"")


class EventStream(Response):
    """The answer with events.

    Args:
        viewer: gets them.
        first: what comes before them, not empty: the head of the answer waits for it.
        ended: is told why this side ended it, or nothing.
    """

    media_type = "text/event-stream"

    def __init__(self, viewer: Viewer, first: bytes, ended: Callable[[str], None]) -> None:
        self.status_code = 200
        self.background = None
        self.viewer = viewer
        self._first = first
        self._ended = ended
        # Some proxies would wait for the end of the answer.
        self.init_headers({"X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the events."""
        del scope
        viewer = self.viewer
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(_watch(receive, viewer))
                try:
                    await viewer.run(send, self._first)
                finally:
                    watching.cancel()
        finally:
            self._ended(viewer.reason)


async def _watch(receive: Receive, viewer: Viewer) -> None:
    """Tells a viewer when its client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    viewer.left()
