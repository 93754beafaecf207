"""Transports of a logged-in caller: they log in, renew the caller token, and raise `tarn.client.errors`."""

from __future__ import annotations

import random
from dataclasses import replace

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from tarn.aio.backoff import backoff_seconds
from tarn.aio.single_flight import FlightTimeoutError, SingleFlight
from tarn.client.auth import AuthClient
from tarn.client.raising import call_error
from tarn.client.values import KeyPair
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.client.transport import Transport
from tarn.rpc.rules import rules_of
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import deadline_error
from tarn.rpc.wire.subject import subject_of
from tarn.telemetry.callers import callers_trace

__all__ = ["LogIn", "SessionTransport"]

_ATTEMPTS_MAX = 3
_RENEW_AT = 0.8
"""Fraction of a token's life after which it is renewed."""
_RENEW_SECONDS_MIN = 30.0
"""A token is kept this long even if it seems to expire earlier: then this clock differs from auth's. A token that
has really expired is refused, and renewed for that."""


class LogIn:
    """The caller token of one key pair; concurrent callers share one log-in.

    Args:
        auth: a client without a session.
        key_pair: proves the identity of the caller; its secret is never sent.
        clock: measures the life of the token.
        ids: makes the nonces of proofs.
        rng: adds jitter.
    """

    def __init__(
        self, auth: AuthClient, key_pair: KeyPair, clock: Clock, ids: IdSource, rng: random.Random
    ) -> None:
        self._auth = auth
        self._key_pair = key_pair
        self._clock = clock
        self._ids = ids
        self._rng = rng
        self._token = ""
        self._renew_at = 0.0
        self._flights: SingleFlight[str, str] = SingleFlight(_error_for_waiters)

    async def token(self, call: Call, refused: str = "") -> str:
        """Returns a caller token; logs in if there is none, if it is about to expire, or if it was refused.

        Args:
            call: its deadline bounds the log-in.
            refused: a token that a server refused.

        Raises:
            TarnError: UNAUTHENTICATED: the key pair is wrong; also the errors of transports.
        """
        if self._token not in ("", refused) and self._clock.monotonic() < self._renew_at:
            return self._token
        try:
            return await self._flights.run(
                "token", lambda: self._log_in(call), timeout_s=call.remaining(self._clock)
            )
        except FlightTimeoutError:
            raise deadline_error(call.request_id) from None

    async def _log_in(self, call: Call) -> str:
        begin = self._clock.monotonic()
        for attempt in range(_ATTEMPTS_MAX):
            # A log-in is no harm if it is made twice, but its proof is accepted once: each attempt makes a new one.
            now_us = self._clock.now_us()
            try:
                session = await self._auth.log_in(
                    call,
                    self._key_pair.access_key_id,
                    self._key_pair.secret_access_key,
                    now_us=now_us,
                    nonce=self._ids.nonce(),
                    session_token=self._key_pair.session_token,
                )
            except TarnError as error:
                pause = backoff_seconds(self._rng, attempt)
                late = self._clock.monotonic() + pause >= call.deadline
                lost = error.kind is Kind.UNKNOWN_OUTCOME
                if not lost or late or attempt == _ATTEMPTS_MAX - 1:
                    raise
                await self._clock.sleep(pause)
            else:
                life_s = (session.expire_time_us - now_us) / 1_000_000
                self._renew_at = begin + max(life_s * _RENEW_AT, _RENEW_SECONDS_MIN)
                self._token = session.grant.caller_token
                return self._token
        raise AssertionError("the last attempt returns or raises")


class SessionTransport:
    """A `Transport` whose calls carry a caller token, and whose errors are `TarnCallError`s.

    A call whose token is refused is sent once more with a new one, because a refused call had no effect. A call
    that carries a token of its own is sent as it is. Calls carry the trace context of the caller's current span.

    Args:
        inner: carries the calls.
        log_in: makes the tokens; None sends calls without a token.
    """

    def __init__(self, inner: Transport, log_in: LogIn | None) -> None:
        self._inner = inner
        self._log_in = log_in

    async def unary(
        self, service: ServiceDescriptor, method: str, request: Message, call: Call
    ) -> Message:
        """Makes one unary call; see `Transport.unary`."""
        with callers_trace():
            return await self._unary(service, method, request, call)

    async def _unary(
        self, service: ServiceDescriptor, method: str, request: Message, call: Call
    ) -> Message:
        try:
            if rules_of(service)[method].action is None:  # log-in and set-up have no caller yet
                return await self._inner.unary(service, method, request, call)
            token, call = await self._with_token(call)
            try:
                return await self._inner.unary(service, method, request, call)
            except TarnError as error:
                call = await self._with_new_token(call, token, error)
            return await self._inner.unary(service, method, request, call)
        except TarnError as error:
            raise call_error(error, subject_of(request)) from error

    async def operate(
        self, service: ServiceDescriptor, operation: str, request: Message, call: Call
    ) -> Message:
        """Sends one operation on the service's stream; see `Transport.operate`."""
        with callers_trace():
            return await self._operate(service, operation, request, call)

    async def _operate(
        self, service: ServiceDescriptor, operation: str, request: Message, call: Call
    ) -> Message:
        try:
            token, call = await self._with_token(call)
            try:
                return await self._inner.operate(service, operation, request, call)
            except TarnError as error:
                call = await self._with_new_token(call, token, error)
            return await self._inner.operate(service, operation, request, call)
        except TarnError as error:
            raise call_error(error, subject_of(request)) from error

    async def close(self) -> None:
        """Closes the inner transport. Idempotent."""
        await self._inner.close()

    async def _with_token(self, call: Call) -> tuple[str, Call]:
        """Returns this session's token and a call with it; an empty token leaves the call as it is."""
        if self._log_in is None or call.caller_token:
            return "", call
        token = await self._log_in.token(call)
        return token, replace(call, caller_token=token)

    async def _with_new_token(self, call: Call, token: str, error: TarnError) -> Call:
        """Returns the call with a new token; raises the error unless it refused this session's token."""
        if self._log_in is None or not token or error.reason is not Reason.CALLER_TOKEN_INVALID:
            raise error
        return replace(call, caller_token=await self._log_in.token(call, token))


def _error_for_waiters(error: Exception) -> Exception | None:
    """A deadline was the one caller's own; others log in themselves."""
    if isinstance(error, TarnError) and error.kind not in (Kind.DEADLINE, Kind.UNKNOWN_OUTCOME):
        return error.again()
    return None
