"""The life of a request: address → signature → operation → bucket → permission → answer.

The order is part of the security. A caller learns nothing before the signature is verified; one without a signature
learns nothing but what is public (`tarn_gateway.anonymous`). Operations that
are not offered are refused before any effect. No operation runs unless the caller may perform its action.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Final

import structlog

from tarn.client.auth import SigningGrant
from tarn.core.errors import Kind, Reason, TarnError
from tarn.gate.rates import RateLimits
from tarn.gate.request_queue import RequestQueue
from tarn.objects.bodies import LostBlockError, LostBytesError
from tarn.rpc.process.log import REQUEST_ID
from tarn.rpc.wire.call import Call
from tarn.telemetry.tracing import child_span
from tarn_gateway.anonymous import AnonymousRequests
from tarn_gateway.backend import Backend
from tarn_gateway.bodies.form import FormReader, PostForm
from tarn_gateway.bucket_cache import MAY_HAVE_MOVED, Place
from tarn_gateway.cors import cors_headers, preflight
from tarn_gateway.grants import Authenticator, authorize
from tarn_gateway.http import Request, Response
from tarn_gateway.operation import About, MissingRef
from tarn_gateway.operations.table import Perform
from tarn_gateway.rates import RateExceededError, admit
from tarn_gateway.requests.address import Address, check_key, parse_address
from tarn_gateway.requests.header_table import check_headers
from tarn_gateway.requests.multipart import is_form
from tarn_gateway.requests.query import parse_query, refuse_version
from tarn_gateway.router import route
from tarn_gateway.s3error import HOST_ID, S3Error, error_response, from_tarn_error
from tarn_gateway.s3request import S3Request
from tarn_gateway.signing.sigv4 import SignedRequest, is_anonymous
from tarn_gateway.sts import STS_OPERATIONS, Sts, StsError, is_sts, sts_error_response
from tarn_gateway.trace import Trace
from tarn_gateway.traces import Traces

__all__ = ["S3Handler"]

_ID_2: Final = ("x-amz-id-2", HOST_ID)
_PLACES_TRIED: Final = 4
"""How often an operation is tried; each time but the first one, what its bucket stands for has changed."""
_ABOUT_KEYS: Final = frozenset(
    {"InvalidArgument", "InvalidRequest", "KeyTooLongError", "NoSuchKey", "NoSuchUpload"}
)
"""Refusals of a key, which may come before its bucket was looked up."""
_OTHER_METHODS: Final = frozenset({"POST", "OPTIONS"})
"""Of requests that may be something else than an operation of a signed request."""
_ABOUT_NAME: Final = About.NAME
_OURS: Final = frozenset({Kind.CORRUPT, Kind.INTERNAL})

_log = structlog.get_logger()


class S3Handler:
    """Answers requests; `refuse` is the `on_error` of the HTTP server that calls it.

    Args:
        authenticator: identifies callers.
        backend: the resources of operations.
        traces: the access log.
        domains: lower-case host names whose subdomains are buckets.
        rates: limits of requests; None: none.
        anonymous: admits requests without a signature.
        queue: of requests that wait for their turn.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        backend: Backend,
        traces: Traces,
        *,
        domains: Sequence[str] = (),
        rates: RateLimits | None = None,
        queue: RequestQueue,
        anonymous: AnonymousRequests | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._backend = backend
        self._traces = traces
        self._sts = Sts(authenticator, rates)
        self._now = backend.clock.monotonic
        self._domains = tuple(domains)
        self._rates = rates
        self._forms = FormReader()
        self._anonymous = anonymous or AnonymousRequests(backend)
        self._queue = queue

    async def __call__(self, request: Request) -> Response:
        """Answers one request when it is its turn. `refuse` turns every exception into an answer."""
        REQUEST_ID.set(request.request_id)
        trace = self._traces.begin(request)
        queue = self._queue
        if not queue.enters():
            began = self._now()
            request.is_queued = True
            await queue.wait(request.client)
            request.is_queued = False
            trace.queue_s = self._now() - began
        body = request.body
        body.place = queue
        try:
            return await self._answer(request, trace)
        finally:
            if body.place is not None:
                body.place = None
                queue.leave()
            if request.identified:
                request.client = trace.user
                request.timing = _timing(trace)

    async def _answer(self, request: Request, trace: Trace) -> Response:
        began = self._now()
        headers = request.headers
        address = parse_address(headers.get("host", ""), request.raw_path, self._domains)
        form: PostForm | None = None
        if request.method in _OTHER_METHODS or "origin" in headers:
            answer, form = await self._open(request, address, trace, began)
            if answer is not None:
                return answer
        if form is None and trace.span is None and "authorization" in headers:
            # As `_authenticate` does for most requests.
            signed, granted = await self._authenticator.authenticate(request)
            request.identified = True
        else:
            signed, granted = await self._authenticate(request, form, address, trace, began)
        authenticated = self._now()
        trace.auth_s = authenticated - began
        grant = granted.grant
        trace.user = grant.user_id
        trace.access_key_id = signed.access_key_id
        query = parse_query(request.raw_query)
        if query.values:
            refuse_version(query)
        operation = trace.operation = route(request.method, address, query, request.headers)
        if form is not None:
            check_headers(operation.name, request.headers, trace.user)
            request.headers = form.headers()
            address = Address(address.bucket, check_key(form.fields["key"]))
        if operation.about is _ABOUT_NAME:
            place = Place(address.bucket)
        else:
            place = await self._backend.resolve(
                request, granted, address.bucket, began, is_fresh=request.body.length != 0
            )
        try:
            s3_request = S3Request(
                request, began, operation, address, place, query, signed, granted, form
            )
            self._admit(s3_request, trace)
            try:
                response = await operation.perform(self._backend, s3_request)
            except TarnError as error:
                response = await self._elsewhere(operation.perform, s3_request, trace, error)
        except (S3Error, TarnError) as error:
            await self._check_repository(request, granted, place, error)
            raise
        finally:
            trace.perform_s = self._now() - authenticated
        response.headers += (_ID_2, *trace.cors)
        if trace.span is not None:
            response.headers.append(("traceresponse", trace.span.traceresponse))
        return response

    async def _open(
        self, request: Request, address: Address, trace: Trace, began: float
    ) -> tuple[Response | None, PostForm | None]:
        """Begins a request of a page of a browser, or one that may be a form or for STS. Returns the answer, if it is
        one already, and the form, if it has one."""
        if is_sts(request):
            try:
                return await self._sts.answer(request, trace), None
            finally:
                trace.perform_s = self._now() - began
        if request.method == "OPTIONS":
            bucket, is_key = address.bucket, bool(address.key)
            response = await preflight(self._backend.cors, request, bucket, is_key=is_key)
            response.headers.append(_ID_2)
            return response, None
        if "origin" in request.headers:
            # Before the signature: a page must be able to read why it was refused.
            trace.cors = await cors_headers(self._backend.cors, request, address.bucket)
        if request.method == "POST" and _is_form(request, address):
            return None, await self._forms.read(request)
        return None, None

    async def _authenticate(
        self, request: Request, form: PostForm | None, address: Address, trace: Trace, began: float
    ) -> tuple[SignedRequest, SigningGrant]:
        with nullcontext() if trace.span is None else child_span("authenticate"):
            if form is not None:
                identity = await self._authenticator.authenticate_form(
                    form, request, address.bucket
                )
            elif is_anonymous(request):
                return await self._anonymous.enter(request, address, began, trace)
            else:
                identity = await self._authenticator.authenticate(request)
            request.identified = True
            return identity

    def _admit(self, s3_request: S3Request, trace: Trace) -> None:
        """Checks all that must hold before an operation is performed.

        Raises:
            TarnError, S3Error: as `check_headers`, `authorize` and `admit`.
        """
        _note(trace, s3_request)
        check_headers(s3_request.operation.name, s3_request.headers, trace.user)
        authorize(s3_request)
        if self._rates is not None and self._rates.is_on:
            admit(self._rates, trace.user, trace.repository)

    async def _elsewhere(
        self, perform: Perform, s3_request: S3Request, trace: Trace, error: TarnError
    ) -> Response:
        """Performs an operation again that was refused where the cache says, if the refusal shows that it is old: where
        graveler says. What the caller may do is checked for each place.

        Raises:
            S3Error: ServiceUnavailable: the body was read for another place than the bucket stands for by now.
            TarnError, S3Error: as the operation.
        """
        for _ in range(_PLACES_TRIED - 1):
            if error.reason not in MAY_HAVE_MOVED:
                break
            s3_request = await self._again(s3_request, error)
            _note(trace, s3_request)
            authorize(s3_request)
            try:
                return await perform(self._backend, s3_request)
            except TarnError as refused:
                error = refused
        raise error

    async def _check_repository(
        self, request: Request, granted: SigningGrant, place: Place, refusal: S3Error | TarnError
    ) -> None:
        """Raises TarnError REPOSITORY_NOT_FOUND if the key of a request was refused, and its bucket is nothing: then it
        does not matter how the keys of repositories begin. Whoever may not read the repository is not told."""
        shown = refusal if isinstance(refusal, S3Error) else from_tarn_error(refusal)
        if place.ref or not place.repository or shown.code not in _ABOUT_KEYS:
            return
        backend = self._backend
        deadline = self._now() + backend.bounds.call_timeout_s
        call = Call(request.request_id, granted.grant.caller_token, deadline)
        await backend.repositories.refuse_unknown(call, place.repository)

    async def _again(self, refused: S3Request, error: TarnError) -> S3Request:
        """Returns a refused request with what its bucket stands for now; raises the error if that is the same."""
        bucket = refused.address.bucket
        moved = error.metadata.get("bucket", bucket)
        self._backend.buckets.forget(moved)
        self._backend.buckets.forget(bucket)
        place = await self._backend.resolve(refused.http, refused.granted, bucket, self._now())
        if place == refused.place and moved == bucket:
            raise error
        if refused.is_body_taken:
            text = "The bucket was pointed elsewhere during the request; nothing was done. Please try again."
            raise S3Error("ServiceUnavailable", text) from error
        return refused.at(place)

    def refuse(self, request: Request, error: Exception) -> Response:
        """Returns the answer for an exception. Server errors are logged with their traceback."""
        trace = self._traces.of(request)
        if isinstance(error, LostBytesError):
            if isinstance(error, LostBlockError):
                _log.error(
                    "block lost",
                    path=error.key.path,
                    namespace=error.key.namespace,
                    request_id=request.request_id,
                )
            shown = from_tarn_error(error)
        elif isinstance(error, TarnError):
            if error.kind in _OURS:
                self._log_failure(request, trace, error)
            shown = from_tarn_error(error, write=_writes(request, trace))
            if trace.view and error.reason is Reason.ACCESS_DENIED:
                shown = S3Error("AccessDenied")  # the text would tell what the view shows
        elif isinstance(error, StsError):
            trace.code = error.code
            return sts_error_response(error, request)
        elif isinstance(error, S3Error):
            shown = error
            if isinstance(error, RateExceededError):
                trace.throttled_by = error.throttled_by
        else:
            self._log_failure(request, trace, error)
            shown = S3Error("InternalError")
        trace.code = shown.code
        if trace.operation in STS_OPERATIONS:
            return sts_error_response(StsError.of(shown), request)
        response = error_response(shown, request)
        response.headers += (_ID_2, *trace.cors)
        if trace.span is not None:
            response.headers.append(("traceresponse", trace.span.traceresponse))
        return response

    @staticmethod
    def _log_failure(request: Request, trace: Trace, error: Exception) -> None:
        _log.error(
            "s3 request failed",
            operation=trace.operation_name,
            request_id=request.request_id,
            exc_info=error,
        )


def _writes(request: Request, trace: Trace) -> bool:
    """Returns whether a missing ref is reported as a missing bucket; see `from_tarn_error`. In a view it is one."""
    if trace.view:
        return True
    if trace.operation is not None:
        return trace.operation.missing_ref is MissingRef.OF_WRITE
    return request.method not in ("GET", "HEAD")


def _is_form(request: Request, address: Address) -> bool:
    """Whether a POST is the upload of a form, which has its signature in its fields."""
    is_of_bucket = bool(address.bucket) and not address.key and not request.raw_query
    return is_of_bucket and is_form(request.headers)


def _timing(trace: Trace) -> str:
    """Returns the phases of a request for `Server-Timing`. A client without a valid signature gets none."""
    phases = f"auth;dur={trace.auth_s * 1000:.1f}, perform;dur={trace.perform_s * 1000:.1f}, "
    return f"queue;dur={trace.queue_s * 1000:.1f}, {phases}" if trace.queue_s else phases


def _note(trace: Trace, s3_request: S3Request) -> None:
    trace.repository = s3_request.repository
    trace.view = s3_request.address.bucket if s3_request.place.ref else ""
    trace.outcomes = s3_request.outcomes
    if s3_request.ref_path is not None:
        trace.ref, trace.path = s3_request.ref_path.ref, s3_request.ref_path.path
