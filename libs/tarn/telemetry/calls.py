"""Measures the calls of a store: durations, failures by reason, and calls that wait."""

from __future__ import annotations

from bisect import bisect_left
from types import TracebackType
from typing import Final

from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.telemetry.meters import Meters
from tarn.telemetry.tracing import TRACEPARENT, child_span

__all__ = ["CallMeter"]

_OTHER: Final = "OTHER"
"""The reason counted for exceptions other than `TarnError`: a cancelled call or a defect."""


class CallMeter:
    """The metrics of one operation; `with meter.call():` measures a call.

    The hottest calls avoid the block's object, which is half of its cost:

        if TRACEPARENT.get():
            ...                      # as `with meter.call():`
        meter.begun += 1
        began = meter.now()
        try:
            answer = await ...
        except BaseException as error:
            meter.end_failed(began, error)
            raise
        meter.end(began)

    Args:
        store: first part of the metrics' names: `<store>.duration`, `<store>.failed`, `<store>.in_flight`.
        operation: value of their label `operation`.
        meters: holds the metrics.
        clock: measures durations with its monotonic time.

    Attributes:
        begun: calls that ever began; `end` or `end_failed` follows each.
    """

    __slots__ = ("_bounds", "_counts", "_meters", "begun", "duration", "name", "now", "store")

    def __init__(self, store: str, operation: str, meters: Meters, clock: Clock) -> None:
        self.store = store
        self.name = operation
        self.now = clock.monotonic
        self.duration = meters.histogram(f"{store}.duration", operation=operation)
        self._bounds, self._counts = self.duration.bounds, self.duration.counts
        self.begun = 0
        meters.sample(f"{store}.in_flight", self._in_flight, operation=operation)
        self._meters = meters

    def _in_flight(self) -> int:
        # Every call that has ended is in the histogram: only its begin is counted in addition.
        return self.begun - sum(self._counts)

    def end(self, began: float) -> None:
        """Records a call that has ended."""
        seconds = self.now() - began
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.duration.total += seconds

    def end_failed(self, began: float, error: BaseException) -> None:
        """Records a call that has failed."""
        self.end(began)
        self.fail(error)

    def call(self) -> _Call:
        """Returns a block that is measured as one call."""
        return _Call(self)

    def fail(self, error: BaseException) -> None:
        """Counts a failure by its reason."""
        reason = error.reason.value if isinstance(error, TarnError) else _OTHER
        self._meters.counter(f"{self.store}.failed", operation=self.name, reason=reason).add()


class _Call:
    """One running call. A class, because `contextmanager` would cost three times as much."""

    __slots__ = ("_began", "_meter", "_span")

    def __init__(self, meter: CallMeter) -> None:
        self._meter = meter

    def __enter__(self) -> None:
        self._span = None
        if TRACEPARENT.get():
            self._span = child_span(f"{self._meter.store} {self._meter.name}")
            self._span.__enter__()
        self._meter.begun += 1
        self._began = self._meter.now()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._meter.end(self._began)
        is_end = isinstance(error, StopAsyncIteration)
        if error is not None and not is_end:
            self._meter.fail(error)
        if self._span is not None:
            self._span.__exit__(*((None, None, None) if is_end else (kind, error, trace)))
