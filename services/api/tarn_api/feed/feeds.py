"""All streams of events of this process: their bounds, the checks of their callers, their ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Final

from tarn.aio.parallel import for_each
from tarn.aio.task_set import TaskSet
from tarn.client.graveler import GravelerClient
from tarn.core.access.policy import Grant
from tarn.core.clock import Clock, IdSource
from tarn.gate.addresses import network_of
from tarn.rpc.wire.call import Call
from tarn_api.errors import ApiError, too_many
from tarn_api.feed.channels import BranchChannel
from tarn_api.feed.events import Position
from tarn_api.feed.looking import BranchView
from tarn_api.feed.viewers import Authenticate, Caller, EventStream, Viewer
from tarn_api.traces import Trace

__all__ = ["FeedLimits", "Feeds", "StreamRequest"]

_SWEEP_S: Final = 1.0
_CHECK_S: Final = 5.0
_CHECKS: Final = 4
"""At once."""
_RETRY_S: Final = 10.0
_UNKNOWN: Final = Position(2**62)
"""What an id stands for that is none: nothing comes after it, and something is missing."""


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Bounds of the streams of one process.

    Attributes:
        streams: in sum.
        of_user: of one user.
        of_address: of one address. Behind a proxy all clients have its address.
        branches: that are watched at once.
        life_s: a stream ends after this time, and up to a quarter less; browsers connect again.
        beat_s: between two heartbeats.
    """

    streams: int = 1000
    of_user: int = 20
    of_address: int = 500
    branches: int = 128
    life_s: float = 900.0
    beat_s: float = 15.0


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A request for the events of a branch.

    Attributes:
        repository: the repository.
        branch: the branch.
        after: the id of the last event that the client has; empty: it has none.
        credential: what the caller proved itself by; a secret.
        is_cookie: whether that is the session of a browser, which auth is asked for at each check.
        authenticate: asks for the grant again.
        grant: of the caller.
        trace: of the request.
    """

    repository: str
    branch: str
    after: str
    credential: str
    is_cookie: bool
    authenticate: Authenticate
    grant: Grant
    trace: Trace


class Feeds:
    """The streams.

    Args:
        graveler: metadata.
        clock: time.
        ids: names channels, and spreads what would happen at once.
        limits: see `FeedLimits`.
    """

    def __init__(
        self, graveler: GravelerClient, clock: Clock, ids: IdSource, limits: FeedLimits
    ) -> None:
        self._graveler, self._clock, self._ids, self._limits = graveler, clock, ids, limits
        self._channels: dict[tuple[str, str], BranchChannel] = {}
        self._callers: dict[str, Caller] = {}
        self._users: Counter[str] = Counter()
        self._addresses: Counter[str] = Counter()
        self._tasks = TaskSet()
        self._is_sweeping = self._is_ending = False

    @property
    def streams(self) -> int:
        """Open streams."""
        return self._users.total()

    async def open(self, asked: StreamRequest, call: Call) -> EventStream:
        """Begins a stream.

        Args:
            asked: what for.
            call: of the caller.

        Raises:
            ApiError: 429, 503.
            TarnError: graveler refuses the caller, or there is no such branch.
        """
        self._take(asked)
        try:
            view = BranchView(self._graveler, asked.repository, asked.branch)
            await view.check(call)
            channel = self._channel(view, asked)
            channel.joining += 1
            try:
                await channel.start(call)
                return await self._begin(channel, asked, call)
            finally:
                channel.joining -= 1
        except BaseException:
            self._give_back(asked)
            raise

    def end(self) -> None:
        """Ends all streams, and begins no more: the process is about to stop. Their clients connect again."""
        self._is_ending = True
        for channel in self._channels.values():
            channel.end("SHUTDOWN")

    async def close(self) -> None:
        """Ends all streams and stops looking."""
        self.end()
        await self._tasks.close()

    # ---- bounds

    def _take(self, asked: StreamRequest) -> None:
        limits, user, address = self._limits, asked.grant.user_id, network_of(asked.trace.remote)
        if self._is_ending or self.streams >= limits.streams:
            text = "this server has as many streams of events as it takes; try again later"
            raise ApiError(503, text, reason="OVERLOADED")
        for counts, name, most, whose in (
            (self._users, user, limits.of_user, "a user"),
            (self._addresses, address, limits.of_address, "an address"),
        ):
            if counts[name] >= most:
                text = f"{whose} may have {most} streams of events at once; close one"
                raise too_many(text, _RETRY_S, reason="TOO_MANY_STREAMS")
        self._users[user] += 1
        self._addresses[address] += 1

    def _give_back(self, asked: StreamRequest) -> None:
        for counts, name in (
            (self._users, str(asked.grant.user_id)),
            (self._addresses, network_of(asked.trace.remote)),
        ):
            counts[name] -= 1
            if not counts[name]:
                del counts[name]

    # ---- streams

    def _channel(self, view: BranchView, asked: StreamRequest) -> BranchChannel:
        """Returns the channel of a branch."""
        key = asked.repository, asked.branch
        channel = self._channels.get(key)
        if channel is None:
            if len(self._channels) >= self._limits.branches:
                self._make_room()
            run = self._ids.nonce()[:4].hex()
            channel = BranchChannel(view, *key, self._clock, run)
            self._channels[key] = channel
            channel.looking = self._tasks.spawn(channel.run(), partial(self._forget, key, channel))
        return channel

    def _make_room(self) -> None:
        """Forgets a channel that nobody watches any more.

        Raises:
            ApiError: 503: there is none.
        """
        unused = next((key for key, each in self._channels.items() if each.is_unused), None)
        if unused is None:
            text = "this server watches as many branches as it can; try again later"
            raise ApiError(503, text, reason="OVERLOADED")
        self._channels.pop(unused).looking.cancel()

    def _forget(self, key: tuple[str, str], channel: BranchChannel, _: object) -> None:
        """A channel looks no more: nobody watches it, or it failed."""
        if self._channels.get(key) is channel:
            del self._channels[key]
        channel.end("ENDED")

    async def _begin(self, channel: BranchChannel, asked: StreamRequest, call: Call) -> EventStream:
        now = self._clock.monotonic()
        ends = now + self._limits.life_s * (1 - self._chance() / 4)
        caller = self._caller(asked, now)
        viewer, number, heads = channel.join(
            lambda place: Viewer(channel, caller, self._clock, ends, place)
        )
        caller.viewers += 1
        try:
            missed: list[bytes] = []
            if asked.after:
                position = Position.parse(asked.after) or _UNKNOWN
                missed = await channel.missed(call, position, number, heads)
        except BaseException:
            channel.leave(viewer)
            self._leave_caller(asked, caller)
            raise
        if self._is_ending:
            viewer.end("SHUTDOWN")
        self._sweep_on()
        # After a restart, not all clients are to come back at once.
        first = b"retry: %d\n\n" % (1000 + 4000 * self._chance())

        def ended(reason: str) -> None:
            channel.leave(viewer)
            self._leave_caller(asked, caller)
            self._give_back(asked)
            asked.trace.reason = reason

        return EventStream(viewer, first + b"".join(missed), ended)

    def _caller(self, asked: StreamRequest, now: float) -> Caller:
        found = self._callers.get(asked.credential)
        if found is None or found.grant is None:
            check_s = _CHECK_S if asked.is_cookie else 0.0
            found = Caller(asked.authenticate, asked.grant, now, check_s)
            self._callers[asked.credential] = found
        return found

    def _leave_caller(self, asked: StreamRequest, caller: Caller) -> None:
        caller.viewers -= 1
        if not caller.viewers and self._callers.get(asked.credential) is caller:
            del self._callers[asked.credential]

    def _chance(self) -> float:
        """Returns a random number from 0 to 1."""
        return int.from_bytes(self._ids.nonce()[:2]) / 0xFFFF

    # ---- checks

    def _sweep_on(self) -> None:
        if not self._is_sweeping:
            self._is_sweeping = True
            self._tasks.spawn(self._sweep())

    async def _sweep(self) -> None:
        """Looks after the streams as long as there are any."""
        try:
            while self.streams:
                await self._clock.sleep(_SWEEP_S)
                await self._check_callers()
                for channel in tuple(self._channels.values()):
                    for viewer in tuple(channel.viewers):
                        self._look_after(viewer)
        finally:
            self._is_sweeping = False

    async def _check_callers(self) -> None:
        async def check(caller: Caller) -> None:
            now = self._clock.monotonic()
            await caller.check(Call("feed", "", now + _CHECK_S), now)

        now = self._clock.monotonic()
        due = [each for each in self._callers.values() if each.is_due(now)]
        await for_each(due, check, _CHECKS)

    def _look_after(self, viewer: Viewer) -> None:
        now = self._clock.monotonic()
        if not viewer.may_read:
            viewer.end("DENIED")
        elif viewer.is_behind:
            viewer.cut()
        elif now >= viewer.ends:
            viewer.end("LIFE")
        elif now >= viewer.beaten + self._limits.beat_s:
            viewer.beat()
