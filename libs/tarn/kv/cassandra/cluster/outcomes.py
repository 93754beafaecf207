"""The meaning of a failed request: not applied, or unknown outcome (docs/design/kv.md, "Unknown outcomes").

The list of errors that prove "not applied" is short and closed. Any other error may have been applied, also
errors that a later version of the server or the driver adds. (Error 0x1700, a compare-and-set of unknown
outcome, is an example: the driver has no class for it.)
"""

from __future__ import annotations

import enum

from cassandra import (
    AuthenticationFailed,
    ReadFailure,
    RequestExecutionException,
    RequestValidationException,
    Unavailable,
    WriteFailure,
)
from cassandra.cluster import NoHostAvailable
from cassandra.protocol import ErrorMessage, IsBootstrappingErrorMessage

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import OutcomeUnknownError

__all__ = [
    "Fate",
    "PartlyAppliedError",
    "fate_of",
    "is_answered",
    "is_transient",
    "read_error",
    "write_error",
]


class PartlyAppliedError(Exception):
    """In a batch of several buckets, one bucket had too few replicas; the others may have been written."""


_REFUSED = (
    RequestValidationException,  # syntax, types, permissions: refused before anything is done
    AuthenticationFailed,
)
_NOT_SENT = (
    # No connection accepted it. With the fall-through policy a request is never sent twice, so this
    # error never hides a first attempt.
    NoHostAvailable,
    Unavailable,  # the coordinator counts the live replicas before it asks any
    IsBootstrappingErrorMessage,
)


class Fate(enum.Enum):
    """The effect of a failed write."""

    NOT_APPLIED = "not applied, and never will be"
    UNKNOWN = "may have been applied, or may be later"


def fate_of(error: Exception) -> Fate:
    """The effect of the write that failed with `error`."""
    if isinstance(error, TarnError):
        return Fate.UNKNOWN if error.kind is Kind.UNKNOWN_OUTCOME else Fate.NOT_APPLIED
    if isinstance(error, (*_REFUSED, *_NOT_SENT)):
        return Fate.NOT_APPLIED
    return Fate.UNKNOWN


def is_answered(error: Exception) -> bool:
    """Whether a node returned this error; the node has then finished its part of the request."""
    return isinstance(error, RequestExecutionException | ErrorMessage)


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed a moment later.

    False for the failure of a replica, which will repeat (a scan over too many tombstones, a full disk).
    """
    return not isinstance(error, (*_REFUSED, ReadFailure, WriteFailure, TarnError))


def read_error(error: Exception) -> TarnError:
    """The error for a failed read, or for a write that was certainly not applied."""
    if isinstance(error, TarnError):
        return error
    if isinstance(error, _REFUSED):
        return TarnError(Kind.INTERNAL, Reason.INTERNAL, f"Cassandra refuses: {_text(error)}")
    hint = "; a partition may hold too many tombstones" if isinstance(error, ReadFailure) else ""
    text = f"Cassandra does not answer: {_text(error)}{hint}"
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)


def write_error(error: Exception) -> TarnError:
    """The error for a failed write, according to its fate."""
    if fate_of(error) is Fate.NOT_APPLIED:
        return read_error(error)
    return OutcomeUnknownError(_text(error))


def _text(error: Exception) -> str:
    code = f" (code {error.code:#06x})" if isinstance(error, ErrorMessage) else ""
    return f"{type(error).__name__}{code}: {error}"
