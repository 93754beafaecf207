"""Operations with phases, such as a commit: how long each phase takes, and a log line for slow ones.

    with operations.begin("commit", repository="lake", branch="main"):
        with phase("seal"):
            ...

`phase` finds the running operation by itself, so that code deep inside marks its phase without a parameter. Outside
of an operation it does nothing. A phase that runs several times counts with its sum. Phases of one operation should
not overlap: then the rest, up to the operation's duration, is work between them.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from math import inf
from types import TracebackType

import structlog

from tarn.core.clock import Clock
from tarn.telemetry.meters import Histogram, Meters
from tarn.telemetry.tracing import child_span

__all__ = ["Operations", "phase"]

_log = structlog.get_logger()


class Operations:
    """Times the operations of a service.

    Args:
        clock: measures durations with its monotonic time.
        meters: gets `operation.duration` and `operation.phase`; None: nothing is recorded.
        slow_s: an operation that takes longer is logged with its phases.
    """

    def __init__(self, clock: Clock, meters: Meters | None = None, slow_s: float = inf) -> None:
        self.now = clock.monotonic
        self._meters = meters or Meters()
        self._slow_s = slow_s
        self._durations: dict[str, Histogram] = {}
        self._phases: dict[tuple[str, str], Histogram] = {}

    def begin(self, name: str, **facts: str) -> _Operation:
        """Returns a block that is timed as an operation; its failure is timed like a success.

        Args:
            name: one of few.
            facts: further keys of the log line of a slow operation, such as the repository.
        """
        return _Operation(self, name, facts)

    def ended(
        self, name: str, facts: dict[str, str], phases: dict[str, float], seconds: float
    ) -> None:
        """Records an operation that has ended."""
        duration = self._durations.get(name)
        if duration is None:
            duration = self._meters.histogram("operation.duration", operation=name)
            self._durations[name] = duration
        duration.record(seconds)
        for each, spent in phases.items():
            found = self._phases.get((name, each))
            if found is None:
                found = self._meters.histogram("operation.phase", operation=name, phase=each)
                self._phases[name, each] = found
            found.record(spent)
        if seconds > self._slow_s:
            shown = {f"{each}_ms": round(spent * 1000, 1) for each, spent in phases.items()}
            _log.warning(
                "slow operation",
                operation=name,
                duration_ms=round(seconds * 1000, 1),
                **shown,
                **facts,
            )


class _Operation:
    """One running operation."""

    __slots__ = ("_began", "_facts", "_name", "_operations", "_outside", "now", "phases")

    def __init__(self, operations: Operations, name: str, facts: dict[str, str]) -> None:
        self._operations = operations
        self._name = name
        self._facts = facts
        self.now = operations.now
        self.phases: dict[str, float] = {}

    def __enter__(self) -> None:
        self._outside: Token[_Operation | None] = _RUNNING.set(self)
        self._began = self.now()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seconds = self.now() - self._began
        _RUNNING.reset(self._outside)
        self._operations.ended(self._name, self._facts, self.phases, seconds)


_RUNNING: ContextVar[_Operation | None] = ContextVar("tarn_operation", default=None)


class phase:  # noqa: N801 - used like a function
    """A block that counts as a phase of the running operation, and as a span of a traced one."""

    __slots__ = ("_began", "_name", "_operation", "_span")

    def __init__(self, name: str) -> None:
        self._name = name
        self._span = child_span(name)

    def __enter__(self) -> None:
        self._span.__enter__()
        self._operation = _RUNNING.get()
        if self._operation is not None:
            self._began = self._operation.now()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._span.__exit__(kind, error, trace)
        operation = self._operation
        if operation is not None:
            spent = operation.now() - self._began
            operation.phases[self._name] = operation.phases.get(self._name, 0.0) + spent
