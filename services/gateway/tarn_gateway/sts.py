"""AssumeRole of STS, by which S3 clients get session keys, and GetCallerIdentity (docs/design/session-keys.md, "STS").

A request is `POST /` with a form and a signature for the service `sts`; its answer is XML of STS's query protocol
(https://docs.aws.amazon.com/STS/latest/APIReference/welcome.html). The signature covers the hash of the body, so
the body is read before the signature is verified: a small one, for an access key that exists, and a few at a time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qsl

from google.protobuf import json_format

from tarn.core.access.actions import Action
from tarn.core.access.session_policy import permissions_for
from tarn.gate.rates import RateLimits
from tarn_gateway.grants import Authenticator
from tarn_gateway.http import Request, Response
from tarn_gateway.operation import About, MissingRef, Operation
from tarn_gateway.rates import admit
from tarn_gateway.s3error import RETRY_AFTER_S, S3Error
from tarn_gateway.signing.sigv4 import verify
from tarn_gateway.trace import Trace
from tarn_gateway.xml_text import escape
from tarn_proto.auth.v1.session_key_service_pb2 import (
    CreateSessionKeyRequest,
    CreateSessionKeyResponse,
)

__all__ = ["STS_OPERATIONS", "Sts", "StsError", "is_sts", "sts_error_response"]

_ASSUME_ROLE: Final = Operation(
    "AssumeRole", "POST", "", About.SERVICE, Action.MANAGE_SESSIONS, MissingRef.OF_WRITE
)
_GET_CALLER_IDENTITY: Final = Operation(
    "GetCallerIdentity", "POST", "", About.SERVICE, Action.READ_USERS, MissingRef.OF_READ
)
"""Whoever has a key may ask whose it is, as in STS."""
STS_OPERATIONS: Final = (_ASSUME_ROLE, _GET_CALLER_IDENTITY)
"""For traces and the audit log. They are no operations of S3, so the table of these does not have them."""

_SERVICE: Final = "sts"
_SCOPE: Final = f"/{_SERVICE}/aws4_request"
_VERSION: Final = "2011-06-15"
_NAMESPACE: Final = f"https://sts.amazonaws.com/doc/{_VERSION}/"
_BODY_BYTES_MAX: Final = 16 * 1024
_BODIES_MAX: Final = 64
"""Forms that are received at a time, before their signatures are verified."""
_FIELDS_MAX: Final = 16
_DEPTH_MAX: Final = 8
_WRITE: Final = Action.WRITE_REPO.value
_ROLES: Final = {
    "arn:tarn:iam:::role/session": False,
    "arn:tarn:iam:::role/session-read-only": True,
}
"""The roles, and whether a session key of the role may only read."""
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "AssumeRole": frozenset({"RoleArn", "RoleSessionName", "DurationSeconds", "Policy"}),
    "GetCallerIdentity": frozenset(),
}
_OF_ALL: Final = frozenset({"Action", "Version"})
_ACCOUNT: Final = "000000000000"
"""Clients expect the 12 digits of an account. There are none in Tarn."""
_SESSION_NAME: Final = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)
_LIFE_S: Final = range(900, 43_201)

_CODES: Final[Mapping[str, str]] = {
    "InvalidAccessKeyId": "InvalidClientTokenId",
    "InvalidArgument": "ValidationError",
    "InvalidToken": "InvalidClientTokenId",
    "SlowDown": "Throttling",
}
"""STS's codes where they differ from S3's."""


class StsError(Exception):
    """An error of STS to be sent to the client.

    Args:
        code: STS's.
        message: a sentence for people.
        status: of HTTP.
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status

    @classmethod
    def of(cls, error: S3Error) -> StsError:
        """Returns an error of S3 in the words of STS."""
        return cls(_CODES.get(error.code, error.code), error.message, error.status)


def is_sts(request: Request) -> bool:
    """Whether a request is for STS: by what it says that it is signed for."""
    return (
        request.method == "POST"
        and request.raw_path == b"/"
        and not request.raw_query
        and _SCOPE in request.headers.text("authorization")
    )


class Sts:
    """Answers requests for STS.

    Args:
        authenticator: identifies callers, and asks auth for session keys.
        rates: limits of requests; None: none.
    """

    def __init__(self, authenticator: Authenticator, rates: RateLimits | None) -> None:
        self._authenticator = authenticator
        self._rates = rates
        self._bodies = 0

    async def answer(self, request: Request, trace: Trace) -> Response:
        """Issues a session key of the caller, or tells who the caller is.

        Raises:
            StsError, S3Error: the request is refused; nothing was issued.
            TarnError: errors of auth.
        """
        trace.operation = _ASSUME_ROLE
        signed, granted = await self._authenticator.claimed(request, _SERVICE)
        body = await self._body(request)
        verify(signed._replace(payload_hash=hashlib.sha256(body).hexdigest()), granted.signing_key)
        request.identified = True
        trace.user = granted.grant.user_id
        trace.access_key_id = signed.access_key_id
        if self._rates is not None:
            admit(self._rates, trace.user, "")
        fields = _fields_of(body)
        if fields["Action"] == _GET_CALLER_IDENTITY.name:
            trace.operation = _GET_CALLER_IDENTITY
            result = _identity(trace.user)
        else:
            wanted = _wanted(fields)
            made = await self._authenticator.issue(request, granted, wanted)
            trace.session = made.session_key.access_key_id
            result = _issued(made, wanted.description)
        name = trace.operation.name
        metadata = f"<RequestId>{escape(request.request_id)}</RequestId>"
        return _response(
            200,
            f'<{name}Response xmlns="{_NAMESPACE}"><{name}Result>{result}</{name}Result>'
            f"<ResponseMetadata>{metadata}</ResponseMetadata></{name}Response>",
        )

    async def _body(self, request: Request) -> bytes:
        length = request.body.length
        if length is None or length > _BODY_BYTES_MAX:
            text = f"The form needs a Content-Length of at most {_BODY_BYTES_MAX} bytes."
            raise StsError("ValidationError", text)
        if self._bodies >= _BODIES_MAX:
            raise StsError("Throttling", "Too many requests for session keys; try again.", 503)
        self._bodies += 1
        try:
            body = await request.body.read_all(_BODY_BYTES_MAX)
        finally:
            self._bodies -= 1
        assert body is not None, "it is not longer than announced"
        return body


def _fields_of(body: bytes) -> dict[str, str]:
    """Returns the fields of a form: those of its action, each once."""
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=_FIELDS_MAX,
        )
    except ValueError:
        text = f"The body is not a form of at most {_FIELDS_MAX} fields."
        raise StsError("ValidationError", text) from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise StsError("ValidationError", "A field of the form is repeated.")
    action = fields.get("Action", "")
    if action not in _FIELDS or fields.get("Version") != _VERSION:
        text = (
            f"Only {' and '.join(_FIELDS)} of version {_VERSION} are offered, not {action[:80]!r}."
        )
        raise StsError("InvalidAction", text)
    if unknown := sorted(fields.keys() - _FIELDS[action] - _OF_ALL):
        text = f"The parameter {unknown[0][:80]} is not offered: it would have no effect."
        raise StsError("ValidationError", text)
    return fields


def _wanted(fields: Mapping[str, str]) -> CreateSessionKeyRequest:
    """Returns the session key that the fields of AssumeRole ask for."""
    role, name = fields.get("RoleArn", ""), fields.get("RoleSessionName", "")
    if role not in _ROLES:
        text = f"RoleArn must be {' or '.join(_ROLES)}."
        raise StsError("ValidationError", text)
    if not _SESSION_NAME.fullmatch(name):
        text = "RoleSessionName must be 2 to 64 letters, digits and '_+=,.@-'."
        raise StsError("ValidationError", text)
    life = fields.get("DurationSeconds", "3600")
    if not (life.isascii() and life.isdigit() and len(life) < 6 and int(life) in _LIFE_S):
        text = f"DurationSeconds must be {_LIFE_S[0]} to {_LIFE_S[-1]}."
        raise StsError("ValidationError", text)
    wanted = _policy(fields["Policy"]) if "Policy" in fields else CreateSessionKeyRequest()
    wanted.duration_s, wanted.description = int(life), name
    if _ROLES[role] and any(_WRITE in each.actions for each in wanted.permissions):
        text = f"A session key of the role {role} has no permission {_WRITE}."
        raise StsError("MalformedPolicyDocument", text)
    if _ROLES[role] and not wanted.permissions:
        for each in permissions_for((), read_only=True):
            wanted.permissions.add(actions=each.actions, resources=each.resources)
    return wanted


def _policy(text: str) -> CreateSessionKeyRequest:
    """Returns a request with the permissions and the bindings of a parameter `Policy`; auth checks what they say."""
    try:
        found = json_format.Parse(text, CreateSessionKeyRequest(), max_recursion_depth=_DEPTH_MAX)
    except (json_format.ParseError, RecursionError):
        found = None
    if found is None or found.duration_s or found.description:
        rule = (
            'Policy is a JSON object such as {"permissions": [{"actions": ["ReadRepo"], "resources": '
            '["repository/lake*"]}], "bindings": [{"bucket_id": "sales", "repository_id": "lake", "ref": "main"}]}.'
        )
        raise StsError("MalformedPolicyDocument", rule)
    return found


def _identity(user: str) -> str:
    """Returns who a caller is: the user, also of a session key, which acts for one."""
    arn = f"arn:tarn:iam:::user/{user}"
    return f"<Arn>{escape(arn)}</Arn><UserId>{escape(user)}</UserId><Account>{_ACCOUNT}</Account>"


def _issued(made: CreateSessionKeyResponse, name: str) -> str:
    key = made.session_key
    end = datetime.fromtimestamp(key.expire_time.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    arn = f"arn:tarn:sts:::assumed-role/session/{name}"
    return (
        f"<AssumedRoleUser><Arn>{escape(arn)}</Arn>"
        f"<AssumedRoleId>{escape(f'{key.access_key_id}:{name}')}</AssumedRoleId></AssumedRoleUser>"
        f"<Credentials><AccessKeyId>{key.access_key_id}</AccessKeyId>"
        f"<SecretAccessKey>{made.secret_access_key}</SecretAccessKey>"
        f"<SessionToken>{made.session_token}</SessionToken><Expiration>{end}</Expiration></Credentials>"
    )


def sts_error_response(error: StsError, request: Request) -> Response:
    """Returns the answer for an error of STS."""
    side = "Receiver" if error.status >= 500 else "Sender"
    text = (
        f'<ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>{side}</Type><Code>{error.code}</Code>'
        f"<Message>{escape(error.message)}</Message></Error>"
        f"<RequestId>{escape(request.request_id)}</RequestId></ErrorResponse>"
    )
    response = _response(error.status, text)
    if error.status == 503:
        response.headers.append(("Retry-After", str(RETRY_AFTER_S)))
    return response


def _response(status: int, text: str) -> Response:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'
    # The answer holds secrets.
    headers = [("Content-Type", "text/xml"), ("Cache-Control", "no-store")]
    return Response(status, headers, body.encode())
