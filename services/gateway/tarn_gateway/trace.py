"""The access log: one canonical line per request, and the facts collected for it while the request is served.

The line is written after the last byte was handed to the socket, so its sizes and times are final. It
never contains a header or the query, which is a secret in a presigned URL.
"""

from __future__ import annotations

import logging

import structlog

from tarn.rpc.process.log import LineLogger
from tarn_gateway.http import Exchange, Request
from tarn_gateway.operation import Operation

__all__ = ["Trace", "Traces"]


class Trace:
    """Facts about a request, each recorded as soon as the handler knows it."""

    __slots__ = ("code", "operation", "path", "ref", "repository", "user")

    def __init__(self) -> None:
        self.operation: Operation | None = None
        self.repository = ""
        self.ref = ""
        self.path = ""
        self.user = ""
        self.code = ""

    @property
    def operation_name(self) -> str:
        """The operation's name; empty until the router has determined it."""
        return "" if self.operation is None else self.operation.name


class Traces:
    """The requests being served, and their log lines.

    Args:
        access_log: whether successful requests are logged; server errors always are.
    """

    def __init__(self, *, access_log: bool) -> None:
        log = structlog.get_logger().bind()
        self._access_log = access_log and log.is_enabled_for(logging.INFO)
        self._failures = log.is_enabled_for(logging.WARNING)
        self._lines = LineLogger.bound()
        self._open: dict[str, Trace] = {}

    def begin(self, request: Request) -> Trace:
        """Creates the trace of a request; it is kept until `end`."""
        trace = self._open[request.request_id] = Trace()
        return trace

    def of(self, request: Request) -> Trace:
        """Returns the trace of a request; an empty one if no handler received the request."""
        return self._open.get(request.request_id) or Trace()

    def end(self, exchange: Exchange) -> None:
        """Writes the log line; this is the observer of the HTTP server."""
        request = exchange.request
        trace = self._open.pop(request.request_id, None) or Trace()
        failed = exchange.status >= 500
        if not (self._failures if failed else self._access_log):
            return
        values = {
            "operation": trace.operation_name,
            "method": request.method,
            "repo": trace.repository,
            "ref": trace.ref,
            "path": trace.path,
            "user": trace.user,
            "code": trace.code or "OK",
            "status": exchange.status,
            "duration_ms": round(exchange.seconds * 1000, 3),
            "request_id": request.request_id,
            "bytes_in": exchange.received_bytes,
            "bytes_out": exchange.sent_bytes,
            "remote": request.remote_addr,
        }
        self._lines.write("warning" if failed else "info", "s3", values)
