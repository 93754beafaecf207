"""Between the event loop and the driver's own thread: bounded requests, answers by ticks.

The driver calls back on its I/O thread; there an answer is only put on a list, and the loop is woken
once for all that are on it. Requests above the bound wait here, where they can still be refused or
expire as *not sent*; what was sent cannot be taken back, so a cancelled caller leaves its request to
its end.
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
"""Tuples; dicts by column name for `Profile.CAS`."""

Answered = Callable[[Rows | None, Exception | None], None]
"""Is told the rows (None for none) or the error, on the loop's thread."""


class Profile(enum.Enum):
    """How a statement is executed: the only place that consistency comes from (see `connection`)."""

    READ = "read"
    """Sees every write that was acknowledged."""
    SETTLE = "settle"
    """Decides undecided compare-and-sets first."""
    WRITE = "write"
    CAS = "cas"


class CassandraSession:
    """Sends statements. Belongs to the running event loop.

    Args:
        session: the driver's, connected; closing it is the caller's business.
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
        # Answers on their way to the loop. Appended on the driver's thread, which then wakes the
        # loop unless somebody has; the loop clears the mark before it looks.
        self._arrived: deque[tuple[Answered, Rows | None, Exception | None]] = deque()
        self._woken = False

    def submit(self, statement: Statement, profile: Profile, answered: Answered) -> None:
        """Sends a statement, now or when there is room; `answered` is called once, maybe at once."""
        if self.in_flight < self._limits.in_flight_max:
            self._send(statement, profile, answered)
        elif len(self._queue) < self._limits.queued_max:
            until = self._now() + self._limits.request_seconds
            self._queue.append((statement, profile, answered, until))
        else:
            text = f"{len(self._queue)} requests are waiting for Cassandra already"
            answered(None, TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text))

    def ask(self, statement: Statement, profile: Profile) -> asyncio.Future[Rows]:
        """Sends a statement; the future holds its rows or raises the driver's error."""
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
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller must hear of it
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
                text = "the request waited too long for others and was not sent"
                answered(None, TarnError(Kind.UNAVAILABLE, Reason.OVERLOADED, text))
                continue
            self._send(statement, profile, answered)

    # On the driver's thread (or the loop's, for what fails at once):

    def _succeeded(self, rows: Rows | None, answered: Answered) -> None:
        self._arrive(answered, rows, None)

    def _failed(self, error: Exception, answered: Answered) -> None:
        self._arrive(answered, None, error)

    def _arrive(self, answered: Answered, rows: Rows | None, error: Exception | None) -> None:
        self._arrived.append((answered, rows, error))
        if not self._woken:
            self._woken = True
            # The loop may have ended without us: then nobody waits for the answer either.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)
