"""Connects the event loop to the driver's thread: bounds requests and delivers answers by ticks.

The driver calls back on its I/O thread, where an answer is only appended to a list; one wake-up of the loop
serves all answers on the list. Requests above the bound wait here, where they can still be refused, or
expire as *not sent*. A request that was sent cannot be taken back, so it runs to its end even if its caller
is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections import deque
from collections.abc import Callable
from typing import Any

from cassandra.cluster import Session

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.cassandra.settings import CassandraLimits

__all__ = ["Answered", "CassandraSession", "Profile", "Rows", "Statement"]

Statement = Any  # a bound statement or a batch: the driver has no types
Rows = list[Any]
"""Rows as tuples; for `Profile.CAS`, as dicts by column name."""

Answered = Callable[[Rows | None, Exception | None], None]
"""Called on the loop's thread with the rows (None for none) or the error."""


class Profile(enum.Enum):
    """How a statement is executed. Every consistency level comes from here (see `connection`)."""

    READ = "read"
    """Sees every acknowledged write."""
    SETTLE = "settle"
    """Decides unfinished compare-and-sets first."""
    WRITE = "write"
    CAS = "cas"


class CassandraSession:
    """Sends statements. Belongs to the running event loop.

    Args:
        session: the driver's session, connected; the caller closes it.
        clock: measures how long requests wait.
        limits: see `CassandraLimits`.
    """

    def __init__(self, session: Session, clock: Clock, limits: CassandraLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._now = clock.monotonic
        self._limits = limits
        self.in_flight = 0
        self._queue: deque[tuple[Statement, Profile, Answered, float]] = deque()
        # Answers for the loop. The driver's thread appends them and then wakes the loop unless it was woken
        # already; the loop clears that mark before it reads the list.
        self._arrived: deque[tuple[Answered, Rows | None, Exception | None]] = deque()
        self._woken = False

    def submit(self, statement: Statement, profile: Profile, answered: Answered) -> None:
        """Sends a statement now or when there is room. Calls `answered` once, perhaps before it returns."""
        if self.in_flight < self._limits.in_flight_max:
            self._send(statement, profile, answered)
        elif len(self._queue) < self._limits.queued_max:
            until = self._now() + self._limits.request_seconds
            self._queue.append((statement, profile, answered, until))
        else:
            text = f"{len(self._queue)} requests are already waiting for Cassandra; try again later"
            answered(None, TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text))

    def ask(self, statement: Statement, profile: Profile) -> asyncio.Future[Rows]:
        """Sends a statement; the future returns its rows or raises the driver's error."""
        future: asyncio.Future[Rows] = self._loop.create_future()

        def answered(rows: Rows | None, error: Exception | None) -> None:
            if future.done():
                return  # its task was cancelled
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(rows or [])

        self.submit(statement, profile, answered)
        return future

    def _send(self, statement: Statement, profile: Profile, answered: Answered) -> None:
        self.in_flight += 1
        try:
            response = self._session.execute_async(statement, execution_profile=profile.value)
        except Exception as error:  # noqa: BLE001 - the caller must get every error
            self.in_flight -= 1
            answered(None, error)
            return
        response.add_callbacks(
            self._succeeded,
            self._failed,
            callback_args=(answered,),
            errback_args=(answered,),
        )

    def _drain(self) -> None:
        self._woken = False
        arrived = self._arrived
        while arrived:
            answered, rows, error = arrived.popleft()
            self.in_flight -= 1
            answered(rows, error)
        while self._queue and self.in_flight < self._limits.in_flight_max:
            statement, profile, answered, until = self._queue.popleft()
            if self._now() > until:
                text = "the request waited too long for other requests and was not sent; try again later"
                answered(None, TarnError(Kind.UNAVAILABLE, Reason.OVERLOADED, text))
                continue
            self._send(statement, profile, answered)

    # The methods below run on the driver's thread (or on the loop's, for immediate failures).

    def _succeeded(self, rows: Rows | None, answered: Answered) -> None:
        self._arrive(answered, rows, None)

    def _failed(self, error: Exception, answered: Answered) -> None:
        self._arrive(answered, None, error)

    def _arrive(self, answered: Answered, rows: Rows | None, error: Exception | None) -> None:
        self._arrived.append((answered, rows, error))
        if not self._woken:
            self._woken = True
            # The loop may have ended before us; then no task waits for the answer either.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)
