"""The form of AssumeRole, and the limits of session keys that it asks for."""

from __future__ import annotations

import random
from urllib.parse import quote_plus

from lxml import etree
from tests.support.fuzz.target import PropertyError, Target

from tarn.core.access.actions import Action
from tarn.core.access.session_policy import (
    parse_binding,
    parse_duration_s,
    parse_permission,
    require_within_limits,
)
from tarn.core.errors import Kind, TarnError
from tarn_gateway import sts
from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.sts import StsError

__all__ = ["TARGET"]

_REQUEST = Request("POST", b"/", b"", Headers([]), BodyReader(0), request_id="1")
_HEAD = b"Action=AssumeRole&Version=2011-06-15&RoleSessionName=name&RoleArn=arn%3Atarn%3Aiam%3A%3A%3Arole%2Fsession"


def _check(data: bytes) -> str:
    try:
        fields = sts._fields_of(data)
        wanted = sts._wanted(fields)
    except StsError as error:
        etree.fromstring(sts.sts_error_response(error, _REQUEST).body)  # type: ignore[arg-type]
        return error.code
    if parse_duration_s(wanted.duration_s) != wanted.duration_s:
        raise PropertyError("the life is not the one that was asked for")
    if fields["RoleArn"].endswith("read-only"):
        actions = {action for each in wanted.permissions for action in each.actions}
        if Action.WRITE_REPO in actions or not actions:
            raise PropertyError(f"a key that reads may {actions}")
    try:
        permissions = [
            parse_permission(each.actions, each.resources) for each in wanted.permissions
        ]
        bindings = [
            parse_binding(each.bucket_id, each.repository_id, each.ref) for each in wanted.bindings
        ]
        require_within_limits(permissions, bindings)
    except TarnError as error:
        if error.kind is not Kind.INVALID:
            raise PropertyError(f"limits are answered {error!r}") from error
        return "limits"
    return "issued"


def _as_policy(rng: random.Random, data: bytes) -> bytes:
    role = b"-read-only" if rng.random() < 0.5 else b""
    return _HEAD + role + b"&Policy=" + quote_plus(data).encode()


TARGET = Target(
    "sts",
    _check,
    (),
    ("tarn_gateway.sts", "tarn.core.access.session_policy"),
    (_as_policy,),
    (
        b"permissions",
        b"bindings",
        b"actions",
        b"resources",
        b"bucket_id",
        b"repository_id",
        b"ref",
        b"ReadRepo",
        b"WriteRepo",
        b"repository/",
        b"&DurationSeconds=",
    ),
    share=0.25,
)
