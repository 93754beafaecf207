"""Encodes a `TarnError` for the wire and decodes it, for unary calls and for single operations.

A failed unary call carries the error's kind as the gRPC status code and, in the trailer
`grpc-status-details-bin`, a `google.rpc.Status` with an `ErrorInfo` (AIP-193), which gRPC's libraries decode in
every language. An operation of a coalesced stream carries an `OperationError` in its result. In both cases the
caller gets kind, reason, text and metadata as they were raised; longer ones are cut to the size of a trailer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import grpc
from google.protobuf.message import DecodeError, Message

from tarn.core.errors import Kind, Reason, TarnError
from tarn_proto.common.v1.operation_pb2 import OperationError
from tarn_proto.common.v1.status_pb2 import ErrorInfo, LocalizedMessage, Status

__all__ = [
    "DOMAIN",
    "ERROR_TRAILER",
    "code_of",
    "deadline_error",
    "error_from_operation",
    "error_from_trailers",
    "error_to_operation",
    "internal_error",
    "kind_of",
    "overload_error",
    "status_text",
    "trailers_of",
    "unavailable_error",
    "unknown_outcome_error",
]

ERROR_TRAILER = "grpc-status-details-bin"

DOMAIN = "tarn"
"""Domain of the reasons: an `ErrorInfo` of another domain is of a proxy in between."""

_TYPE_URL = "type.googleapis.com/google.rpc."

_STATUS_CHARS_MAX = 200
"""Limit on the text beside the status code, which travels percent-encoded. gRPC's Python library requires that
`Status.message` equals it, so the whole text is a detail."""

_TRAILER_BYTES_MAX = 4096
"""Limit on the trailer. gRPC refuses header blocks above 8 KiB; the status text and other headers count too."""

_TEXT_CHARS_MAX = 1024
_SHORT_MAX = 6
_SHORT_BYTES_MAX = 128
"""Limits on the metadata of an error that is too long: it keeps the first short ones, beginning with the subject."""

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
_KINDS_BY_NUMBER: dict[int, Kind] = {code.value[0]: kind for code, kind in _KINDS.items()}


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
    return _error(kind, _reason(sent.reason, metadata), sent.message, metadata)


def _reason(sent: str, metadata: dict[str, str]) -> Reason:
    try:
        return Reason(sent)
    except ValueError:
        metadata["peer_reason"] = sent
        return Reason.INTERNAL


def status_text(error: TarnError) -> str:
    """Returns the text beside the status code: the beginning of the message."""
    return _encodable(error.message[:_STATUS_CHARS_MAX])


def trailers_of(
    error: TarnError, about: Mapping[str, str] | None = None
) -> tuple[tuple[str, bytes], ...]:
    """Returns the trailing metadata of a failed unary call; long texts are cut to gRPC's limit.

    Args:
        error: the error.
        about: the subject of the request, for the names that the error's own metadata lacks.
    """
    metadata = {**(about or {}), **error.metadata}
    metadata = {name: _encodable(value) for name, value in metadata.items()}
    packed = _packed(error, _encodable(error.message), metadata)
    if len(packed) > _TRAILER_BYTES_MAX:
        text = _encodable(error.message)[:_TEXT_CHARS_MAX]
        short = {k: v for k, v in metadata.items() if len(k) + len(v.encode()) <= _SHORT_BYTES_MAX}
        kept = dict(list(short.items())[:_SHORT_MAX])
        packed = _packed(error, text, {**kept, "truncated": "metadata"})
    return ((ERROR_TRAILER, packed),)


def _packed(error: TarnError, text: str, metadata: dict[str, str]) -> bytes:
    status = Status(code=code_of(error.kind).value[0], message=status_text(error))
    details: list[Message] = [
        ErrorInfo(reason=error.reason.value, domain=DOMAIN, metadata=metadata)
    ]
    if text != status.message:
        details.append(LocalizedMessage(locale="en", message=text))
    for detail in details:
        url = _TYPE_URL + detail.DESCRIPTOR.name
        status.details.add(type_url=url, value=detail.SerializeToString())
    return status.SerializeToString()


def error_from_trailers(trailers: Iterable[tuple[str, str | bytes]]) -> TarnError | None:
    """Returns the error that a handler raised; None if the failure is gRPC's own, or a proxy's.

    A reason that this version does not know becomes INTERNAL and is kept in the metadata as `peer_reason`.
    """
    for name, value in trailers:
        if name == ERROR_TRAILER and isinstance(value, bytes):
            try:
                return _error_of_status(Status.FromString(value))
            except DecodeError:
                return None
    return None


def _error_of_status(status: Status) -> TarnError | None:
    info, text = ErrorInfo(), status.message
    for detail in status.details:
        if detail.type_url == f"{_TYPE_URL}ErrorInfo":
            info = ErrorInfo.FromString(detail.value)
        elif detail.type_url == f"{_TYPE_URL}LocalizedMessage":
            text = LocalizedMessage.FromString(detail.value).message
    kind = _KINDS_BY_NUMBER.get(status.code)
    if info.domain != DOMAIN or kind is None:
        return None
    metadata = dict(info.metadata)
    return _error(kind, _reason(info.reason, metadata), text, metadata)


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
