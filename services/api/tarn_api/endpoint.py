"""The life of a request: bounds → operation → caller → parameters and body → handler → answer.

The order is part of the security. Without a caller nothing is read of a body, except that of `login`, and nothing is
told but which paths there are, which is public. What a caller may do is decided by graveler and auth alone, which get
its token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tarn.core.access.policy import Grant
from tarn.core.clock import IdSource
from tarn.core.errors import Kind, TarnError
from tarn.rpc.process.log import REQUEST_ID
from tarn.telemetry.audit.record import Outcome, outcome_of
from tarn.telemetry.meters import Meters
from tarn_api.context import READ_S, Backend, Context
from tarn_api.errors import ApiError, from_tarn_error
from tarn_api.operations.table import PUBLIC, TABLE, TRANSFERS, Refusal
from tarn_api.requests import (
    BODY_BYTES_MAX,
    BodyBudget,
    Routes,
    decode_body,
    decode_parameters,
    read_body,
)
from tarn_api.rpc_document import rpc_document
from tarn_api.rpcs import BODY_BYTES_MAX as RPC_BYTES_MAX
from tarn_api.rpcs import JSON, RPCS, connect_error, encoded, values_of
from tarn_api.signing_in import CHALLENGE, Authenticator
from tarn_api.traces import Trace, Traces
from tarn_rest.operations import OPERATIONS, Operation

__all__ = ["BASE", "RPC_BASE", "Endpoint"]

BASE: Final = "/api/v1"
"""Begins the paths of the document."""
RPC_BASE: Final = "/api/tarn/v1"
"""Begins the paths of Tarn's own interface, see `tarn_api.rpcs`."""

_STRANGERS_BODY_MAX: Final = 16 * 1024
_BODIES_BYTES_MAX: Final = 64 * 1024 * 1024
_OURS: Final = frozenset({Kind.CORRUPT, Kind.INTERNAL})
_log = structlog.get_logger()


class Endpoint:
    """The ASGI application.

    Args:
        backend: see `Backend`.
        traces: records requests.
        ids: names requests.
        meters: counts requests in flight.
        requests_max: most requests at once, half of them of callers that are not known yet. As many more may move
            bytes of objects, half of them for one user: their clients decide how long they take.
    """

    def __init__(
        self, backend: Backend, traces: Traces, ids: IdSource, meters: Meters, requests_max: int
    ) -> None:
        self._backend = backend
        self._authenticator = Authenticator(backend.sign_in)
        self._traces = traces
        self._ids = ids
        self._routes = Routes(OPERATIONS)
        self._bodies = BodyBudget(_BODIES_BYTES_MAX)
        self._requests_max = requests_max
        self._running = self._strangers = 0
        self._transfers: Counter[str] = Counter()
        meters.sample("api.in_flight", lambda: self._running)
        meters.sample("api.transfers", self._transfers.total)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; there are no other events."""
        clock = self._backend.clock
        host, port = scope.get("client") or ("", 0)
        request_id = self._ids.nonce().hex()
        trace = Trace(request_id, scope["method"], f"{host}:{port}", clock.monotonic())
        token = REQUEST_ID.set(request_id)

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                trace.status = message["status"]
            else:
                trace.bytes_out += len(message.get("body", b""))
            await send(message)

        self._running += 1
        try:
            response = await self._answer(Request(scope, receive), trace)
            response.headers["X-Request-Id"] = request_id
            response.headers["X-Content-Type-Options"] = "nosniff"
            response.headers.setdefault("Cache-Control", "no-store")
            await self._send(response, scope, receive, counted, trace)
        finally:
            if trace.is_transfer:
                self._end_transfer(trace.user)
            else:
                self._running -= 1
            self._traces.end(trace, clock.monotonic() - trace.started)
            REQUEST_ID.reset(token)

    async def _send(
        self, response: Response, scope: Scope, receive: Receive, send: Send, trace: Trace
    ) -> None:
        """Sends an answer. One whose bytes end early is not completed, so that the connection ends."""
        try:
            await response(scope, receive, send)
        except TarnError as failure:
            trace.outcome, trace.reason = outcome_of(failure), failure.reason.value
            self._log_failure(trace, failure)

    async def _answer(self, request: Request, trace: Trace) -> Response:
        """Returns the answer to a request, whatever happens."""
        error: TarnError | None = None
        try:
            response = await self._perform(request, trace)
        except ApiError as refusal:
            shown = refusal
            error = refusal.__cause__ if isinstance(refusal.__cause__, TarnError) else None
            if error is not None and error.kind in _OURS:
                self._log_failure(trace, error)
        except TarnError as failure:
            error = failure
            shown = from_tarn_error(failure, write=trace.is_write)
            if shown.status == 401:
                shown.headers.update(CHALLENGE)
            if failure.kind in _OURS:
                self._log_failure(trace, failure)
        except Exception as defect:  # noqa: BLE001 - the answer to a defect is 500
            self._log_failure(trace, defect)
            shown = ApiError(500, "an error of the server; its log has it", reason="INTERNAL")
            trace.reason = shown.reason
            return _error(shown)
        else:
            trace.outcome = Outcome.OK
            return response
        trace.reason = shown.reason
        trace.outcome = Outcome.FAILED if error is None else outcome_of(error)
        return _error(shown)

    async def _perform(self, request: Request, trace: Trace) -> Response:
        if self._running > self._requests_max:
            raise _overloaded(f"{self._requests_max} requests run already")
        path: bytes = request.scope["raw_path"]
        if path.startswith(RPC_BASE.encode() + b"/"):
            return await self._make_rpc(request, trace, path[len(RPC_BASE) + 1 :])
        base = BASE.encode() + b"/"
        if not path.startswith(base):
            raise ApiError(404, f"the interface is below {BASE}/", reason="NO_SUCH_PATH")
        operation, in_path = self._routes.find(request.method, path[len(base) :])
        trace.operation, trace.values = operation.id, in_path
        row = TABLE[operation.id]
        is_public = operation.id in PUBLIC
        grant = None if is_public else await self._grant_of(request, trace)
        if isinstance(row, Refusal):
            raise ApiError(501, row.reason, reason="NOT_IMPLEMENTED")
        parameters = decode_parameters(operation, in_path, request)
        if named := getattr(parameters, "path", None):
            trace.values = {**in_path, "path": named}
        if operation.id in TRANSFERS:
            self._begin_transfer(trace)
        context = Context(self._backend, request, trace.request_id, grant, trace)
        if operation.body is None:
            answer = await row(context, parameters)
        elif is_public:
            with self._stranger():
                body = await self._body_of(operation, request, trace, _STRANGERS_BODY_MAX)
                answer = await row(context, parameters, body)
        else:
            body = await self._body_of(operation, request, trace)
            answer = await row(context, parameters, body)
        return _response(operation, answer)

    async def _make_rpc(self, request: Request, trace: Trace, path: bytes) -> Response:
        """Answers a request of Tarn's own interface; its errors have Connect's form."""
        if path == b"openapi.json":
            return Response(rpc_document(), media_type=JSON)
        try:
            return await self._made(request, trace, path)
        except (ApiError, TarnError) as failure:
            error = connect_error(failure, write=trace.is_write)
            if error.status == 401:
                error.headers.update(CHALLENGE)
            raise error from (failure if isinstance(failure, TarnError) else failure.__cause__)

    async def _made(self, request: Request, trace: Trace, path: bytes) -> Response:
        rpc = RPCS.get(path.decode("ascii", "replace"))
        if rpc is None:
            text = f"{RPC_BASE}/openapi.json lists the rpcs that there are"
            raise ApiError(404, text, reason="NO_SUCH_PATH")
        trace.operation, trace.is_write = rpc.rule.name, not rpc.rule.read_only
        grant = await self._grant_of(request, trace)
        if request.method != "POST":
            headers = {"Allow": "POST"}
            raise ApiError(405, "rpcs take POST", reason="METHOD_NOT_ALLOWED", headers=headers)
        body = await read_body(request, self._bodies, RPC_BYTES_MAX)
        trace.bytes_in = len(body)
        content_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        message = rpc.request_of(content_type, body)
        trace.values = values_of(message)
        call = self._backend.call(
            trace.request_id, grant.caller_token, rpc.seconds(request.headers)
        )
        answer = await self._backend.rpcs.make(rpc, message, call)
        return Response(encoded(answer, content_type), media_type=content_type)

    async def _grant_of(self, request: Request, trace: Trace) -> Grant:
        with self._stranger():
            call = self._backend.call(trace.request_id, "", READ_S)
            grant = await self._authenticator.grant(request, call, trace)
        trace.user = grant.user_id
        return grant

    def _begin_transfer(self, trace: Trace) -> None:
        """Gives a request a place among the transfers instead of one among the requests.

        Raises:
            ApiError: 503.
        """
        running, own = self._transfers.total(), self._transfers[trace.user]
        if running >= self._requests_max or own >= self._requests_max // 2:
            raise _overloaded(f"{running} bodies of objects are being moved, {own} of yours")
        self._running -= 1
        self._transfers[trace.user] += 1
        trace.is_transfer = True

    def _end_transfer(self, user: str) -> None:
        self._transfers[user] -= 1
        if not self._transfers[user]:
            del self._transfers[user]

    @contextmanager
    def _stranger(self) -> Iterator[None]:
        """Counts a request whose caller is not known yet."""
        if self._strangers >= self._requests_max // 2:
            raise _overloaded(f"{self._strangers} requests wait for their sign-in")
        self._strangers += 1
        try:
            yield
        finally:
            self._strangers -= 1

    async def _body_of(
        self,
        operation: Operation,
        request: Request,
        trace: Trace,
        bytes_max: int = BODY_BYTES_MAX,
    ) -> object:
        body = await read_body(request, self._bodies, bytes_max)
        trace.bytes_in = len(body)
        decoded = decode_body(operation, body)
        trace.note_body(decoded)
        return decoded

    @staticmethod
    def _log_failure(trace: Trace, error: Exception) -> None:
        _log.error(
            "api request failed",
            operation=trace.operation,
            request_id=trace.request_id,
            exc_info=error,
        )


def _overloaded(what: str) -> ApiError:
    return ApiError(503, f"{what}; try again", reason="OVERLOADED")


def _response(operation: Operation, answer: object) -> Response:
    if isinstance(answer, Response):
        return answer
    if answer is None:
        return Response(status_code=operation.status)
    if isinstance(answer, str):  # of the one operation that answers so
        return Response(answer, operation.status, media_type="text/html")
    return Response(msgspec.json.encode(answer), operation.status, media_type=JSON)


def _error(error: ApiError) -> Response:
    return Response(
        msgspec.json.encode(error.body), error.status, headers=error.headers, media_type=JSON
    )
