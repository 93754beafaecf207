"""Conditional writes: reads the condition from the headers, checks its permission, and names the operation.

Graveler decides whether the condition holds, together with the write.
"""

from __future__ import annotations

import re
from typing import Final

from tarn.core.access.actions import ref_object_resource
from tarn.core.condition import WriteCondition
from tarn_gateway.backend import Backend
from tarn_gateway.grants import require
from tarn_gateway.requests.conditions import write_condition
from tarn_gateway.s3request import S3Request

__all__ = ["operation_id", "requested_condition"]

_INVOCATION: Final = re.compile(r"[0-9A-Za-z_-]{8,64}")


def requested_condition(request: S3Request) -> WriteCondition:
    """Returns the condition of a write.

    Raises:
        S3Error: NotImplemented for forms that S3 also refuses.
        TarnError: DENIED for an If-Match of a caller who may not read the object: the answer shows
            whether the object exists, as in S3.
    """
    condition = write_condition(request.headers)
    if condition.if_match:
        target = request.target
        resource = ref_object_resource(request.repository, target.ref, target.path)
        require(request, request.operation.if_match, resource)
    return condition


def operation_id(backend: Backend, request: S3Request) -> str:
    """Returns an id that a repeated request shares with its first attempt.

    SDKs send `amz-sdk-invocation-id`, the same for all attempts of one call. Without it, a repeated request
    cannot be recognised, so each request is an operation of its own.
    """
    sent = request.headers.text("amz-sdk-invocation-id")
    return sent if _INVOCATION.fullmatch(sent) else backend.ids.uuid7().hex()
