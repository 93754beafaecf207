"""The trace of the program that uses `tarn.client`: calls carry its current span of OpenTelemetry.

OpenTelemetry is not imported here. A program without it has no span, and then this costs one look into a dictionary.
"""

from __future__ import annotations

import sys
from contextvars import Token
from types import TracebackType

from tarn.telemetry.tracing import TRACEPARENT

__all__ = ["callers_trace"]


class callers_trace:  # noqa: N801 - used like a function
    """A block whose calls carry the trace context of the caller's current span, if it has one.

    A context that is set already stays, so the services' own calls are not changed.
    """

    __slots__ = ("_outside",)

    def __init__(self) -> None:
        self._outside: Token[str] | None = None

    def __enter__(self) -> None:
        if not TRACEPARENT.get() and (found := _current()):
            self._outside = TRACEPARENT.set(found)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._outside is not None:
            TRACEPARENT.reset(self._outside)


def _current() -> str:
    """Returns the W3C trace context of the current span; empty if there is none."""
    if "opentelemetry.trace" not in sys.modules:
        return ""
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
