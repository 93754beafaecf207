"""Records rpcs in the audit log (`tarn.telemetry.audit`): every call that may change something or that issues a
credential, every refusal of a caller, and reads if the log wants them.

Only calls that come over gRPC are recorded here. A call within the process serves a request that its own server has
recorded, such as an S3 request of the gateway.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import structlog
from google.protobuf.descriptor import Descriptor, ServiceDescriptor
from google.protobuf.message import Message

from tarn.core.errors import TarnError
from tarn.rpc.rules import OPERATION, Rule, rules_of
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.methods import Handle
from tarn.telemetry.audit.log import AuditLog
from tarn.telemetry.audit.note import NOTE, AuditNote
from tarn.telemetry.audit.record import AuditRecord, Outcome, outcome_of
from tarn.telemetry.tracing import trace_id

__all__ = ["DETAILS", "RpcAudit", "peer_address"]

DETAILS: Final = (
    "access_key_id",
    "allow_empty",
    "default_branch_id",
    "destination_ref",
    "duration_s",
    "expected_branch_id",
    "expected_commit_id",
    "fast_forward_only",
    "force",
    "kind",
    "mark_run_id",
    "name",
    "parent_number",
    "path",
    "prefix",
    "public_read",
    "read_only",
    "ref",
    "restore_id",
    "roles",
    "run_id",
    "service",
    "since_ref",
    "source_ref",
    "squash",
    "storage_namespace",
    "target_ref",
    "task_id",
    "upload_id",
    "user_id",
)
"""The fields of requests that a record tells, if they are set. All others, among them secrets, are left out."""

_RESULTS: Final = (
    ("commit", "commit_id"),
    ("credential", "access_key_id"),
    ("session_key", "access_key_id"),
)
"""The part of an answer that a record holds: a field of a message in it."""

_log = structlog.get_logger()


class RpcAudit:
    """Records the calls of one service."""

    def __init__(self, log: AuditLog, service: ServiceDescriptor) -> None:
        self._log = log
        self._rules = rules_of(service)

    def recorded(self, handle: Handle, name: str, source: str) -> Handle:
        """Returns a handler that records its calls when they end, also if their callers have left by then.

        Args:
            handle: does the work.
            name: of the rpc, or of the stream's operation; calls of an unknown one are not recorded.
            source: address of the peer.
        """
        rule = self._rules.get(name)
        if rule is None or (rule.read_only and rule.public_because):
            return handle  # a public read refuses no caller
        is_noted = self._log.reads or not rule.read_only or rule.issues_credential

        async def recorded(request: Message, call: Call) -> Message:
            note = AuditNote() if is_noted else None
            outside = NOTE.set(note)
            answer: Message | TarnError | None = None
            try:
                answer = await handle(request, call)
            except TarnError as error:
                answer = error
                raise
            finally:
                NOTE.reset(outside)
                if OPERATION in request.DESCRIPTOR.oneofs_by_name:
                    request = getattr(request, name)
                try:
                    self._ended(rule, note, request, call, source, answer)
                except Exception as error:  # noqa: BLE001 - a defect here must not fail the call
                    _log.error("call not recorded", rpc=rule.name, exc_info=error)
            return answer

        return recorded

    def _ended(
        self,
        rule: Rule,
        note: AuditNote | None,
        request: Message,
        call: Call,
        source: str,
        answer: Message | TarnError | None,
    ) -> None:
        """Records a call that has ended; `answer` is None if it was cancelled, or failed by a defect."""
        error = answer if isinstance(answer, TarnError) else None
        outcome = Outcome.UNKNOWN if answer is None else outcome_of(error)
        if note is None and outcome is not Outcome.DENIED:
            return
        refused = error.metadata if error is not None and outcome is Outcome.DENIED else {}
        principal = note.principal if note is not None else ""
        record = AuditRecord(
            self._log.now_us(),
            rule.name,
            refused.get("resource", "") or _resource(rule, request, note),
            outcome,
            "" if error is None else error.reason.value,
            principal or refused.get("user_id", ""),
            getattr(request, "access_key_id", ""),
            source,
            call.request_id,
            trace_id(),
            _details(request, answer),
        )
        self._add(record, note)

    def _add(self, record: AuditRecord, note: AuditNote | None) -> None:
        if note is None or not note.items or record.outcome is not Outcome.OK:
            self._log.add(record)
            return
        for resource, error in note.items:
            reason = "" if error is None else error.reason.value
            self._log.add(record.about(resource, outcome_of(error), reason))


def peer_address(peer: str) -> str:
    """Returns `host:port` of gRPC's name of a peer, such as `ipv4:127.0.0.1:5000`."""
    return peer.partition(":")[2] if peer.startswith(("ipv4:", "ipv6:")) else peer


def _resource(rule: Rule, request: Message, note: AuditNote | None) -> str:
    """Returns the resource that the rule names, or, if the request alone does not tell it, the one that the handler
    noted."""
    if rule.action is not None:
        try:
            return rule.resource.of(request)
        except (TarnError, AttributeError, TypeError):
            pass  # a name that is invalid, found by the handler, or repeated
    return note.resource if note is not None else ""


@cache
def _told(request: Descriptor) -> tuple[tuple[str, bool], ...]:
    fields = request.fields_by_name
    return tuple((name, fields[name].is_repeated) for name in DETAILS if name in fields)


def _details(request: Message, answer: Message | TarnError | None) -> dict[str, object]:
    details: dict[str, object] = {}
    for name, is_repeated in _told(request.DESCRIPTOR):
        if value := getattr(request, name):
            details[name] = list(value) if is_repeated else value
    if isinstance(answer, Message):
        for name, field in _RESULTS:
            if name in answer.DESCRIPTOR.fields_by_name:
                details[field] = getattr(getattr(answer, name), field)
    return details
