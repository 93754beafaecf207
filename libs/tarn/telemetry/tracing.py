"""Traces that cost almost nothing for requests that are not sampled.

The OpenTelemetry SDK takes 5 to 15 µs per span, sampled or not (docs/design/hot-path.md, "Telemetry"). So sampling
is decided here, before the SDK is called: by an incoming sampled `traceparent`, or by a ratio. Without an exporter
(`tarn.telemetry.exporting`) the SDK is not even imported.

The context of a sampled request is `TRACEPARENT`: it is empty for all others. Code that makes a span inside of a
request uses `child_span`, which is one look at that variable if the request is not sampled.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

__all__ = [
    "FORCED_PER_SECOND_MAX",
    "TRACEPARENT",
    "RequestSpan",
    "Tracing",
    "child_span",
    "trace_id",
]

TRACEPARENT: ContextVar[str] = ContextVar("tarn_traceparent", default="")
"""W3C trace context of the sampled span that this task works for; sent with calls to other services."""

FORCED_PER_SECOND_MAX: Final = 100
"""Requests per second that clients may have traced by their own `traceparent`; the ratio decides about others."""

_PARENT: ContextVar[tuple[Tracer, Span] | None] = ContextVar("tarn_parent_span", default=None)
"""The span in `TRACEPARENT`, and its tracer."""

_SAMPLED = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f][13579bdf]")


def trace_id() -> str:
    """Returns the id of the sampled trace that this task works for, 32 hex digits; empty if there is none."""
    return TRACEPARENT.get()[3:35]


class Tracing:
    """Decides which requests are traced, and traces those.

    Args:
        tracer: None to trace nothing.
        ratio: traced fraction of the requests without a sampled parent, 0 to 1.
        rng: seeds the sample.
        now: monotonic time in seconds, for the bound of forced traces.
    """

    def __init__(
        self,
        tracer: Tracer | None,
        ratio: float,
        rng: random.Random,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tracer = tracer
        self._ratio = ratio
        # A system's source of randomness costs a system call for each number.
        self._chance = random.Random(rng.random()).random  # noqa: S311 - a sample is no secret
        self._now = now
        self._second = 0
        self._forced = 0

    @property
    def is_on(self) -> bool:
        """Whether any request may be traced."""
        return self._tracer is not None

    @contextmanager
    def span(self, name: str, traceparent: str = "") -> Iterator[None]:
        """Traces the block if its request is sampled; for calls of other services.

        Args:
            name: constant, such as the path of an rpc.
            traceparent: the request's header, or empty.
        """
        parent = _SAMPLED.fullmatch(traceparent) if traceparent else None
        if self._tracer is None or (parent is None and self._chance() >= self._ratio):
            yield
            return
        with _Recorded(self._tracer, name, parent):
            yield

    def begin(self, name: str, traceparent: str) -> RequestSpan | None:
        """Begins the span of a client's request; returns None if it is not sampled.

        The span ends by `RequestSpan.end`, in the same task. A client can have only some requests traced by its
        header, because each one costs time.
        """
        if self._tracer is None:
            return None
        parent = _SAMPLED.fullmatch(traceparent) if traceparent else None
        if not (parent is not None and self._may_force()) and self._chance() >= self._ratio:
            return None
        return RequestSpan(_Recorded(self._tracer, name, parent))

    def _may_force(self) -> bool:
        second = int(self._now())
        if second != self._second:
            self._second, self._forced = second, 0
        self._forced += 1
        return self._forced <= FORCED_PER_SECOND_MAX


class _Recorded:
    """A span that is recorded, and is the parent of spans inside of the block.

    `Tracer.start_as_current_span` would make it the current span of OpenTelemetry, too, which costs as much as the
    span itself; no code looks there.
    """

    __slots__ = ("_name", "_outside", "_parent", "_tracer", "span")

    def __init__(self, tracer: Tracer, name: str, parent: re.Match[str] | Span | None) -> None:
        self._tracer = tracer
        self._name = name
        self._parent = parent

    def __enter__(self) -> Span:
        from opentelemetry import trace
        from opentelemetry.context import Context

        parent, context = self._parent, Context()
        if isinstance(parent, re.Match):
            sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
            ids = int(parent[1], 16), int(parent[2], 16)
            remote = trace.SpanContext(*ids, is_remote=True, trace_flags=sampled)
            parent = trace.NonRecordingSpan(remote)
        if parent is not None:
            context = trace.set_span_in_context(parent, context)
        self.span = self._tracer.start_span(self._name, context)
        own = self.span.get_span_context()
        self._outside = (
            TRACEPARENT.set(f"00-{own.trace_id:032x}-{own.span_id:016x}-01"),
            _PARENT.set((self._tracer, self.span)),
        )
        return self.span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        traceparent, parent = self._outside
        TRACEPARENT.reset(traceparent)
        _PARENT.reset(parent)
        if isinstance(error, Exception):  # a cancelled call is no failure
            from opentelemetry.trace import StatusCode

            self.span.record_exception(error)
            self.span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
        self.span.end()


class RequestSpan:
    """The span of a client's request, from `Tracing.begin` to `end`."""

    __slots__ = ("_recorded", "_span", "span_id", "trace_id")

    def __init__(self, recorded: _Recorded) -> None:
        self._recorded = recorded
        self._span = recorded.__enter__()
        own = self._span.get_span_context()
        self.trace_id = f"{own.trace_id:032x}"
        self.span_id = f"{own.span_id:016x}"

    def end(self, name: str, attributes: Mapping[str, str | int]) -> None:
        """Ends the span, with the name and the attributes that are known by then."""
        self._span.update_name(name)
        self._span.set_attributes(attributes)
        self._recorded.__exit__(None, None, None)


class child_span:  # noqa: N801 - used like a function
    """A block that is a span of its own, if the request is sampled."""

    __slots__ = ("_name", "_recorded")

    def __init__(self, name: str) -> None:
        self._name = name
        self._recorded: _Recorded | None = None

    def __enter__(self) -> None:
        found = _PARENT.get()
        if found is not None:
            tracer, parent = found
            self._recorded = _Recorded(tracer, self._name, parent)
            self._recorded.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._recorded is not None:
            self._recorded.__exit__(kind, error, trace)
