"""Who calls: HTTP Basic (access key id and secret), Bearer with the token of `POST /auth/login`, or the cookie of a
browser's session.

All become a caller token of auth, which graveler and auth check again for each call; nothing is decided here but who
asks. Every operation needs a caller, except those that `tarn_api.operations.table.PUBLIC` names. A header
`Authorization` decides alone: a cookie beside it is not looked at.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from starlette.requests import Request

from tarn.core.access.policy import Grant
from tarn.core.errors import Kind, TarnError
from tarn.gate.addresses import AddressRate
from tarn.gate.sign_in import SignIn
from tarn.rpc.wire.call import Call
from tarn_api.browsers import is_browser, refuse_other_sites, secret_of
from tarn_api.errors import ApiError, too_many
from tarn_api.traces import Trace

__all__ = ["Authenticator", "challenge", "counted_failures"]

_CHALLENGE: Final[Mapping[str, str]] = MappingProxyType(
    {"WWW-Authenticate": 'Basic realm="tarn", charset="UTF-8"'}
)
_NO_CREDENTIALS: Final = "error authenticating request"


def challenge(request: Request) -> Mapping[str, str]:
    """Returns the header of a 401. Browsers get none: they would ask for a key pair, and send it by themselves then."""
    return {} if is_browser(request) or "cookie" in request.headers else _CHALLENGE


@contextmanager
def counted_failures(failures: AddressRate, remote: str) -> Iterator[None]:
    """Refuses a sign-in of an address that has failed too often, and counts one that fails.

    Raises:
        ApiError: 429.
    """
    if wait_s := failures.wait_s(remote):
        text = "too many sign-ins of this address have failed; try again later"
        raise too_many(text, wait_s, reason="TOO_MANY_FAILURES")
    try:
        yield
    except TarnError as error:
        if error.kind is Kind.UNAUTHENTICATED:
            failures.take(remote)
        raise


class Authenticator:
    """Finds the callers of requests.

    Args:
        sign_in: exchanges what requests carry for grants.
        failures: how often an address may fail with a key pair or a token. Those that are known are not refused.
        of_cookies: how often with a cookie: a job with a wrong key pair takes nothing from the browsers behind the same
            address.
    """

    def __init__(self, sign_in: SignIn, failures: AddressRate, of_cookies: AddressRate) -> None:
        self._sign_in = sign_in
        self._failures = failures
        self._of_cookies = of_cookies

    def known(self, request: Request, trace: Trace) -> Grant | None:
        """Returns what `grant` does, at once, if auth need not be asked; None if `grant` has more to decide."""
        header = request.headers.get("authorization")
        if header is None or is_browser(request):
            return None
        scheme, _, value = header.partition(" ")
        scheme = scheme.lower()
        if scheme == "basic":
            try:
                key, secret = _pair(value)
            except ApiError:
                return None
            trace.access_key_id = key[:128]
            return self._sign_in.known_pair(key, secret)
        return self._sign_in.known_token(value.strip()) if scheme == "bearer" else None

    async def grant(self, request: Request, call: Call, trace: Trace) -> Grant:
        """Returns the grant of a caller.

        Args:
            request: with the header `Authorization`, or a cookie.
            call: a call without a caller, for auth.
            trace: is told the access key that the request names.

        Raises:
            ApiError: 401; 403: another site may have made a browser send it; 429.
            TarnError: auth refuses the caller, or gives no answer.
        """
        if (header := request.headers.get("authorization")) is not None:
            return await self._by_header(request, header, call, trace)
        secret = secret_of(request)
        if secret is None:
            raise unauthenticated()
        refuse_other_sites(request)
        with counted_failures(self._of_cookies, trace.remote):
            return await self._sign_in.grant_of_session(call, secret)

    async def _by_header(self, request: Request, header: str, call: Call, trace: Trace) -> Grant:
        scheme, _, value = header.partition(" ")
        match scheme.lower():
            case "basic":
                # A browser that was asked for a key pair sends it for pages of other sites, too. No program tells a
                # site, and no page of another one can set the header: there is no answer to its preflight.
                if is_browser(request):
                    refuse_other_sites(request)
                key, secret = _pair(value)
                trace.access_key_id = key[:128]
                if self._sign_in.knows_pair(key, secret):
                    return await self._sign_in.grant_of_pair(call, key, secret)
                with counted_failures(self._failures, trace.remote):
                    return await self._sign_in.grant_of_pair(call, key, secret)
            case "bearer":
                token = value.strip()
                if (known := self._sign_in.known_token(token)) is not None:
                    return known
                with counted_failures(self._failures, trace.remote):
                    return await self._sign_in.grant_of_token(call, token)
            case _:
                raise unauthenticated()


def unauthenticated() -> ApiError:
    """Returns the answer to a request without credentials, or with unreadable ones."""
    return ApiError(401, _NO_CREDENTIALS, reason="UNAUTHENTICATED")


def _pair(value: str) -> tuple[str, str]:
    try:
        key, colon, secret = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise unauthenticated() from None
    if not key or not colon:
        raise unauthenticated()
    return key, secret
