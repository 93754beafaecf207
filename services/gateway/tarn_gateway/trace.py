"""The access log: one canonical line per request, and what is known for it while the request is served.

The line is written when the last byte was handed to the socket, so that it has true sizes and times. It
never holds the query, which is a secret in a presigned URL, nor a header.
"""

from __future__ import annotations

import logging

import structlog

from tarn.rpc.process.log import LineLogger
from tarn_gateway.http import Exchange, Request
from tarn_gateway.operation import Operation

__all__ = ["Trace", "Traces"]


class Trace:
    """What the handler finds out about a request, each as soon as it is known."""

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
        """Empty until the router has named it."""
        return "" if self.operation is None else self.operation.name


class Traces:
    """The requests that are being served, and their lines.

    Args:
        access_log: whether requests that went well are logged; failures of ours always are.
    """

    def __init__(self, *, access_log: bool) -> None:
        log = structlog.get_logger().bind()
        self._access_log = access_log and log.is_enabled_for(logging.INFO)
        self._failures = log.is_enabled_for(logging.WARNING)
        self._lines = LineLogger.bound()
        self._open: dict[str, Trace] = {}

    def begin(self, request: Request) -> Trace:
        """The trace of a request, until `end` has its exchange."""
        trace = self._open[request.request_id] = Trace()
        return trace

    def of(self, request: Request) -> Trace:
        """The trace that was begun; an empty one for a request that no handler saw."""
        return self._open.get(request.request_id) or Trace()

    def end(self, exchange: Exchange) -> None:
        """Writes the line; the observer of the HTTP server."""
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
