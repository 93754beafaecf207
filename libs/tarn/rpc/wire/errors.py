"""Encodes a `TarnError` for the wire and decodes it, for unary calls and for single operations.

A failed unary call carries the error's kind as the gRPC status code and, in the trailer `tarn-error-bin`,
a serialised `OperationError` (AIP-193's ErrorInfo without a further dependency). An operation of a
coalesced stream carries the same message in its result. In both cases the caller gets kind, reason and
metadata exactly as they were raised.
"""

from __future__ import annotations

from collections.abc import Iterable

import grpc
from google.protobuf.message import DecodeError

from tarn.core.errors import Kind, Reason, TarnError
from tarn_proto.common.v1.operation_pb2 import OperationError

__all__ = [
    "ERROR_TRAILER",
    "code_of",
    "deadline_error",
    "error_from_operation",
    "error_from_trailers",
    "error_to_operation",
    "internal_error",
    "kind_of",
    "overload_error",
    "trailers_of",
    "unavailable_error",
    "unknown_outcome_error",
]

ERROR_TRAILER = "tarn-error-bin"

_TRAILER_BYTES_MAX = 4096
"""Limit on the trailer. gRPC refuses header blocks above 8 KiB; the status text and other headers count too."""

_TEXT_CHARS_MAX = 1024

_CODES = {
    Kind.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Kind.ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Kind.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Kind.DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Kind.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Kind.CONFLICT: grpc.StatusCode.ABORTED,
    Kind.FAILED_PRECONDITION: grpc.StatusCode.FAILED_PRECONDITION,
    Kind.EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Kind.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Kind.DEADLINE: grpc.StatusCode.DEADLINE_EXCEEDED,
    Kind.UNKNOWN_OUTCOME: grpc.StatusCode.UNKNOWN,
    Kind.UNIMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
    Kind.CORRUPT: grpc.StatusCode.DATA_LOSS,
    Kind.INTERNAL: grpc.StatusCode.INTERNAL,
}
_KINDS = {code: kind for kind, code in _CODES.items()}


def code_of(kind: Kind) -> grpc.StatusCode:
    """Returns the gRPC status code of a kind; every kind has its own."""
    return _CODES[kind]


def kind_of(code: grpc.StatusCode) -> Kind:
    """Returns the kind of a status without details; a status that belongs to no kind is INTERNAL."""
    return _KINDS.get(code, Kind.INTERNAL)


def error_to_operation(error: TarnError) -> OperationError:
    """Returns the error as sent; class and traceback are not sent."""
    return OperationError(
        kind=error.kind.value,
        reason=error.reason.value,
        message=_encodable(error.message),
        metadata={name: _encodable(value) for name, value in error.metadata.items()},
    )


def error_from_operation(sent: OperationError) -> TarnError:
    """Returns the error that the other side raised.

    A reason or kind that this version does not know (the other side is newer) becomes INTERNAL and
    is kept in the metadata as `peer_reason` or `peer_kind`.
    """
    metadata = dict(sent.metadata)
    try:
        kind = Kind(sent.kind)
    except ValueError:
        kind, metadata["peer_kind"] = Kind.INTERNAL, sent.kind
    try:
        reason = Reason(sent.reason)
    except ValueError:
        reason, metadata["peer_reason"] = Reason.INTERNAL, sent.reason
    return _error(kind, reason, sent.message, metadata)


def trailers_of(error: TarnError) -> tuple[tuple[str, bytes], ...]:
    """Returns the trailing metadata of a failed unary call; long texts are cut to gRPC's limit."""
    sent = error_to_operation(error)
    packed = sent.SerializeToString()
    if len(packed) > _TRAILER_BYTES_MAX:
        sent.message = sent.message[:_TEXT_CHARS_MAX]
        sent.metadata.clear()
        sent.metadata["truncated"] = "metadata"
        packed = sent.SerializeToString()
    return ((ERROR_TRAILER, packed),)


def error_from_trailers(trailers: Iterable[tuple[str, str | bytes]]) -> TarnError | None:
    """Returns the error that a handler raised; None if the failure is gRPC's own."""
    for name, value in trailers:
        if name == ERROR_TRAILER and isinstance(value, bytes):
            try:
                return error_from_operation(OperationError.FromString(value))
            except DecodeError:
                return None
    return None


def deadline_error(request_id: str) -> TarnError:
    """Returns the error for a read-only call whose deadline passed."""
    text = f"request {request_id} ran out of time"
    return TarnError(Kind.DEADLINE, Reason.DEADLINE_EXCEEDED, text)


def unknown_outcome_error(what: str) -> TarnError:
    """Returns the error for a call that may have taken effect and whose answer is lost."""
    return TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, what)


def unavailable_error(what: str) -> TarnError:
    """Returns the error for a call that was certainly not begun."""
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, what)


def overload_error(what: str) -> TarnError:
    """Returns the error for a call that was rejected by a limit before it was begun."""
    return TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, what)


def internal_error(request_id: str) -> TarnError:
    """Returns the error that a caller sees for a bug: the request id in the log, and no internal details."""
    text = f"internal error; the log of request {request_id} has the details"
    return TarnError(Kind.INTERNAL, Reason.INTERNAL, text)


def _error(kind: Kind, reason: Reason, message: str, metadata: dict[str, str]) -> TarnError:
    # Assigned, not passed as keywords: the names are read from the wire and may be anything.
    error = TarnError(kind, reason, message)
    error.metadata = metadata
    return error


def _encodable(text: str) -> str:
    """Removes lone surrogates, which a protobuf string rejects."""
    return text.encode("utf-8", "replace").decode()
