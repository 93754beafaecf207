"""The life of a request: bounds → turn → operation → caller → rates → parameters and body → handler → answer.

The order is part of the security. Without a caller nothing is read of a body, except that of `login`, and nothing is
told but which paths there are, which is public. What a caller may do is decided by graveler and auth alone, which get
its token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tarn.core.access.actions import Action
from tarn.core.access.policy import Grant
from tarn.core.clock import IdSource
from tarn.core.errors import Kind, TarnError
from tarn.core.quota import RATES, QuotaKind
from tarn.gate.addresses import AddressRate
from tarn.gate.rates import RateLimits
from tarn.gate.request_queue import RequestQueue
from tarn.rpc.process.log import REQUEST_ID
from tarn.telemetry.audit.record import Outcome, outcome_of
from tarn.telemetry.meters import Meters
from tarn_api.answers import JSON_LINES, Whole
from tarn_api.browsers import ANSWER_HEADERS
from tarn_api.context import READ_S, Backend, Context
from tarn_api.errors import ApiError, from_tarn_error, too_many
from tarn_api.forms import FORM_BYTES_MAX, Form
from tarn_api.http import Exchange
from tarn_api.operations.table import PUBLIC, STREAMS, TABLE, TRANSFERS, Refusal
from tarn_api.requests import (
    BODY_BYTES_MAX,
    ApiRequest,
    BodyBudget,
    Routes,
    decode_body,
    decode_parameters,
    read_body,
)
from tarn_api.rpc_document import rpc_document
from tarn_api.rpcs import BODY_BYTES_MAX as RPC_BYTES_MAX
from tarn_api.rpcs import JSON, RPCS, connect_error, encoded, values_of
from tarn_api.signing_in import Authenticator, challenge
from tarn_api.traces import Trace, Traces
from tarn_api.web.failures import failure, wants_page
from tarn_api.web.page import Page
from tarn_api.web.table import PAGE_HANDLERS, PAGE_TRANSFERS, PAGES, PUBLIC_PAGES
from tarn_rest.operations import OPERATIONS, OWN_OPERATIONS, Operation

__all__ = ["BASE", "OWN_BASE", "Endpoint"]

BASE: Final = "/api/v1"
"""Begins the paths of lakeFS's document."""
OWN_BASE: Final = "/api/tarn/v1"
"""Begins those of Tarn's own, and of rpcs (`tarn_api.rpcs`)."""
_PREFIX: Final = f"{BASE}/".encode()
_OWN_PREFIX: Final = f"{OWN_BASE}/".encode()

_STRANGERS_BODY_MAX: Final = 16 * 1024
_BODIES_BYTES_MAX: Final = 64 * 1024 * 1024
_INTERFACES: Final = b"/api/"
_DOCUMENT_PATH: Final = b"/openapi.json"
_PUBLIC_REQUESTS: Final = 200
"""Of one address in a second, without credentials."""
_FAILED_COOKIES: Final = 20
_IN_REPOSITORIES: Final = (Action.READ_REPO, Action.WRITE_REPO)
_OURS: Final = frozenset({Kind.CORRUPT, Kind.INTERNAL})


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


_OF_EVERY_ANSWER: Final = _encoded(ANSWER_HEADERS)
_NAMES_OF_EVERY_ANSWER: Final = frozenset(
    {b"x-request-id", *(name for name, _ in _OF_EVERY_ANSWER)}
)
_NO_STORE: Final = (b"cache-control", b"no-store")
_LINES_OF_EVERY_ANSWER: Final = b"".join(
    b"%b: %b\r\n" % each for each in (*_OF_EVERY_ANSWER, _NO_STORE)
)
_log = structlog.get_logger()


class _Row:
    """What the tables say of one operation, so that a request asks once.

    Attributes:
        answer: its handler, or the reason of its refusal.
        is_public: whether it needs no caller.
        is_transfer: whether it moves the bytes of an object.
        is_stream: whether it is answered by a stream of events.
        named: what its records name of its query. Of pages, refs are parameters, too.
    """

    __slots__ = ("answer", "is_public", "is_stream", "is_transfer", "named")

    def __init__(self, operation: Operation) -> None:
        name = operation.id
        self.answer = PAGE_HANDLERS[name] if name in PAGE_HANDLERS else TABLE[name]
        self.is_public = name in PUBLIC or name in PUBLIC_PAGES
        self.is_transfer = name in TRANSFERS or name in PAGE_TRANSFERS
        self.is_stream = name in STREAMS
        self.named = tuple(
            each
            for each in ("ref", "branch", "path")
            if each in operation.parameters.__struct_fields__
            and f"{{{each}}}" not in operation.path
        )


_ROWS: Final = {each.id: _Row(each) for each in (*OPERATIONS, *OWN_OPERATIONS, *PAGES)}


class Endpoint:
    """The ASGI application.

    Args:
        backend: see `Backend`.
        traces: records requests.
        ids: names requests.
        meters: counts requests in flight.
        requests_max: most requests at once, half of them of callers that are not known yet. As many more may move
            bytes of objects, half of them for one user: their clients decide how long they take.
        rates: limits of requests and bytes; None: none.
    """

    def __init__(
        self,
        backend: Backend,
        traces: Traces,
        ids: IdSource,
        meters: Meters,
        requests_max: int,
        rates: RateLimits | None = None,
    ) -> None:
        self._backend = backend
        of_cookies = AddressRate(backend.clock, _FAILED_COOKIES)
        self._authenticator = Authenticator(backend.sign_in, backend.failures, of_cookies)
        self._public = AddressRate(backend.clock, _PUBLIC_REQUESTS)
        self._rates = rates
        self._queue = RequestQueue(backend.clock, _late, meters.counter("api.shed"))
        self._document = files("tarn_api").joinpath("openapi.json").read_bytes()
        self._throttled = {
            (kind, limit): meters.counter("api.throttled", kind=kind.value, limit=limit)
            for kind in QuotaKind
            for limit in RATES
        }
        self._traces = traces
        self._ids = ids
        self._routes = (
            (_PREFIX, Routes(OPERATIONS)),
            (_OWN_PREFIX, Routes(OWN_OPERATIONS)),
            (b"/", Routes(PAGES)),
        )
        self._bodies = BodyBudget(_BODIES_BYTES_MAX)
        self._requests_max = requests_max
        self._running = self._strangers = 0
        # By user.
        self._transfers: dict[str, int] = {}
        self._transfer_count = 0
        meters.sample("api.in_flight", lambda: self._running)
        meters.sample("api.queue", lambda: self._queue.length)
        meters.sample("api.transfers", lambda: self._transfer_count)
        meters.sample("api.streams", lambda: backend.feeds.streams)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; there are no other events."""
        clock = self._backend.clock
        host, port = scope.get("client") or ("", 0)
        request_id = self._ids.nonce().hex()
        trace = Trace(request_id, scope["method"], f"{host}:{port}", clock.monotonic())
        token = REQUEST_ID.set(request_id)

        self._running += 1
        exchange = _exchange_of(send)
        place = _Place(self._queue, receive, trace, exchange)
        try:
            answer = await self._answer(ApiRequest(scope, place.receive, place.rest), trace, place)
            if isinstance(answer, Whole):
                if exchange is not None and _is_sent(answer, exchange, request_id):
                    trace.status, trace.bytes_out = answer.status, len(answer.body)
                    return
                answer = answer.response()
            _add_headers(answer, request_id)
            await self._send(answer, scope, receive, _counted(send, trace), trace)
        finally:
            if trace.is_transfer:
                self._end_transfer(trace.user)
            elif not trace.is_stream:
                self._running -= 1
            if self._rates is not None:
                moved = trace.bytes_in + trace.bytes_out
                self._rates.charge(trace.user, trace.charged, moved)
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

    async def _answer(self, request: ApiRequest, trace: Trace, place: _Place) -> Response | Whole:
        """Returns the answer to a request, whatever happens."""
        error: TarnError | None = None
        try:
            if self._running > self._requests_max:
                raise _overloaded(f"{self._requests_max} requests run already")
            await place.take(request)
            try:
                response = await self._perform(request, trace)
            finally:
                place.give_back()
        except ApiError as refusal:
            shown = refusal
            error = refusal.__cause__ if isinstance(refusal.__cause__, TarnError) else None
            if error is not None and error.kind in _OURS:
                self._log_failure(trace, error)
        except TarnError as failure:
            error = failure
            shown = from_tarn_error(failure, write=trace.is_write)
            if failure.kind in _OURS:
                self._log_failure(trace, failure)
        except Exception as defect:  # noqa: BLE001 - the answer to a defect is 500
            self._log_failure(trace, defect)
            shown = ApiError(500, "an error of the server; its log has it", reason="INTERNAL")
            trace.reason = shown.reason
            return self._error(request, shown, trace)
        else:
            trace.outcome = Outcome.OK
            return response
        if shown.status == 401:
            shown.headers.update(challenge(request))
        trace.reason = shown.reason
        trace.outcome = Outcome.FAILED if error is None else outcome_of(error)
        return self._error(request, shown, trace)

    def _error(self, request: Request, error: ApiError, trace: Trace) -> Response:
        """Returns an error as JSON, or as a page for a person who asked for one."""
        if request.scope["raw_path"].startswith(_INTERFACES) or not wants_page(request):
            return _error(error)
        if error.page is not None:
            return error.page
        nonce = self._ids.nonce().hex()
        return failure(request, error, request_id=trace.request_id, nonce=nonce, user=trace.user)

    async def _perform(self, request: ApiRequest, trace: Trace) -> Response | Whole:
        path: bytes = request.scope["raw_path"]
        if path == _DOCUMENT_PATH:
            return self._document_for(request, trace, self._document)
        if path.startswith(_OWN_PREFIX) and (rpc := _rpc_path(path)) is not None:
            return await self._make_rpc(request, trace, rpc)
        operation, in_path = self._found(request)
        trace.operation, trace.values = operation.id, in_path
        row = _ROWS[operation.id]
        if row.is_public:
            grant = None
            if operation.id != "healthCheck":  # it costs nothing
                self._admit_stranger(trace)
        else:
            grant = self._known_grant(request, trace) or await self._grant_of(request, trace)
            if self._rates is not None and self._rates.is_on:
                self._admit(self._rates, grant, in_path.get("repository", ""), trace)
        handle = row.answer
        if isinstance(handle, Refusal):
            raise ApiError(501, handle.reason, reason="NOT_IMPLEMENTED")
        parameters = decode_parameters(operation, in_path, request)
        if row.named:
            trace.values = _values_of(row.named, in_path, parameters)
        if row.is_transfer:
            self._begin_transfer(trace)
        context = Context(
            self._backend, request, trace.request_id, grant, trace, self._authenticator
        )
        if operation.body is None:
            answer = await handle(context, parameters)
        elif row.is_public:
            self._begin_stranger()
            try:
                body = await self._body_of(operation, request, trace, _STRANGERS_BODY_MAX)
                answer = await handle(context, parameters, body)
            finally:
                self._strangers -= 1
        else:
            body = await self._body_of(operation, request, trace)
            answer = await handle(context, parameters, body)
        if row.is_stream:
            self._running -= 1
            trace.is_stream = True
        return _response(operation, answer, context.headers)

    def _found(self, request: Request) -> tuple[Operation, Mapping[str, str]]:
        path: bytes = request.scope["raw_path"]
        for base, routes in self._routes:
            if path.startswith(base):
                return routes.find(request.method, path[len(base) :])
        raise ApiError(404, "there is no such path", reason="NO_SUCH_PATH")

    def _document_for(self, request: Request, trace: Trace, document: bytes) -> Response:
        """Returns an interface that is offered; it needs no caller."""
        trace.operation = "openapi"
        if request.method not in ("GET", "HEAD"):
            text = f"this path takes GET, not {request.method}"
            headers = {"Allow": "GET, HEAD"}
            raise ApiError(405, text, reason="METHOD_NOT_ALLOWED", headers=headers)
        self._admit_stranger(trace)
        return Response(document, media_type=JSON)

    def _admit_stranger(self, trace: Trace) -> None:
        """Takes a request without a caller from the rate of its address.

        Raises:
            ApiError: 429.
        """
        if wait_s := self._public.wait_s(trace.remote):
            text = (
                f"an address may have {_PUBLIC_REQUESTS} requests without credentials in a second"
            )
            raise too_many(text, wait_s, reason="RATE_EXCEEDED")
        self._public.take(trace.remote)

    def _admit(self, rates: RateLimits, grant: Grant, repository: str, trace: Trace) -> None:
        """Takes a request from the rates of its user and its repository, which are those of S3 requests. Whoever may
        do nothing in a repository uses none of its rate."""
        inside = f"repository/{repository}/"
        if repository and any(grant.policy.may_allow(each, inside) for each in _IN_REPOSITORIES):
            trace.charged = repository
        if (refusal := rates.take(grant.user_id, trace.charged)) is not None:
            self._throttled[refusal.kind, refusal.limit].add()
            raise too_many(refusal.text, refusal.wait_s, reason="RATE_EXCEEDED")

    async def _make_rpc(self, request: ApiRequest, trace: Trace, path: str) -> Response:
        """Answers a call of a rpc; its errors have Connect's form."""
        if path == "openapi.json":
            return self._document_for(request, trace, rpc_document())
        try:
            return await self._made(request, trace, path)
        except (ApiError, TarnError) as failure:
            error = connect_error(failure, write=trace.is_write)
            raise error from (failure if isinstance(failure, TarnError) else failure.__cause__)

    async def _made(self, request: ApiRequest, trace: Trace, path: str) -> Response:
        rpc = RPCS.get(path)
        if rpc is None:
            text = f"{OWN_BASE}/openapi.json lists the rpcs that there are"
            raise ApiError(404, text, reason="NO_SUCH_PATH")
        trace.operation, trace.is_write = rpc.rule.name, not rpc.rule.read_only
        grant = await self._grant_of(request, trace)
        if request.method != "POST":
            headers = {"Allow": "POST"}
            raise ApiError(405, "rpcs take POST", reason="METHOD_NOT_ALLOWED", headers=headers)
        body = await read_body(request, self._bodies, RPC_BYTES_MAX)
        content_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        message = rpc.request_of(content_type, body)
        trace.values = values_of(message)
        if self._rates is not None and self._rates.is_on:
            self._admit(self._rates, grant, trace.values.get("repository", ""), trace)
        call = self._backend.call(
            trace.request_id, grant.caller_token, rpc.seconds(request.headers)
        )
        answer = await self._backend.rpcs.make(rpc, message, call)
        return Response(encoded(answer, content_type), media_type=content_type)

    def _known_grant(self, request: ApiRequest, trace: Trace) -> Grant | None:
        """Returns the grant of a caller for which nothing is waited; None: `_grant_of` decides."""
        grant = self._authenticator.known(request, trace)
        if grant is not None:
            trace.user = _connection_of(request)["user"] = grant.user_id
        return grant

    async def _grant_of(self, request: Request, trace: Trace) -> Grant:
        self._begin_stranger()
        try:
            call = self._backend.call(trace.request_id, "", READ_S)
            grant = await self._authenticator.grant(request, call, trace)
        except ApiError as error:
            if error.status == 401:  # without credentials, or with unreadable ones
                self._admit_stranger(trace)
            raise
        finally:
            self._strangers -= 1
        trace.user = _connection_of(request)["user"] = grant.user_id
        return grant

    def _begin_transfer(self, trace: Trace) -> None:
        """Gives a request a place among the transfers instead of one among the requests.

        Raises:
            ApiError: 503.
        """
        running, own = self._transfer_count, self._transfers.get(trace.user, 0)
        if running >= self._requests_max or own >= self._requests_max // 2:
            raise _overloaded(f"{running} bodies of objects are being moved, {own} of yours")
        self._running -= 1
        self._transfer_count += 1
        self._transfers[trace.user] = own + 1
        trace.is_transfer = True

    def _end_transfer(self, user: str) -> None:
        self._transfer_count -= 1
        if left := self._transfers.pop(user) - 1:
            self._transfers[user] = left

    def _begin_stranger(self) -> None:
        """Counts a request whose caller is not known yet.

        Raises:
            ApiError: 503.
        """
        if self._strangers >= self._requests_max // 2:
            raise _overloaded(f"{self._strangers} requests wait for their sign-in")
        self._strangers += 1

    async def _body_of(
        self,
        operation: Operation,
        request: ApiRequest,
        trace: Trace,
        bytes_max: int = BODY_BYTES_MAX,
    ) -> object:
        if operation.body is Form:
            size = min(bytes_max, FORM_BYTES_MAX)
            return Form.parse(await read_body(request, self._bodies, size))
        decoded = decode_body(operation, await read_body(request, self._bodies, bytes_max))
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


class _Place:
    """The place of a request among those that are worked on (`tarn.gate.request_queue`): it has none while it waits for
    its body, and none for its answer.

    Args:
        receive: of the connection.
        trace: is told the bytes of the body.
        exchange: of our own server, if that has the connection.
    """

    def __init__(
        self, queue: RequestQueue, receive: Receive, trace: Trace, exchange: Exchange | None
    ) -> None:
        self._queue = queue
        self._exchange = exchange
        self._receive = receive
        self._trace = trace
        self._is_held = self._is_over = False

    async def take(self, request: Request) -> None:
        """Waits for a place.

        Raises:
            ApiError: 503: the request has waited too long.
        """
        if not self._queue.enters():
            await self._queue.wait(_connection_of(request).get("user", ""))
        self._is_held = True

    def give_back(self) -> None:
        """Gives the place back, if it is held."""
        self._is_over = True
        if self._is_held:
            self._is_held = False
            self._queue.leave()

    def rest(self) -> bytes | None:
        """Takes what is left of the body, if all of it has come: the place is kept, because nothing is waited for."""
        found = None if self._exchange is None else self._exchange.rest()
        if found is not None:
            self._trace.bytes_in += len(found)
        return found

    async def receive(self) -> Message:
        """Receives a piece of the body."""
        if not self._is_held:
            return self._counted(await self._receive())
        self._is_held = False
        self._queue.leave()
        try:
            message = await self._receive()
        finally:
            if not self._is_over:
                self._is_held = True
                self._queue.resume()
        return self._counted(message)

    def _counted(self, message: Message) -> Message:
        self._trace.bytes_in += len(message.get("body", b""))
        return message


def _counted(send: Send, trace: Trace) -> Send:
    """Returns a `send` that tells the trace what of an answer is sent."""

    async def counted(message: Message) -> None:
        if message["type"] == "http.response.start":
            trace.status = message["status"]
        else:
            trace.bytes_out += len(message.get("body", b""))
        await send(message)

    return counted


def _exchange_of(send: Send) -> Exchange | None:
    """Returns the exchange of a request if our own server (`tarn_api.http`) serves it."""
    found = getattr(send, "__self__", None)
    return found if isinstance(found, Exchange) else None


def _is_sent(answer: Whole, exchange: Exchange, request_id: str) -> bool:
    """Sends an answer past ASGI, if the connection lets it; returns whether it is sent."""
    lines = b"%bx-request-id: %b\r\n%b" % (
        answer.lines,
        request_id.encode(),
        _LINES_OF_EVERY_ANSWER,
    )
    return exchange.send_whole(answer.status, lines, answer.body)


def _rpc_path(path: bytes) -> str | None:
    """Returns the path of a rpc, or of their document, below the base path; None for another operation."""
    below = path.removeprefix(_OWN_PREFIX)
    return below.decode("ascii", "replace") if b"." in below.partition(b"/")[0] else None


def _connection_of(request: Request) -> dict[str, str]:
    """Returns what is known of a connection: `user` of its last request that had a caller. Before a caller is known, a
    request takes the turn of that user; all strangers together are one, because a name in a request is theirs to
    choose."""
    found: dict[str, str] = request.scope.get("state", {}).setdefault("connection", {})
    return found


def _overloaded(what: str) -> ApiError:
    return ApiError(503, f"{what}; try again", reason="OVERLOADED")


def _late() -> ApiError:
    return _overloaded("there are more requests than can be answered")


def _values_of(
    named: Iterable[str], in_path: Mapping[str, str], parameters: msgspec.Struct
) -> Mapping[str, str]:
    """Returns what the records of a request name of its path and its query."""
    values = dict(in_path)
    for name in named:
        if value := getattr(parameters, name):
            values[name] = value
    return values


def _response(operation: Operation, answer: object, headers: Mapping[str, str]) -> Response | Whole:
    """Returns the answer of a handler as one of HTTP, with more headers."""
    if isinstance(answer, Response):
        response = answer
    elif answer is None:
        response = Response(status_code=operation.status)
    elif isinstance(answer, str):  # of the one operation that answers so
        response = Response(answer, operation.status, media_type="text/html")
    else:
        if not isinstance(answer, Whole):
            answer = Whole(operation.status, JSON_LINES, msgspec.json.encode(answer))
        if not headers:
            return answer
        response = answer.response()
    if headers:
        response.headers.update(headers)
    return response


def _add_headers(response: Response, request_id: str) -> None:
    """Adds the headers of every answer; pages have guards of their own. They replace an operation's."""
    headers = [each for each in response.raw_headers if each[0] not in _NAMES_OF_EVERY_ANSWER]
    headers.append((b"x-request-id", request_id.encode()))
    headers += _encoded(response.guards) if isinstance(response, Page) else _OF_EVERY_ANSWER
    if b"cache-control" not in dict(headers):
        headers.append(_NO_STORE)
    response.raw_headers = headers


def _error(error: ApiError) -> Response:
    return Response(
        msgspec.json.encode(error.body), error.status, headers=error.headers, media_type=JSON
    )
