"""Traces that cost almost nothing for requests that are not sampled.

Sampling is decided here, before a span is made (`tarn.telemetry.spans`): by an incoming sampled `traceparent`, or by a
ratio. Without an exporter (`tarn.telemetry.exporting`) the OpenTelemetry SDK is not even imported.

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
    from opentelemetry.trace import SpanContext

    from tarn.telemetry.spans import RunningSpan, SpanSink

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

_PARENT: ContextVar[RunningSpan | None] = ContextVar("tarn_parent_span", default=None)
"""The span in `TRACEPARENT`."""

_SAMPLED = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f][13579bdf]")


def trace_id() -> str:
    """Returns the id of the sampled trace that this task works for, 32 hex digits; empty if there is none."""
    return TRACEPARENT.get()[3:35]


class Tracing:
    """Decides which requests are traced, and traces those.

    Args:
        sink: gets the spans; None to trace nothing.
        ratio: traced fraction of the requests without a sampled parent, 0 to 1.
        rng: seeds the sample.
        now: monotonic time in seconds, for the bound of forced traces.

    Attributes:
        chance: draws a number from 0 to 1; a request is traced if it is less than `ratio`.
    """

    def __init__(
        self,
        sink: SpanSink | None,
        ratio: float,
        rng: random.Random,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink = sink
        self.ratio = ratio
        # A system's source of randomness costs a system call for each number.
        self.chance = random.Random(rng.random()).random  # noqa: S311 - a sample is no secret
        self._now = now
        self._second = 0
        self._forced = 0

    @property
    def is_on(self) -> bool:
        """Whether any request may be traced."""
        return self._sink is not None

    @contextmanager
    def span(self, name: str, traceparent: str = "") -> Iterator[None]:
        """Traces the block if its request is sampled; for calls of other services.

        Args:
            name: constant, such as the path of an rpc.
            traceparent: the request's header, or empty.
        """
        parent = _SAMPLED.fullmatch(traceparent) if traceparent else None
        if self._sink is None or (parent is None and self.chance() >= self.ratio):
            yield
            return
        with _Recorded(self._sink.begin(name, _context(self._sink, parent))):
            yield

    def begin(self, name: str, traceparent: str, *, is_drawn: bool = False) -> RequestSpan | None:
        """Begins the span of a client's request; returns None if it is not sampled.

        `is_drawn` says that the caller has drawn already: the hottest path saves this call.

        The span ends by `RequestSpan.end`, in the same task. A client can have only some requests traced by its
        header, because each one costs time.
        """
        if self._sink is None:
            return None
        parent = _SAMPLED.fullmatch(traceparent) if traceparent else None
        is_forced = parent is not None and self._may_force()
        if not (is_drawn or is_forced) and self.chance() >= self.ratio:
            return None
        return RequestSpan(self._sink.begin(name, _context(self._sink, parent)))

    def _may_force(self) -> bool:
        second = int(self._now())
        if second != self._second:
            self._second, self._forced = second, 0
        self._forced += 1
        return self._forced <= FORCED_PER_SECOND_MAX


def _context(sink: SpanSink, parent: re.Match[str] | None) -> SpanContext | None:
    return None if parent is None else sink.remote(parent[1], parent[2])


class _Recorded:
    """A block that is a span, and the parent of spans inside of it."""

    __slots__ = ("_outside", "_span")

    def __init__(self, span: RunningSpan) -> None:
        self._span = span

    def __enter__(self) -> None:
        own = self._span.context
        self._outside = (
            TRACEPARENT.set(f"00-{own.trace_id:032x}-{own.span_id:016x}-01"),
            _PARENT.set(self._span),
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        traceparent, parent = self._outside
        TRACEPARENT.reset(traceparent)
        _PARENT.reset(parent)
        # A cancelled call is no failure.
        self._span.end(error if isinstance(error, Exception) else None)


class RequestSpan:
    """The span of a client's request, from `Tracing.begin` to `end`."""

    __slots__ = ("_recorded", "_span", "span_id", "trace_id")

    def __init__(self, span: RunningSpan) -> None:
        self._span = span
        self._recorded = _Recorded(span)
        self._recorded.__enter__()
        self.trace_id = f"{span.context.trace_id:032x}"
        self.span_id = f"{span.context.span_id:016x}"

    @property
    def traceresponse(self) -> str:
        """The value of the header that tells the client its trace (W3C Trace Context Level 2)."""
        return f"00-{self.trace_id}-{self.span_id}-01"

    def end(self, name: str, attributes: Mapping[str, str | int]) -> None:
        """Ends the span, with the name and the attributes that are known by then."""
        self._span.name = name
        self._span.attributes = attributes
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
            self._recorded = _Recorded(found.child(self._name))
            self._recorded.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._recorded is not None:
            self._recorded.__exit__(kind, error, trace)
