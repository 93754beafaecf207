"""The slots of a server's rpcs: how many run at once, and the share that callers without a valid token may take.

An rpc takes its slot when its headers have arrived, before a byte of its message. It is authenticated if it brings a
token that a service of this process has accepted, or as soon as a call or an operation of it is answered as only an
authenticated caller's is. All other rpcs share `unauthenticated_max` slots, so they leave those of users and services
alone, whatever they do. Among themselves the latest wins: when the share is full, the connection that holds most of it
loses its oldest slot that waits for its client. So a service that has just started, or connects again, gets a slot
among any number of idle streams, and its first operation makes it authenticated.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from tarn.aio.deadlines import DeadlineSweep
from tarn.aio.ttl_cache import TtlCache
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.errors import overload_error
from tarn.telemetry.meters import Meters

__all__ = ["Slot", "SlotLimits", "Slots", "proves_caller"]

T = TypeVar("T")

_TOKENS_MAX = 4096
_TOKEN_CHARS_MAX = 2048
_TOKEN_SECONDS = 300.0
_SWEEP_SECONDS = 0.5

_QUEUE_SECONDS = 5.0
"""How long an rpc waits if all of the share are being worked on; then it is refused with `RESOURCE_EXHAUSTED`."""
_QUEUED_PER_SLOT = 4

_PROOFS: Final = frozenset(
    {Kind.NOT_FOUND, Kind.ALREADY_EXISTS, Kind.CONFLICT, Kind.FAILED_PRECONDITION}
)
"""Kinds of errors that tell about what is stored. Only callers with a valid token get them."""


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """How many rpcs run at once, and how long they may wait for their clients.

    Attributes:
        authenticated_max: rpcs of authenticated callers.
        unauthenticated_max: rpcs of all others.
        watches_max: streams of health, which need no token and have no end; counted apart.
        message_s: how long the message of a unary rpc may take to arrive, in seconds.
        idle_s: how long a stream may be open without proof of its caller, in seconds.
    """

    authenticated_max: int = 1024
    unauthenticated_max: int = 64
    watches_max: int = 32
    message_s: float = 20.0
    idle_s: float = 60.0


class Slot:
    """The slot of one rpc, held until the end of a block.

    Attributes:
        is_authenticated: whether it is outside the share of callers without a valid token.
        peer: the connection.
        token: the caller token; empty for none.
        accepts: tells whether a service has accepted a token lately.
    """

    __slots__ = (
        "_has_left",
        "_refusal",
        "_slots",
        "_task",
        "accepts",
        "is_authenticated",
        "peer",
        "token",
    )

    def __init__(
        self, slots: Slots, peer: str, token: str, accepts: Callable[[str], bool] | None
    ) -> None:
        self._slots = slots
        self._has_left = False
        self._task: asyncio.Task[object] | None = None
        self._refusal: TarnError | None = None
        self.is_authenticated = False
        self.peer = peer
        self.token = token
        self.accepts = accepts

    @property
    def is_waiting(self) -> bool:
        """Returns whether it waits for its client, so that it can be taken away."""
        return self._task is not None

    async def wait(self, work: Awaitable[T], timeout_s: float | None = None) -> T:
        """Waits for the client; only while it does so can the slot be taken away.

        Raises:
            TarnError: EXHAUSTED: the slot was taken away. DEADLINE: the client took longer than `timeout_s`.
        """
        slots, task = self._slots, asyncio.current_task()
        assert task is not None, "handlers run in tasks"
        cancelling = task.cancelling()
        self._task = task
        key = 0 if timeout_s is None else slots.call_at(timeout_s, self._expire)
        try:
            return await work
        except asyncio.CancelledError:
            if self._refusal is None or task.uncancel() > cancelling:
                raise
            raise self._refusal from None
        finally:
            self._task = None
            slots.leave_call(key)

    def take_away(self, error: TarnError) -> None:
        """Ends the wait for the client with an error, and frees the slot. Does nothing if it does not wait."""
        if self._task is not None and self._refusal is None:
            self._refusal = error
            self._task.cancel()
            self.leave()

    def authenticate(self, token: str) -> None:
        """Takes the slot out of the share: its caller has proved who it is, with this token if it is not empty."""
        if not self._has_left:
            self._slots.authenticate(self, token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Frees the slot. Idempotent."""
        if not self._has_left:
            self._has_left = True
            self._slots.remove(self)

    def _expire(self) -> None:
        text = "the request did not arrive in time; send it again"
        self.take_away(TarnError(Kind.DEADLINE, Reason.DEADLINE_EXCEEDED, text))


class Slots:
    """The slots of one server.

    Args:
        limits: see `SlotLimits`.
        clock: measures waits.
        meters: `rpc.unauthenticated`, and `rpc.refused` by bound.
    """

    def __init__(self, limits: SlotLimits, clock: Clock, meters: Meters) -> None:
        self.limits = limits
        self._clock = clock
        self._sweep = DeadlineSweep(clock, _SWEEP_SECONDS)
        self._tokens: TtlCache[str, bool] = TtlCache(clock, _TOKENS_MAX)
        self._authenticated = 0
        self._unauthenticated: dict[Slot, None] = {}  # the oldest first
        self._queue: deque[tuple[asyncio.Future[None], Slot]] = deque()  # waits for the share
        self._watches: set[Slot] = set()
        self._refused = {
            bound: meters.counter("rpc.refused", bound=bound)
            for bound in ("slots", "unauthenticated", "watches")
        }
        meters.sample("rpc.unauthenticated", lambda: len(self._unauthenticated))

    def knows(self, token: str, accepts: Callable[[str], bool] | None) -> bool:
        """Returns whether a token has been accepted lately; no promise that it still is."""
        if not token or len(token) > _TOKEN_CHARS_MAX:
            return False
        return bool(self._tokens.get(token)) or (accepts is not None and accepts(token))

    async def enter(self, peer: str, token: str, accepts: Callable[[str], bool] | None) -> Slot:
        """Returns the slot of a new rpc; whoever gets it leaves it.

        Waits some seconds if no slot of the share waits for its client, such as when many users log in at once.

        Raises:
            TarnError: EXHAUSTED: there is none for this caller.
        """
        slot = Slot(self, peer, token, accepts)
        if self.knows(token, accepts):
            if self._authenticated >= self.limits.authenticated_max:
                self._refused["slots"].add()
                text = f"{self._authenticated} rpcs run already; try again later"
                raise overload_error(text)
            slot.is_authenticated = True
            self._authenticated += 1
            return slot
        for other in [*self._unauthenticated]:
            if self.knows(other.token, other.accepts):
                self.authenticate(other, "")
        if len(self._unauthenticated) >= self.limits.unauthenticated_max and not self._make_room():
            await self._turn(slot)
        else:
            self._unauthenticated[slot] = None
        return slot

    def authenticate(self, slot: Slot, token: str) -> None:
        """See `Slot.authenticate`. Without a free slot for authenticated callers, nothing changes but the token."""
        if token and len(token) <= _TOKEN_CHARS_MAX:
            self._tokens.put(token, True, self._clock.monotonic() + _TOKEN_SECONDS)
        if slot.is_authenticated or self._authenticated >= self.limits.authenticated_max:
            return
        slot.is_authenticated = True
        self._authenticated += 1
        self._leave_share(slot)

    def remove(self, slot: Slot) -> None:
        """See `Slot.leave`."""
        if slot in self._watches:
            self._watches.remove(slot)
        elif slot.is_authenticated:
            self._authenticated -= 1
        else:
            self._leave_share(slot)

    def enter_watch(self, peer: str) -> Slot:
        """Returns the slot of a stream of health, which is counted apart.

        Raises:
            TarnError: EXHAUSTED: there are too many.
        """
        if len(self._watches) >= self.limits.watches_max:
            self._refused["watches"].add()
            text = f"{len(self._watches)} watches of health run already; try again later"
            raise overload_error(text)
        slot = Slot(self, peer, "", None)
        self._watches.add(slot)
        return slot

    def call_at(self, seconds: float, call: Callable[[], object]) -> int:
        """Calls back in so many seconds, half a second later at most; returns the key for `leave_call`."""
        return self._sweep.enter(self._clock.monotonic() + seconds, call)

    def leave_call(self, key: int) -> None:
        """Removes what `call_at` entered. Idempotent."""
        self._sweep.leave(key)

    def close(self) -> None:
        """Stops its timer. Idempotent."""
        self._sweep.close()

    def _make_room(self) -> bool:
        """Takes the oldest slot of the connection that has most, of those that wait for their clients; returns whether
        there was one."""
        counts = Counter(slot.peer for slot in self._unauthenticated)
        waiting = [slot for slot in self._unauthenticated if slot.is_waiting]
        if not waiting:
            return False
        # The room is the new rpc's, and not for those that queue.
        queue, self._queue = self._queue, deque()
        max(waiting, key=lambda slot: counts[slot.peer]).take_away(self._overload())
        self._queue = queue
        return True

    async def _turn(self, slot: Slot) -> None:
        """Waits until a slot of the share is left to this one.

        Raises:
            TarnError: EXHAUSTED: too many wait, or it waited too long.
        """
        if len(self._queue) >= self.limits.unauthenticated_max * _QUEUED_PER_SLOT:
            raise self._overload()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def expire() -> None:
            if not turn.done():
                turn.set_exception(self._overload())

        entry = (turn, slot)
        self._queue.append(entry)
        key = self.call_at(_QUEUE_SECONDS, expire)
        try:
            await turn
        except asyncio.CancelledError:
            if slot in self._unauthenticated:
                slot.leave()
            raise
        finally:
            self.leave_call(key)
            if entry in self._queue:
                self._queue.remove(entry)

    def _leave_share(self, slot: Slot) -> None:
        del self._unauthenticated[slot]
        while self._queue and len(self._unauthenticated) < self.limits.unauthenticated_max:
            turn, first = self._queue.popleft()
            if not turn.done():
                self._unauthenticated[first] = None
                turn.set_result(None)

    def _overload(self) -> TarnError:
        self._refused["unauthenticated"].add()
        text = f"{len(self._unauthenticated)} rpcs without a valid token run already"
        return overload_error(f"{text}; try again later")


def proves_caller(error: TarnError | None) -> bool:
    """Returns whether a call that ended so was made by an authenticated caller."""
    return error is None or error.kind in _PROOFS
