"""What a failed request means: surely not applied, or unknown (docs/design/kv.md, "Unknown outcomes").

The list of what surely was not applied is short and closed; everything else may have been applied,
also what a later version of the server or the driver invents. (Error 0x1700, a compare-and-set of
unknown outcome, is such a case: the driver has no class for it.)
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
    """Too few replicas for one bucket of a batch of several: the others may have been written."""


_REFUSED = (
    RequestValidationException,  # syntax, types, permissions: refused before anything is done
    AuthenticationFailed,
)
_NOT_SENT = (
    # No connection took it: with the fall-through policy a request is never sent twice, so this
    # never hides a first attempt.
    NoHostAvailable,
    Unavailable,  # the coordinator counts the replicas before it asks any
    IsBootstrappingErrorMessage,
)


class Fate(enum.Enum):
    """What a failed write did."""

    NOT_APPLIED = "not applied, and never will be"
    UNKNOWN = "may have been applied, or may be later"


def fate_of(error: Exception) -> Fate:
    """What the write that failed with `error` did."""
    if isinstance(error, TarnError):
        return Fate.UNKNOWN if error.kind is Kind.UNKNOWN_OUTCOME else Fate.NOT_APPLIED
    if isinstance(error, (*_REFUSED, *_NOT_SENT)):
        return Fate.NOT_APPLIED
    return Fate.UNKNOWN


def is_answered(error: Exception) -> bool:
    """Whether a node said this, which therefore has ended its part of the request."""
    return isinstance(error, RequestExecutionException | ErrorMessage)


def is_transient(error: Exception) -> bool:
    """Whether the same request may do better in a moment.

    Not a failure of a replica: it fails again (a scan over too many tombstones, a full disk).
    """
    return not isinstance(error, (*_REFUSED, ReadFailure, WriteFailure, TarnError))


def read_error(error: Exception) -> TarnError:
    """A failed read, or a write that surely was not applied."""
    if isinstance(error, TarnError):
        return error
    if isinstance(error, _REFUSED):
        return TarnError(Kind.INTERNAL, Reason.INTERNAL, f"Cassandra refuses: {_text(error)}")
    hint = "; a partition may hold too many tombstones" if isinstance(error, ReadFailure) else ""
    text = f"Cassandra does not answer: {_text(error)}{hint}"
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)


def write_error(error: Exception) -> TarnError:
    """A failed write, by its fate."""
    if fate_of(error) is Fate.NOT_APPLIED:
        return read_error(error)
    return OutcomeUnknownError(_text(error))


def _text(error: Exception) -> str:
    code = f" (code {error.code:#06x})" if isinstance(error, ErrorMessage) else ""
    return f"{type(error).__name__}{code}: {error}"
