"""Which requests an endpoint works on when more arrive than it can answer.

Up to a limit all are. Beyond it they wait, before their signatures are verified and their bodies received. Tenants take
turns, so one connection of a user does not wait behind 256 of another. Whoever has waited too long is refused, so those
that are let in are answered in time (docs/design/security.md, "More requests than the gateway can answer").

Without a queue, a request costs two additions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from tarn.core.clock import Clock
from tarn.telemetry.meters import Counter

__all__ = ["LIMIT_MAX", "LIMIT_MIN", "WAIT_MAX_S", "RequestQueue"]

LIMIT_MIN: Final = 32
"""Requests under way on a loop that always has work: more would share the same processor, each for longer. Fewer would
make small batches: with 16, a worker with 32 connections needed a third more transactions for its PUTs."""
LIMIT_MAX: Final = 256
"""Requests under way on a loop that waits for stores: more would only wait there."""
WAIT_MAX_S: Final = 0.3
"""How long a request waits at most: a burst of as many as can be answered in that time is answered."""
STILL_S: Final = 0.1
"""If the process stands still for longer, the rest of that time counts as no wait."""
TURN_MAX_S: Final = 0.001
"""A longer turn of the loop shows that it always has work."""
LOOK_S: Final = 0.01
ADMITTED_PER_REFUSAL: Final = 2
"""A refusal costs a third of a GET. So clients that ask again at once take a sixth of the time, however many they are:
they wait for their refusals."""


class _Waiting:
    """A request that waits; `turn` ends when it may go on or is refused."""

    __slots__ = ("since", "turn")

    def __init__(self, since: float, turn: asyncio.Future[None]) -> None:
        self.since = since
        self.turn = turn


class RequestQueue:
    """The requests of one endpoint: those under way, and those that wait.

    Args:
        clock: measures waits and turns of the loop.
        refusal: makes the error of a request that has waited too long.
        shed: counts those requests.

    Attributes:
        under_way: requests being worked on.
        limit: most of them. It moves between `LIMIT_MIN` and `LIMIT_MAX` while requests wait.
    """

    def __init__(self, clock: Clock, refusal: Callable[[], Exception], shed: Counter) -> None:
        self.under_way = 0
        self.limit = LIMIT_MIN
        self._clock = clock
        self._refusal = refusal
        # By tenant, the one whose turn it is first; each oldest first. None is empty.
        self._queues: dict[str, deque[_Waiting]] = {}
        # Have waited too long, and will be refused.
        self._overdue: deque[_Waiting] = deque()
        self._admitted = 0
        self._left = 0
        self._look_at = 0.0
        self._still_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._shed = shed

    def enters(self) -> bool:
        """Takes a place for a request, if one is free; returns whether it has."""
        if self.under_way < self.limit and not self._queues:
            self.under_way += 1
            return True
        return False

    def leave(self) -> None:
        """Gives a place back: the request has ended, or waits for its client."""
        self.under_way -= 1
        if self._queues:
            self._left += 1
            self._admit()

    def resume(self) -> None:
        """Takes the place again after a wait for the client. A request that has begun waits for no other one."""
        self.under_way += 1

    async def wait(self, tenant: str) -> None:
        """Waits for a place, and takes it.

        Args:
            tenant: those who take turns.

        Raises:
            Exception: `refusal`: it has waited too long. Nothing was done.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(self._now(), loop.create_future())
        queue = self._queues.get(tenant)
        if queue is None:
            queue = self._queues[tenant] = deque()
        queue.append(waiting)
        if self._timer is None:
            self._look_later(loop)
        try:
            await waiting.turn
        except asyncio.CancelledError:
            # The client has left. If it was its turn already, the next one has it.
            turn = waiting.turn
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave()
            raise

    @property
    def length(self) -> int:
        """Requests that wait."""
        return sum(map(len, self._queues.values())) + len(self._overdue)

    def _admit(self) -> None:
        """Lets requests in while there are places: one of each tenant in turn, each time its oldest."""
        now = self._now()
        while self.under_way < self.limit and self._queues:
            tenant, queue = next(iter(self._queues.items()))
            waiting = self._first(queue, now)
            del self._queues[tenant]
            if queue:
                self._queues[tenant] = queue  # behind all others
            if waiting is None:
                continue
            self.under_way += 1
            waiting.turn.set_result(None)
            self._admitted += 1
            if self._admitted % ADMITTED_PER_REFUSAL == 0:
                self._refuse()

    def _first(self, queue: deque[_Waiting], now: float) -> _Waiting | None:
        """Takes the oldest request from a queue that has not waited too long; puts those before it aside."""
        while queue:
            waiting = queue.popleft()
            if waiting.turn.done():
                continue  # its client has left
            if now - waiting.since <= WAIT_MAX_S:
                return waiting
            self._overdue.append(waiting)
        return None

    def _refuse(self) -> None:
        """Refuses the request that is overdue for the longest."""
        while self._overdue:
            waiting = self._overdue.popleft()
            if not waiting.turn.done():
                self._shed.value += 1
                waiting.turn.set_exception(self._refusal())
                return

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Looks at requests that the end of no other one would let in, and begins to measure a turn of the loop."""
        self._timer = None
        self._still_s += max(0.0, self._clock.monotonic() - self._look_at - STILL_S)
        now = self._now()
        for tenant, queue in list(self._queues.items()):
            first = self._first(queue, now)
            if first is None:
                del self._queues[tenant]
            else:
                queue.appendleft(first)
        # Where there is room, no request waits long for a refusal.
        for _ in range(1 if self._queues else max(1, self.limit - self.under_way)):
            self._refuse()
        if self._queues:
            loop.call_soon(self._begin_turn, loop)
        if self._queues or self._overdue:
            self._look_later(loop)

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._look_at = self._clock.monotonic() + LOOK_S
        self._timer = loop.call_later(LOOK_S, self._look, loop)

    def _now(self) -> float:
        """Returns seconds that leave out those in which the process stood still."""
        return self._clock.monotonic() - self._still_s

    def _begin_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(self._adapt, self._clock.monotonic())

    def _adapt(self, began: float) -> None:
        """Moves the limit, by how long the turn of the loop has taken that began then."""
        if self._clock.monotonic() - began > TURN_MAX_S:
            self.limit = max(LIMIT_MIN, self.limit - self.limit // 8)
        else:
            self.limit = min(LIMIT_MAX, self.limit + self.limit // 8)
        if not self._left and self.limit <= self.under_way:
            self.limit = self.under_way + 1  # all of them wait for something: more may go on
        self._left = 0
        self._admit()
