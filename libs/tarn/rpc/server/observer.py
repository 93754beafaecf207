"""Records every call: the canonical log line, its duration and its failure."""

from __future__ import annotations

import logging

import structlog

from tarn.core.clock import Clock
from tarn.core.errors import Kind, TarnError
from tarn.rpc.wire.call import Call
from tarn.telemetry.meters import Meters

__all__ = ["POLLED", "Observer"]

_OUR_FAULT = frozenset({Kind.CORRUPT, Kind.INTERNAL})

POLLED = frozenset({"/tarn.graveler.v1.CompactionService/GetCompactionPause"})
"""Methods that services call every few seconds, all the time: a line for each success would hide other lines."""


class Observer:
    """Records calls of one method: `rpc.duration` by method, `rpc.failed` by method and reason."""

    def __init__(self, method: str, meters: Meters, clock: Clock) -> None:
        self._method = method
        self._meters = meters
        self._clock = clock
        self._duration = meters.histogram("rpc.duration", method=method)
        # Bound once: structlog's lazy logger costs 3 µs per line, written or not.
        self._log = structlog.get_logger().bind(method=method)
        self._every_operation: bool = self._log.is_enabled_for(logging.DEBUG)

    def rpc(self, call: Call, code: str, error: TarnError | None, started: float) -> None:
        """Records a unary rpc: one line, at error level if the server is at fault, at debug level if it was polled."""
        seconds = self._measure(error, started)
        fields = _fields(call, error) | {"code": code, "duration_ms": round(seconds * 1000, 3)}
        if error is not None and error.kind in _OUR_FAULT:
            self._log.error("rpc", **fields)
        elif error is None and self._method in POLLED:
            self._log.debug("rpc", **fields)
        else:
            self._log.info("rpc", **fields)

    def operation(self, call: Call, error: TarnError | None, started: float) -> None:
        """Records an operation of a stream: a line only at debug level or if the server is at fault."""
        seconds = self._measure(error, started)
        if error is not None and error.kind in _OUR_FAULT:
            self._log.error("operation", **_fields(call, error))
        elif self._every_operation:
            self._log.debug(
                "operation", request_id=call.request_id, duration_ms=round(seconds * 1000, 3)
            )

    def _measure(self, error: TarnError | None, started: float) -> float:
        seconds = self._clock.monotonic() - started
        self._duration.record(seconds)
        if error is not None:
            reason = error.reason.value
            self._meters.counter("rpc.failed", method=self._method, reason=reason).add()
        return seconds


def _fields(call: Call, error: TarnError | None) -> dict[str, object]:
    fields: dict[str, object] = {"request_id": call.request_id}
    if error is not None:
        fields |= {"reason": error.reason.value, "error": error.message}
    return fields
