"""Conditional writes: what the headers ask for, who may ask it, and which operation it is.

Whether the condition holds is decided by graveler, together with the write.
"""

from __future__ import annotations

import re
from typing import Final

from tarn.core.access.actions import ref_object_resource
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn_gateway.backend import Backend
from tarn_gateway.grants import require
from tarn_gateway.http import Headers
from tarn_gateway.requests.conditions import write_condition
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["requested_condition", "operation_id", "refuse_write_condition"]

_INVOCATION: Final = re.compile(r"[0-9A-Za-z_-]{8,64}")


def requested_condition(request: S3Request) -> WriteCondition:
    """The condition of a write.

    Raises:
        S3Error: NotImplemented for forms that S3 refuses too.
        TarnError: DENIED for an If-Match of a caller who may not read the object: the answer tells
            what is there, as in S3.
    """
    condition = write_condition(request.headers)
    if condition.if_match:
        target = request.target
        resource = ref_object_resource(request.bucket, target.ref, target.path)
        require(request, request.operation.if_match, resource)
    return condition


def operation_id(backend: Backend, request: S3Request) -> str:
    """What a repeated request has in common with its first attempt.

    SDKs send `amz-sdk-invocation-id`, the same for all attempts of one call. A client that sends
    none cannot be told from another one, so each of its requests is an operation of its own.
    """
    sent = request.headers.text("amz-sdk-invocation-id")
    return sent if _INVOCATION.fullmatch(sent) else backend.ids.uuid7().hex()


def refuse_write_condition(headers: Headers) -> None:
    """Refuses a condition where there is none to be decided; ignored, it would be a lost update.

    Raises:
        S3Error: NotImplemented.
    """
    if write_condition(headers) is not UNCONDITIONAL:
        name = "If-None-Match" if "if-none-match" in headers else "If-Match"
        text = f"{name} is not implemented for this operation."
        raise S3Error("NotImplemented", text, Header=name)
