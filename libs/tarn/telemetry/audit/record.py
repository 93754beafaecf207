"""One record of the audit log, and its form: a line of JSON whose keys are documented and stable.

A line contains no secret: no header, no query, no body, and of an rpc only the fields that `DETAILS` lists.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from tarn.core.errors import Kind, TarnError

__all__ = ["VERSION", "AuditRecord", "Outcome", "line_of", "outcome_of"]

VERSION: Final = 1
"""The value of the key `audit`, by which log shippers know the lines. New keys do not change it."""

_RESOURCE_CHARS_MAX: Final = 2048
_TEXT_CHARS_MAX: Final = 256
_ITEMS_MAX: Final = 10
"""Limits of a line, which stays below 16 KiB: container runtimes split longer lines. A path has at most 1,024 bytes."""

_DENIED: Final = frozenset({Kind.DENIED, Kind.UNAUTHENTICATED})


class Outcome(enum.StrEnum):
    """How an operation ended."""

    OK = "ok"
    DENIED = "denied"
    """Refused: the caller is unknown, or not allowed."""
    FAILED = "failed"
    """Failed for another reason; it had no effect."""
    UNKNOWN = "unknown"
    """It may or may not take effect: the caller left, time ran out, or the store did not answer."""


def outcome_of(error: TarnError | None) -> Outcome:
    """Returns the outcome of a call that ended with this error; None: without one."""
    if error is None:
        return Outcome.OK
    if error.kind in _DENIED:
        return Outcome.DENIED
    return Outcome.UNKNOWN if error.kind is Kind.UNKNOWN_OUTCOME else Outcome.FAILED


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One operation.

    Attributes:
        time_us: its end, microseconds since the epoch.
        operation: `s3:` and the S3 operation, or the rpc, such as `BranchService.CreateBranch`.
        resource: as in `tarn.core.access.actions`; empty if it is not known.
        outcome: see `Outcome`.
        reason: the error code of S3 or the reason of the error; empty if there is none.
        principal: the user whose identity was verified; empty for none.
        access_key_id: as the request names it, verified only if there is a principal; empty if it names none.
        source: address of the peer that sent the request, `host:port`.
        request_id: the request in every log line and error.
        trace_id: 32 hex digits if the request is traced, else empty.
        details: further facts.
    """

    time_us: int
    operation: str
    resource: str
    outcome: Outcome
    reason: str
    principal: str
    access_key_id: str
    source: str
    request_id: str
    trace_id: str = ""
    details: Mapping[str, object] = field(default_factory=dict)

    def about(self, resource: str, outcome: Outcome, reason: str) -> AuditRecord:
        """Returns the record of one of several resources of the same operation."""
        return replace(self, resource=resource, outcome=outcome, reason=reason)


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def line_of(service: str, record: AuditRecord) -> str:
    """Returns the line of a record, with its line feed.

    Args:
        service: the process that writes it, such as `gateway`.
        record: long texts are cut; lone surrogates are replaced.
    """
    seconds, micros = divmod(record.time_us, 1_000_000)
    line: dict[str, object] = {
        "audit": VERSION,
        "time": f"{_second(seconds)}.{micros:06d}Z",
        "service": service,
        "operation": record.operation,
        "resource": _text(record.resource, _RESOURCE_CHARS_MAX),
        "outcome": record.outcome.value,
        "reason": record.reason,
        "principal": _text(record.principal),
        "access_key_id": _text(record.access_key_id),
        "source": record.source,
        "request_id": record.request_id,
        "trace_id": record.trace_id,
    }
    if record.details:
        line["details"] = {name: _short(value) for name, value in record.details.items()}
    return _encode(line) + "\n"


def _short(value: object) -> object:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, list | tuple):
        return [_text(str(each)) for each in value[:_ITEMS_MAX]]
    return _text(str(value))


def _text(text: str, chars_max: int = _TEXT_CHARS_MAX) -> str:
    text = text[:chars_max]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
