"""The access log and the metrics of requests, and their records in the audit log.

The line is written after the last byte was handed to the socket, so its sizes and times are final. It
never contains a header or the query, which is a secret in a presigned URL.
"""

from __future__ import annotations

import logging
from math import inf
from operator import add, sub

import structlog

from tarn.core.clock import Clock
from tarn.core.quota import RATES, QuotaKind
from tarn.gate.rates import RateLimits
from tarn.rpc.process.log import REQUEST_KEYS, LineLogger
from tarn.telemetry.audit.log import AuditLog
from tarn.telemetry.meters import Counter, Exemplar, Histogram, Meters
from tarn.telemetry.tracing import RequestSpan, Tracing
from tarn_gateway.auditing import S3Audit
from tarn_gateway.http import Exchange, Request
from tarn_gateway.operation import Operation
from tarn_gateway.tenants import THROTTLED, Tenants
from tarn_gateway.trace import Trace

__all__ = ["Traces"]

_COUNTED_TOGETHER = 256
"""Requests that are put aside until they are counted. Columns of equal requests cost a third of one after the other."""


_Key = tuple[Operation | None, str, str, int]
"""Requests with the same operation, repository, user and status are counted together."""

_Values = tuple[float, float, float, float, int, int]
"""Of a request: seconds, those in the queue and of its phases `auth` and `perform`; bytes received and sent.

Numbers instead of the request itself, whose memory the next one takes while it is in the processor's cache."""


class _OperationMeters:
    """The metrics of one operation, found by one look-up for each request."""

    __slots__ = ("auth", "duration", "name", "perform", "requests", "send")

    def __init__(self, name: str, meters: Meters) -> None:
        self.name = name
        self.duration: Histogram = meters.histogram("gateway.duration", operation=name)
        self.auth = meters.histogram("gateway.phase", operation=name, phase="auth")
        self.perform = meters.histogram("gateway.phase", operation=name, phase="perform")
        self.send = meters.histogram("gateway.phase", operation=name, phase="send")
        self.requests: dict[int, Counter] = {}

    def count(self) -> None:
        """Counts the values that wait."""
        for histogram in (self.duration, self.auth, self.perform, self.send):
            histogram.count_waiting()


class Traces:
    """The requests being served, their log lines and their metrics.

    Args:
        access_log: whether successful requests are logged; server errors always are.
        meters: counts requests by operation; None: only for tests.
        slow_s: a request that takes longer is logged with its phases.
        tracing: makes the spans of sampled requests; None: of none.
        clock: the times of exemplars; only with `tracing`.
        rates: are charged with the bytes of each request; None: none are limited.
        audit: records requests; None: nothing does.
    """

    def __init__(
        self,
        *,
        access_log: bool,
        meters: Meters | None = None,
        slow_s: float = inf,
        tracing: Tracing | None = None,
        clock: Clock | None = None,
        rates: RateLimits | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        log = structlog.get_logger().bind()
        self._access_log = access_log and log.is_enabled_for(logging.INFO)
        self._failures = log.is_enabled_for(logging.WARNING)
        self._lines = LineLogger.bound()
        self._access = self._lines.lines_of("s3", *REQUEST_KEYS)
        self._open: dict[str, Trace] = {}
        self._slow_s = slow_s
        self._tracing = tracing if tracing is not None and tracing.is_on else None
        self._clock = clock
        self._rates = rates
        self._audit = None if audit is None else S3Audit(audit)
        self._meters = meters = meters or Meters()
        # Operations are compared by identity, so the look-up is cheap.
        self._by_operation: dict[Operation | None, _OperationMeters] = {}
        self._received = meters.counter("gateway.received")
        self._sent = meters.counter("gateway.sent")
        self._delete_keys = meters.histogram("gateway.delete_keys")
        self._repositories = Tenants(meters, "repository")
        self._users = Tenants(meters, "user")
        self._ended: list[tuple[_Key, _Values]] = []
        self._throttled = {
            (kind, limit): meters.counter("gateway.throttled", kind=kind.value, limit=limit)
            for kind in QuotaKind
            for limit in RATES
        }
        meters.sample("gateway.in_flight", lambda: len(self._open))
        meters.before_collecting(self._count_ended)

    def begin(self, request: Request) -> Trace:
        """Creates the trace of a request; it is kept until `end`."""
        trace = self._open[request.request_id] = Trace()
        if self._tracing is not None:
            traceparent = request.headers.get("traceparent", "")
            if traceparent:
                trace.span = self._tracing.begin("S3", traceparent)
            elif self._tracing.chance() < self._tracing.ratio:
                trace.span = self._tracing.begin("S3", "", is_drawn=True)
        return trace

    def of(self, request: Request) -> Trace:
        """Returns the trace of a request; an empty one if no handler received the request."""
        return self._open.get(request.request_id) or Trace()

    def end(self, exchange: Exchange) -> None:
        """Counts the request and writes its log line; this is the observer of the HTTP server."""
        request = exchange.request
        trace = self._open.pop(request.request_id, None) or Trace()
        if trace.on_end is not None:
            trace.on_end()
        status = exchange.status
        if trace.throttled_by is not None and status:
            self._throttled[trace.throttled_by].value += 1
            status = THROTTLED
        self._ended.append(
            (
                (trace.operation, trace.repository, trace.user, status),
                (
                    exchange.seconds,
                    trace.queue_s,
                    trace.auth_s,
                    trace.perform_s,
                    exchange.received_bytes,
                    exchange.sent_bytes,
                ),
            )
        )
        if trace.outcomes:
            self._delete_keys.record(len(trace.outcomes))
        if len(self._ended) >= _COUNTED_TOGETHER:
            self._count_ended()
        if self._rates is not None and self._rates.is_on and trace.operation is not None:
            moved = exchange.received_bytes + exchange.sent_bytes
            self._rates.charge(trace.user, trace.repository, moved)
        if exchange.seconds > self._slow_s and self._failures:
            self._log_slow(trace, exchange)
        try:
            if self._audit is not None:
                self._audit.ended(trace, exchange)
            self._log_access(trace, exchange)
        finally:
            if trace.span is not None:
                self._end_span(trace, trace.span, exchange)

    def _log_access(self, trace: Trace, exchange: Exchange) -> None:
        request = exchange.request
        failed = exchange.status >= 500
        if not (self._failures if failed else self._access_log):
            return
        self._access.write(
            "warning" if failed else "info",
            "" if trace.operation is None else trace.operation.name,
            request.method,
            trace.repository,
            trace.ref,
            trace.path,
            trace.user,
            trace.code or "OK",
            exchange.status,
            int(exchange.seconds * 1e6) / 1000,
            request.request_id,
            exchange.received_bytes,
            exchange.sent_bytes,
            request.remote_addr,
        )

    def _end_span(self, trace: Trace, span: RequestSpan, exchange: Exchange) -> None:
        """Ends the span, and makes the request the exemplar of its bucket."""
        if self._clock is not None:
            found = self._by_operation.get(trace.operation) or self._meters_of(trace.operation)
            now_us = self._clock.now_us()
            found.duration.exemplify(
                Exemplar(span.trace_id, span.span_id, exchange.seconds, now_us)
            )
        attributes: dict[str, str | int] = {
            "http.request.method": exchange.request.method,
            "http.response.status_code": exchange.status,
            "tarn.request_id": exchange.request.request_id,
            "tarn.repository": trace.repository,
            "tarn.ref": trace.ref,
        }
        span.end(f"S3 {trace.operation_name or 'refused'}", attributes)

    def _log_slow(self, trace: Trace, exchange: Exchange) -> None:
        values = {
            "operation": trace.operation_name,
            "repo": trace.repository,
            "ref": trace.ref,
            "path": trace.path,
            "status": exchange.status,
            "duration_ms": round(exchange.seconds * 1000, 1),
            "queue_ms": round(trace.queue_s * 1000, 1),
            "auth_ms": round(trace.auth_s * 1000, 1),
            "perform_ms": round(trace.perform_s * 1000, 1),
            "send_ms": round(
                (exchange.seconds - trace.queue_s - trace.auth_s - trace.perform_s) * 1000, 1
            ),
            "bytes_in": exchange.received_bytes,
            "bytes_out": exchange.sent_bytes,
            "request_id": exchange.request.request_id,
        }
        self._lines.write("warning", "slow operation", values)

    def _count_ended(self) -> None:
        """Counts the requests that were put aside."""
        ended, self._ended = self._ended, []
        groups: dict[_Key, list[_Values]] = {}
        for key, values in ended:
            same = groups.get(key)
            if same is None:
                groups[key] = [values]
            else:
                same.append(values)
        touched: set[_OperationMeters] = set()
        for (operation, repository, user, status), rows in groups.items():
            found = self._by_operation.get(operation) or self._meters_of(operation)
            touched.add(found)
            seconds, queue_s, auth_s, perform_s, received, sent = zip(*rows, strict=True)
            found.duration.waiting += seconds
            if operation is not None:
                found.auth.waiting += auth_s
                found.perform.waiting += perform_s
                known = map(add, queue_s, map(add, auth_s, perform_s))
                found.send.waiting += map(sub, seconds, known)
            requests = found.requests.get(status) or self._requests_of(found, status)
            count, received_bytes, sent_bytes = len(rows), sum(received), sum(sent)
            requests.value += count
            self._received.value += received_bytes
            self._sent.value += sent_bytes
            self._repositories.count(repository, status, count, received_bytes, sent_bytes)
            self._users.count(user, status, count, received_bytes, sent_bytes)
        for found in touched:
            found.count()

    def _meters_of(self, operation: Operation | None) -> _OperationMeters:
        name = "none" if operation is None else operation.name
        made = self._by_operation[operation] = _OperationMeters(name, self._meters)
        return made

    def _requests_of(self, found: _OperationMeters, status: int) -> Counter:
        shown = str(abs(status))  # a throttled one has the status that was sent, too
        made = found.requests[status] = self._meters.counter(
            "gateway.requests", operation=found.name, status=shown
        )
        return made
