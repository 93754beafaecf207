"""Who calls: HTTP Basic (access key id and secret), or Bearer with the token of `POST /auth/login`.

Both become a caller token of auth, which graveler and auth check again for each call; nothing is decided here but who
asks. Every operation needs a caller, except those that `tarn_api.operations.table.PUBLIC` names. Cookies have their
place in `Authenticator.grant`: a scheme more, which must not be accepted across origins.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from starlette.requests import Request

from tarn.core.access.policy import Grant
from tarn.gate.sign_in import SignIn
from tarn.rpc.wire.call import Call
from tarn_api.errors import ApiError
from tarn_api.traces import Trace

__all__ = ["CHALLENGE", "Authenticator"]

CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="tarn", charset="UTF-8"'}
_NO_CREDENTIALS: Final = "error authenticating request"


class Authenticator:
    """Finds the callers of requests.

    Args:
        sign_in: exchanges what requests carry for grants.
    """

    def __init__(self, sign_in: SignIn) -> None:
        self._sign_in = sign_in

    async def grant(self, request: Request, call: Call, trace: Trace) -> Grant:
        """Returns the grant of a caller.

        Args:
            request: with the header `Authorization`.
            call: a call without a caller, for auth.
            trace: is told the access key that the request names.

        Raises:
            ApiError: 401.
            TarnError: auth refuses the caller, or gives no answer.
        """
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        match scheme.lower():
            case "basic":
                key, secret = _pair(value)
                trace.access_key_id = key[:128]
                return await self._sign_in.grant_of_pair(call, key, secret)
            case "bearer":
                return await self._sign_in.grant_of_token(call, value.strip())
            case _:
                raise unauthenticated()


def unauthenticated() -> ApiError:
    """Returns the answer to a request without credentials, or with unreadable ones."""
    return ApiError(401, _NO_CREDENTIALS, reason="UNAUTHENTICATED", headers=CHALLENGE)


def _pair(value: str) -> tuple[str, str]:
    try:
        key, colon, secret = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise unauthenticated() from None
    if not key or not colon:
        raise unauthenticated()
    return key, secret
