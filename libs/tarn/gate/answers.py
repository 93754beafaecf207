"""Answers of auth that are kept for a while: grants, tokens, and refusals for a second.

What is asked for is kept for the time that the answer states, counted from before the question. Concurrent questions
for one key are one request; one that came after the time of the answer asks again. Refusals have a cache of their own,
so that unauthenticated clients cannot evict the grants of users.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

from tarn.aio.single_flight import FlightTimeoutError, SingleFlight
from tarn.aio.ttl_cache import TtlCache
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn.telemetry.meters import Meters

__all__ = ["Answers"]

_REFUSALS_MAX = 8192
_REFUSAL_TTL_S = 1.0

T = TypeVar("T")
K = TypeVar("K")


class Answers(Generic[K, T]):
    """Caches answers and, for a shorter time, refusals; sends one request at a time for each key.

    Args:
        clock: its monotonic time decides expiry.
        answers_max: most answers; the least recently used one is forgotten first.

    Attributes:
        get: returns the answer that is kept; None without one.
    """

    def __init__(self, clock: Clock, answers_max: int) -> None:
        self._clock = clock
        self._answers: TtlCache[K, T] = TtlCache(clock, answers_max)
        self.get = self._answers.get
        self._refusals: TtlCache[K, TarnError] = TtlCache(clock, _REFUSALS_MAX)
        # With an answer, or a refusal, comes the end of its time, on the monotonic clock.
        self._questions: SingleFlight[K, tuple[T | TarnError, float]] = SingleFlight(
            _error_for_waiters
        )
        self._misses = 0

    def register(self, meters: Meters, cache: str) -> None:
        """Registers the counts of look-ups."""
        meters.sample("cache.lookups", lambda: self._answers.hits, cache=cache, outcome="hit")
        meters.sample("cache.lookups", lambda: self._misses, cache=cache, outcome="miss")

    def has(self, key: K) -> bool:
        """Whether an answer is kept; not counted as a look-up."""
        return self._answers.has(key)

    def end_of(self, key: K) -> float:
        """Returns until when an answer is kept, on the monotonic clock; a time of the past without one."""
        return self._answers.end_of(key)

    def forget(self, key: K) -> None:
        """Drops the answer, if there is one."""
        self._answers.pop(key)

    async def load(self, call: Call, key: K, ask: Callable[[], Awaitable[tuple[T, int]]]) -> T:
        """Returns the answer for a key: kept, on its way, or asked for now.

        Args:
            call: gives the time to wait.
            key: what is asked.
            ask: asks auth; returns the answer and how long it holds, in milliseconds.

        Raises:
            TarnError: what `ask` raised; DEADLINE.
        """
        if (kept := self.get(key)) is not None:
            return kept
        self._misses += 1
        if (refusal := self._refusals.get(key)) is not None:
            raise refusal.again()
        came = self._clock.monotonic()
        while True:
            try:
                answer, end = await self._questions.run(
                    key, partial(self._ask, key, ask), timeout_s=call.remaining(self._clock)
                )
            except FlightTimeoutError:
                text = f"request {call.request_id} ran out of time waiting for auth"
                raise TarnError(Kind.DEADLINE, Reason.DEADLINE_EXCEEDED, text) from None
            if end >= came:
                if isinstance(answer, TarnError):
                    raise answer.again()
                return answer
            # Others asked so long before this call that their answer does not count for it.

    async def _ask(
        self, key: K, ask: Callable[[], Awaitable[tuple[T, int]]]
    ) -> tuple[T | TarnError, float]:
        """Asks auth. An answer and a refusal are as old as the question: auth may have looked at once and told late."""
        begin = self._clock.monotonic()
        try:
            answer, ttl_ms = await ask()
        except TarnError as error:
            if error.kind not in (Kind.UNAUTHENTICATED, Kind.DENIED, Kind.INVALID):
                raise
            # A copy: the traceback of this one holds the frames of its caller, and the request in them.
            refusal, end = error.again(), begin + _REFUSAL_TTL_S
            self._refusals.put(key, refusal, end)
            return refusal, end
        end = begin + ttl_ms / 1000
        self._answers.put(key, answer, end)
        return answer, end


def _error_for_waiters(error: Exception) -> Exception | None:
    """Returns the error for other callers of one request. None: each asks again, after a deadline or a defect of the
    first one."""
    if isinstance(error, TarnError) and error.kind is not Kind.DEADLINE:
        return error.again()
    return None
