"""Measures the calls of a store: durations, failures by reason, and calls that wait."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.telemetry.meters import Meters
from tarn.telemetry.tracing import TRACEPARENT, child_span

__all__ = ["COUNTED_TOGETHER", "CallMeter"]

COUNTED_TOGETHER: Final = 256
"""Calls that are put aside until they are counted: each one then costs a tenth."""

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
        meter.ended.append(meter.now() - began)
        if len(meter.ended) >= COUNTED_TOGETHER:
            meter.duration.count_waiting()

    Args:
        store: first part of the metrics' names: `<store>.duration`, `<store>.failed`, `<store>.in_flight`.
        operation: value of their label `operation`.
        meters: holds the metrics.
        clock: measures durations with its monotonic time.

    Attributes:
        begun: calls that ever began; `end` or `end_failed` follows each.
        ended: the durations of calls that have ended and are not counted yet, in seconds.
    """

    __slots__ = ("_meters", "begun", "duration", "ended", "name", "now", "store")

    def __init__(self, store: str, operation: str, meters: Meters, clock: Clock) -> None:
        self.store = store
        self.name = operation
        self.now = clock.monotonic
        self.duration = meters.histogram(f"{store}.duration", operation=operation)
        self.begun = 0
        self.ended = self.duration.waiting
        meters.sample(f"{store}.in_flight", self._in_flight, operation=operation)
        self._meters = meters

    def _in_flight(self) -> int:
        # Every call that has ended is in the histogram or put aside: only its begin is counted in addition.
        return self.begun - sum(self.duration.counts) - len(self.ended)

    def end(self, began: float) -> None:
        """Records a call that has ended."""
        self.ended.append(self.now() - began)
        if len(self.ended) >= COUNTED_TOGETHER:
            self.duration.count_waiting()

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
