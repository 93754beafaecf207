"""The spans of sampled requests, as the SDK's exporters take them.

`Tracer.start_span` of the SDK takes some 25 µs for each span: it asks a sampler, checks limits, and copies attributes
under a lock. Our spans are decided on already, and have few attributes, so they are made when they end, in some 5 µs.
Their processors and exporters are those of the SDK (docs/design/hot-path.md, "Telemetry").
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

__all__ = ["RunningSpan", "SpanSink"]

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_SCOPE: Final = InstrumentationScope("tarn")
_UNSET: Final = Status(StatusCode.UNSET)


class SpanSink:
    """Begins spans, and hands those that end to a processor.

    Args:
        processor: of the SDK, such as a `BatchSpanProcessor`.
        resource: describes this process.
        rng: makes the ids.
    """

    def __init__(self, processor: SpanProcessor, resource: Resource, rng: random.Random) -> None:
        self._end = processor.on_end
        self._resource = resource
        # A system's source of randomness costs a system call for each number.
        self._bits = random.Random(rng.random()).getrandbits  # noqa: S311 - ids of traces are no secrets

    def begin(self, name: str, parent: SpanContext | None = None) -> RunningSpan:
        """Begins a span, of a new trace if it has no parent."""
        trace_id = self._id(128) if parent is None else parent.trace_id
        context = SpanContext(trace_id, self._id(64), is_remote=False, trace_flags=_SAMPLED)
        return RunningSpan(self, name, context, parent)

    def remote(self, trace_id: str, span_id: str) -> SpanContext:
        """Returns the context of another process's span, from the hex digits of its ids."""
        ids = int(trace_id, 16), int(span_id, 16)
        return SpanContext(*ids, is_remote=True, trace_flags=_SAMPLED)

    def _id(self, bits: int) -> int:
        while not (found := self._bits(bits)):
            pass  # 0 is no valid id
        return found

    def ended(self, span: RunningSpan, status: Status, events: tuple[Event, ...]) -> None:
        """Hands a span on."""
        self._end(
            ReadableSpan(
                span.name,
                span.context,
                span.parent,
                self._resource,
                span.attributes,
                events,
                status=status,
                start_time=span.start_ns,
                end_time=time.time_ns(),
                instrumentation_scope=_SCOPE,
            )
        )


class RunningSpan:
    """A span that has not ended.

    Attributes:
        name: may change until the end.
        context: its ids.
        parent: the span around it; None: it is the first of its trace.
        attributes: may change until the end.
        start_ns: nanoseconds since the epoch.
    """

    __slots__ = ("_sink", "attributes", "context", "name", "parent", "start_ns")

    def __init__(
        self, sink: SpanSink, name: str, context: SpanContext, parent: SpanContext | None
    ) -> None:
        self._sink = sink
        self.name = name
        self.context = context
        self.parent = parent
        self.attributes: Mapping[str, str | int] = {}
        self.start_ns = time.time_ns()

    def child(self, name: str) -> RunningSpan:
        """Begins a span inside of this one."""
        return self._sink.begin(name, self.context)

    def end(self, error: Exception | None = None) -> None:
        """Ends the span; `error` is the one that its work raised."""
        if error is None:
            self._sink.ended(self, _UNSET, ())
            return
        kind = type(error).__name__
        event = Event("exception", {"exception.type": kind, "exception.message": str(error)})
        status = Status(StatusCode.ERROR, f"{kind}: {error}")
        self._sink.ended(self, status, (event,))
