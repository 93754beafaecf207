"""Records S3 requests in the audit log (`tarn.telemetry.audit`): every write and delete, every refusal of a caller,
and reads if the log wants them.

A request is recorded once, when its answer was sent. DeleteObjects is recorded once for each key.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from tarn.core.access.actions import REPOSITORIES, Action, session_resource, user_resource
from tarn.telemetry.audit.log import AuditLog
from tarn.telemetry.audit.record import AuditRecord, Outcome
from tarn_gateway.http import Exchange, Request
from tarn_gateway.operation import COPY_SOURCE
from tarn_gateway.trace import Trace

__all__ = ["S3Audit"]

_REFUSALS: Final = frozenset({401, 403})
_REFUSALS_BY_CODE: Final = frozenset(
    {
        "AuthorizationHeaderMalformed",
        "AuthorizationQueryParametersError",
        "ExpiredToken",
        "InvalidToken",
    }
)
_NO_REFUSALS: Final = frozenset({"QuotaExceeded"})
_CHANGES: Final = (Action.WRITE_REPO, Action.WRITE_RULES, Action.MANAGE_SESSIONS)

_CREDENTIAL = re.compile(r"(?:Credential=|^AWS )([^/,:\s]{1,128})")
_CREDENTIAL_IN_QUERY = re.compile(rb"(?:X-Amz-Credential|AWSAccessKeyId)=([^%&/]{1,128})")


class S3Audit:
    """Records the requests of one gateway."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def ended(self, trace: Trace, exchange: Exchange) -> None:
        """Records a request that has ended, if it is to be recorded."""
        operation = trace.operation
        outcome = _outcome(trace.code, exchange.status)
        is_write = operation is not None and operation.action in _CHANGES
        is_read = operation is not None and not is_write
        if not (is_write or outcome is Outcome.DENIED or (is_read and self._log.reads)):
            return
        request = exchange.request
        details: dict[str, object] = {
            "status": exchange.status,
            "bytes_in": exchange.received_bytes,
        }
        if trace.view:
            details["bucket"] = trace.view
        if operation is None:
            details["method"] = request.method
            details["path"] = unquote(request.raw_path.decode("latin-1"), errors="replace")
        elif source := request.headers.text(COPY_SOURCE):
            details["copy_source"] = unquote(source, errors="replace").partition("?")[0]
        record = AuditRecord(
            self._log.now_us(),
            f"s3:{trace.operation_name or 'none'}",
            _resource(trace, is_write=is_write),
            outcome,
            trace.code,
            trace.user,
            trace.access_key_id or _named_key(request),
            request.remote_addr,
            request.request_id,
            "" if trace.span is None else trace.span.trace_id,
            details,
        )
        if not trace.outcomes or outcome is not Outcome.OK:
            self._log.add(record)
            return
        for resource, code in trace.outcomes:
            each = Outcome.OK
            if code:
                each = Outcome.DENIED if code == "AccessDenied" else Outcome.FAILED
            self._log.add(record.about(resource, each, code))


def _outcome(code: str, status: int) -> Outcome:
    if code in _REFUSALS_BY_CODE or (status in _REFUSALS and code not in _NO_REFUSALS):
        return Outcome.DENIED
    if 200 <= status < 400:
        # S3 reports some failures after the status was sent.
        return Outcome.FAILED if code else Outcome.OK
    # 500 and 503: graveler may have acted when its answer was lost. 0: the client has left. 501 comes before all acts.
    return Outcome.UNKNOWN if status == 0 or status in (500, 503) else Outcome.FAILED


def _resource(trace: Trace, *, is_write: bool) -> str:
    if trace.operation is None:
        return ""
    if trace.operation.action is Action.MANAGE_SESSIONS:
        return session_resource(trace.user, trace.session or "*") if trace.user else ""
    if trace.operation.action is Action.READ_USERS:
        return user_resource(trace.user)
    if not trace.repository:
        return REPOSITORIES
    resource = f"repository/{trace.repository}"
    if trace.ref:
        resource += f"/{'branch' if is_write else 'ref'}/{trace.ref}"
        if trace.path:
            resource += f"/object/{trace.path}"
    return resource


def _named_key(request: Request) -> str:
    """Returns the access key that a refused request names, which may be anything."""
    if found := _CREDENTIAL.search(request.headers.text("authorization")):
        return found[1]
    in_query = _CREDENTIAL_IN_QUERY.search(request.raw_query)
    return in_query[1].decode("latin-1") if in_query else ""
