"""Tarn's own interface: each unary rpc that a user may make, as JSON, by Connect's unary protocol.

    POST /api/tarn/v1/tarn.graveler.v1.ReflogService/ListReflog
    {"repositoryId": "lake", "branchId": "main"}

The protos are the interface: a new rpc is offered here as soon as it exists, its rule decides who may make it, and
`buf breaking` refuses a change that breaks its JSON. Bodies are protobuf's JSON (camelCase, 64-bit numbers as strings,
bytes in base64) or, with `Content-Type: application/proto`, the messages themselves. Errors are
`{"code", "message", "reason"}`, and their statuses those of Connect. Not offered are streams, public rpcs, those for
services only, and whole services that jobs and other processes use by gRPC (`_OFFERED` lists the others).

Source: https://connectrpc.com/docs/protocol, "Unary RPCs".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf import json_format
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message

from tarn.client.collections import CollectionClient
from tarn.core.errors import Kind, TarnError
from tarn.rpc.client.transport import Transport
from tarn.rpc.rules import Rule, rules_of
from tarn.rpc.services import SERVICES
from tarn.rpc.wire.bounds import bounds_of
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import code_of
from tarn.rpc.wire.methods import UnaryMethod, unary_methods
from tarn.rpc.wire.subject import PATH, REF, REPOSITORY, subject_of
from tarn_api.errors import ApiError, from_tarn_error

__all__ = [
    "BODY_BYTES_MAX",
    "CHANGE_S",
    "JSON",
    "PROTO",
    "READ_S",
    "RPCS",
    "Rpc",
    "Rpcs",
    "connect_error",
    "encoded",
    "values_of",
]

JSON: Final = "application/json"
PROTO: Final = "application/proto"

READ_S: Final = 20.0
"""Time limit of a call that reads."""
CHANGE_S: Final = 60.0
"""Time limit of a call that makes a commit of many changes; others take milliseconds."""

BODY_BYTES_MAX: Final = 64 * 1024
"""JSON is read by Python on the event loop: a larger request would delay all others."""

_DEPTH_MAX: Final = 16
_OFFERED: Final = frozenset(
    {
        "tarn.auth.v1.SessionKeyService",
        "tarn.auth.v1.SessionService",
        "tarn.auth.v1.UserService",
        "tarn.graveler.v1.BranchService",
        "tarn.graveler.v1.BucketService",
        "tarn.graveler.v1.CommitService",
        "tarn.graveler.v1.CompactionService",
        "tarn.graveler.v1.DiffService",
        "tarn.graveler.v1.MergeService",
        "tarn.graveler.v1.PullRequestService",
        "tarn.graveler.v1.QuotaService",
        "tarn.graveler.v1.ReflogService",
        "tarn.graveler.v1.RepositoryService",
        "tarn.graveler.v1.SettingsService",
        "tarn.graveler.v1.TagService",
        "tarn.graveler.v1.TaskService",
    }
)
_OFFERED_ALONE: Final = frozenset(
    {
        "tarn.graveler.v1.CollectionService/GetCollection",
        "tarn.graveler.v1.CollectionService/HoldCollection",
    }
)
_STATUSES: Final = {
    "canceled": 499,
    "unknown": 500,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "aborted": 409,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "data_loss": 500,
    "unauthenticated": 401,
}
_CODES: Final = {
    400: "invalid_argument",
    401: "unauthenticated",
    404: "not_found",
    503: "unavailable",
}
"""Of errors that are found here: by their statuses; all others are "unknown"."""


@dataclass(frozen=True, slots=True)
class Rpc:
    """An rpc that users may make.

    Attributes:
        service: it belongs to.
        method: its messages.
        rule: who may make it.
    """

    service: ServiceDescriptor
    method: UnaryMethod
    rule: Rule

    @property
    def path(self) -> str:
        """Below the base path: `tarn.graveler.v1.BranchService/CreateBranch`."""
        return self.method.path.removeprefix("/")

    def seconds(self, headers: Mapping[str, str]) -> float:
        """Returns the time limit of a call: the caller's (`Connect-Timeout-Ms`), but no more than ours.

        Raises:
            ApiError: 400.
        """
        most = READ_S if self.rule.read_only else CHANGE_S
        asked = headers.get("connect-timeout-ms", "")
        if not asked:
            return most
        if not asked.isdecimal() or len(asked) > 10:
            text = "Connect-Timeout-Ms is a number of milliseconds, of at most 10 digits"
            raise ApiError(400, text, reason="INVALID_ARGUMENT")
        return min(most, int(asked) / 1000)

    def request_of(self, content_type: str, body: bytes) -> Message:
        """Returns the request in a body.

        Raises:
            ApiError: 400, 415.
            TarnError: INVALID: a list has too many items.
        """
        request = self.method.request_type()
        try:
            if content_type == PROTO:
                request.ParseFromString(body)
            elif content_type == JSON:
                json_format.Parse(body or b"{}", request, max_recursion_depth=_DEPTH_MAX)
            else:
                text = f"Content-Type is {JSON} or {PROTO}"
                raise ApiError(415, text, reason="INVALID_ARGUMENT")
        except (DecodeError, json_format.ParseError, UnicodeDecodeError) as error:
            text = f"the body is no {request.DESCRIPTOR.name}: {str(error)[:300]}"
            raise ApiError(400, text, reason="MALFORMED") from error
        descriptor = self.service.methods_by_name[self.method.name].input_type
        if (bounds := bounds_of(descriptor)) is not None:
            bounds.check(request)
        return request


def _is_offered(rpc: Rpc) -> bool:
    rule = rpc.rule
    if rule.action is None or rule.services or rule.through:
        return False
    return rpc.service.full_name in _OFFERED or rpc.path in _OFFERED_ALONE


RPCS: Final[Mapping[str, Rpc]] = {
    rpc.path: rpc
    for served in (SERVICES["graveler"], SERVICES["auth"])
    for service in served
    for name, method in unary_methods(service).items()
    if _is_offered(rpc := Rpc(service, method, rules_of(service)[name]))
}
"""By their paths below the base path."""


class Rpcs:
    """Makes the rpcs.

    Args:
        graveler: reaches graveler.
        auth: reaches auth.

    Attributes:
        collections: the collections of graveler.
    """

    def __init__(self, graveler: Transport, auth: Transport) -> None:
        self.collections = CollectionClient(graveler)
        self._transports = dict.fromkeys(SERVICES["graveler"], graveler)
        self._transports |= dict.fromkeys(SERVICES["auth"], auth)

    async def make(self, rpc: Rpc, request: Message, call: Call) -> Message:
        """Makes one call as the caller.

        Raises:
            TarnError: as the rpc.
        """
        return await self._transports[rpc.service].unary(
            rpc.service, rpc.method.name, request, call
        )


def values_of(request: Message) -> dict[str, str]:
    """Returns what a request is about, by the names that a path of the other interface has."""
    subject = subject_of(request)
    names = {REPOSITORY: "repository", REF: "ref", PATH: "path"}
    found = {names[key]: value for key, value in subject.items()}
    if "user_id" in request.DESCRIPTOR.fields_by_name and (user := request.user_id):  # type: ignore[attr-defined]
        found["userId"] = user
    return found


def encoded(answer: Message, content_type: str) -> bytes:
    """Returns the body of an answer."""
    if content_type == PROTO:
        return answer.SerializeToString()
    return json_format.MessageToJson(answer, indent=None).encode()


def connect_error(error: ApiError | TarnError, *, write: bool) -> ApiError:
    """Returns an error in Connect's form.

    Args:
        error: the failure.
        write: whether the request may have changed something.
    """
    if isinstance(error, ApiError):
        code, shown = _CODES.get(error.status, "unknown"), error
        status = error.status
    else:
        shown = from_tarn_error(error, write=write)
        kind = Kind.UNAVAILABLE if error.kind is Kind.UNKNOWN_OUTCOME and not write else error.kind
        code = code_of(kind).name.lower()
        status = _STATUSES[code]
    body = {"code": code, "message": shown.message, "reason": shown.reason}
    return ApiError(status, shown.message, reason=shown.reason, headers=shown.headers, body=body)
