"""The log line, the metrics and the audit record of each request.

The line is written when the answer was handed to the socket. It never contains a header, a query or a body. A request
is audited if it may change something or if it was refused; reads if the log wants them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import structlog

from tarn.rpc.process.log import REQUEST_KEYS, LineLogger
from tarn.telemetry.audit.log import AuditLog
from tarn.telemetry.audit.record import AuditRecord, Outcome
from tarn.telemetry.meters import Counter, Meters
from tarn.telemetry.tracing import trace_id

__all__ = ["Trace", "Traces"]

_READS: Final = frozenset({"GET", "HEAD"})
_REF_NAMES: Final = ("branch", "ref", "sourceRef", "leftRef", "tag", "commitId")


_NAMED_BY_BODY: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "createRepository": ("repository", "name"),
        "createBranch": ("branch", "name"),
        "createTag": ("tag", "id"),
        "createUser": ("userId", "id"),
    }
)
"""What a request creates: the parameter that its path would have, and the field of its body."""


class Trace:
    """Facts about a request, each noted as soon as it is known.

    Attributes:
        operation: its `operationId`, or service and rpc; empty until the path was found.
        is_write: whether the request may change something.
        values: of the parameters in its path, and `path`.
        reason: of a failure; empty if there is none.
        outcome: of what was asked for; unknown until there is an answer.
        status: of the answer; 0: none was sent.
        is_transfer: whether it moves the bytes of an object.
        is_stream: whether it is answered by a stream of events, which has bounds of its own.
        bytes_in, bytes_out: of the bodies.
        charged: the repository whose rates count it; empty: none.
    """

    # Of the class, so that a request sets only what it has.
    operation = user = access_key_id = reason = charged = ""
    values: Mapping[str, str] = MappingProxyType({})
    outcome = Outcome.UNKNOWN
    status = bytes_in = bytes_out = 0
    is_transfer = is_stream = False

    def __init__(self, request_id: str, method: str, remote: str, started: float) -> None:
        self.request_id = request_id
        self.method = method
        self.remote = remote
        self.started = started
        self.is_write = method not in _READS

    def note_body(self, body: object) -> None:
        """Notes what a request creates, once its body was read."""
        if body is not None and self.operation in _NAMED_BY_BODY:
            parameter, name = _NAMED_BY_BODY[self.operation]
            self.values = {**self.values, parameter: getattr(body, name)}

    @property
    def ref(self) -> str:
        """The first ref that the path names; empty if it names none."""
        values = self.values
        for name in _REF_NAMES:
            if name in values:
                return values[name]
        return ""

    @property
    def resource(self) -> str:
        """What the request is about, as in `tarn.core.access.actions`."""
        values = self.values
        if "repository" not in values:
            return f"user/{values['userId']}" if "userId" in values else ""
        resource = f"repository/{values['repository']}"
        if "tag" in values:
            return f"{resource}/tag/{values['tag']}"
        if ref := self.ref:
            resource += f"/{'branch' if 'branch' in values else 'ref'}/{ref}"
        return f"{resource}/object/{values['path']}" if values.get("path") else resource


class _OperationMeters:
    """The metrics of one operation, found by one look-up for each request."""

    __slots__ = ("duration", "requests")

    def __init__(self, name: str, meters: Meters) -> None:
        self.duration = meters.histogram("api.duration", operation=name)
        # By status.
        self.requests: dict[int, Counter] = {}


class Traces:
    """Records requests that have ended.

    Args:
        meters: counts them.
        access_log: whether successful requests are logged; server errors always are.
        audit: None: nothing is audited.
    """

    def __init__(self, meters: Meters, audit: AuditLog | None, *, access_log: bool) -> None:
        log = structlog.get_logger().bind()
        self._access_log = access_log and log.is_enabled_for(logging.INFO)
        self._failures = log.is_enabled_for(logging.WARNING)
        self._lines = LineLogger.bound().lines_of("api", *REQUEST_KEYS)
        self._meters = meters
        self._audit = audit
        self._by_operation: dict[str, _OperationMeters] = {}
        self._received = meters.counter("api.received")
        self._sent = meters.counter("api.sent")

    def end(self, trace: Trace, seconds: float) -> None:
        """Records a request that took so long."""
        self._count(trace, seconds)
        if self._audit is not None:
            self._record(self._audit, trace)
        failed = trace.status >= 500 or not trace.status
        if not (self._failures if failed else self._access_log):
            return
        self._lines.write(
            "warning" if failed else "info",
            trace.operation,
            trace.method,
            trace.values.get("repository", ""),
            trace.ref,
            trace.values.get("path", ""),
            trace.user,
            trace.reason or "OK",
            trace.status,
            int(seconds * 1e6) / 1000,
            trace.request_id,
            trace.bytes_in,
            trace.bytes_out,
            trace.remote,
        )

    def _count(self, trace: Trace, seconds: float) -> None:
        operation = trace.operation or "none"
        found = self._by_operation.get(operation)
        if found is None:
            found = self._by_operation[operation] = _OperationMeters(operation, self._meters)
        counter = found.requests.get(trace.status)
        if counter is None:
            counter = found.requests[trace.status] = self._meters.counter(
                "api.requests", operation=operation, status=str(trace.status)
            )
        counter.value += 1
        self._received.value += trace.bytes_in
        self._sent.value += trace.bytes_out
        found.duration.record(seconds)

    @staticmethod
    def _record(audit: AuditLog, trace: Trace) -> None:
        is_refused = trace.status in (401, 403)
        if not (is_refused or audit.reads or trace.is_write):
            return
        if not trace.operation and not is_refused:
            return  # it asked for nothing that there is
        outcome = Outcome.DENIED if is_refused else trace.outcome
        audit.add(
            AuditRecord(
                audit.now_us(),
                f"api:{trace.operation}",
                trace.resource,
                outcome,
                trace.reason,
                trace.user,
                trace.access_key_id,
                trace.remote,
                trace.request_id,
                trace_id(),
            )
        )
