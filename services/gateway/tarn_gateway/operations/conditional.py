"""Conditional writes and deletes: reads the condition from the headers, checks its permission, and names the operation.

Graveler decides whether the condition holds, together with the write.
"""

from __future__ import annotations

import re
from typing import Final

from tarn.core.access.actions import ref_object_resource
from tarn.core.condition import WriteCondition
from tarn.core.errors import Kind, Reason, TarnError
from tarn_gateway.backend import Backend
from tarn_gateway.grants import require
from tarn_gateway.requests.address import RefPath
from tarn_gateway.requests.condition_headers import delete_condition, write_condition
from tarn_gateway.s3request import S3Request

__all__ = [
    "operation_id",
    "requested_condition",
    "requested_delete_condition",
    "require_reading",
    "unknown_if_repeated",
]

_INVOCATION: Final = re.compile(r"[0-9A-Za-z_-]{8,64}")
_ATTEMPT: Final = re.compile(r"(?:^|[; ])attempt=([0-9]{1,4})(?:$|[; ])")
_NOT_DONE: Final = frozenset({Reason.ENTRY_NOT_FOUND, Reason.PRECONDITION_FAILED})


def requested_condition(request: S3Request) -> WriteCondition:
    """Returns the condition of a write.

    Raises:
        S3Error: NotImplemented for forms that S3 also refuses.
        TarnError: DENIED for an If-Match of a caller who may not read the object: the answer shows
            whether the object exists, as in S3.
    """
    condition = write_condition(request.headers)
    if condition.if_match:
        require_reading(request, request.target)
    return condition


def requested_delete_condition(request: S3Request) -> WriteCondition:
    """Returns the condition of a DeleteObject.

    Raises:
        S3Error: as `delete_condition`.
        TarnError: DENIED for any condition of a caller who may not read the object: the answer shows what it is.
    """
    condition = delete_condition(request.headers)
    if condition:
        require_reading(request, request.target)
    return condition


def require_reading(request: S3Request, target: RefPath) -> None:
    """Checks that the caller of a conditional request may read the key that the condition is about.

    Raises:
        TarnError: DENIED if the caller may not.
    """
    resource = ref_object_resource(request.repository, target.ref, target.path)
    require(request, request.operation.if_match, resource)


def unknown_if_repeated(request: S3Request, error: TarnError) -> TarnError:
    """Returns an unknown outcome instead of the refusal of a conditional delete that an SDK has repeated.

    An earlier attempt may have deleted the object, and a commit takes the tombstone that would show it. The refusal
    would then be a wrong "not done". SDKs number their attempts in `amz-sdk-request`.
    """
    found = _ATTEMPT.search(request.headers.text("amz-sdk-request"))
    if error.reason not in _NOT_DONE or found is None or int(found[1]) <= 1:
        return error
    text = (
        f"{error.message}; but an earlier attempt of this request may have deleted the object. "
        "Read the key before you repeat the deletion"
    )
    return TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, text)


def operation_id(backend: Backend, request: S3Request) -> str:
    """Returns an id that a repeated request shares with its first attempt.

    SDKs send `amz-sdk-invocation-id`, the same for all attempts of one call. Without it, a repeated request
    cannot be recognised, so each request is an operation of its own.
    """
    sent = request.headers.text("amz-sdk-invocation-id")
    return sent if _INVOCATION.fullmatch(sent) else backend.ids.uuid7().hex()
