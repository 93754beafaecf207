"""Signs callers in who send a key pair with each request (HTTP Basic): the pair becomes a caller token.

LogIn answers once, then the token is kept with a digest of the pair, for a quarter of an hour at most: this process's
memory holds no secret but those of the requests that it answers. The token alone proves nothing: its grant is
asked for as that of any token (`Access.grant`), so a deleted key stops as fast here as everywhere
(`services/auth/README.md`). The digest has a key of this process, and covers both halves.
"""

from __future__ import annotations

import hashlib
from typing import Final

from tarn.client.auth import AuthClient
from tarn.core.access.key_use import KeyUse
from tarn.core.access.policy import Grant
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.gate.access import Access
from tarn.gate.answers import Answers
from tarn.rpc.wire.call import Call
from tarn.telemetry.meters import Meters

__all__ = ["SignIn"]

_PAIRS_MAX: Final = 8192
_PAIR_MS_MAX: Final = 15 * 60 * 1000
_ACCESS_KEY_ID_MAX: Final = 128
_SECRET_MAX: Final = 256
"""Tarn makes no key pair this long; each is hashed and kept for a second even if it is wrong."""


class SignIn:
    """Exchanges key pairs for the grants of their users.

    Args:
        auth: checks a pair.
        access: provides grants.
        clock: the time of proofs, and of expiry.
        ids: random numbers.
    """

    def __init__(self, auth: AuthClient, access: Access, clock: Clock, ids: IdSource) -> None:
        self._auth = auth
        self._access = access
        self._clock = clock
        self._ids = ids
        self._digest_key = ids.nonce() + ids.nonce()
        self._tokens: Answers[bytes, str] = Answers(clock, _PAIRS_MAX)

    def register(self, meters: Meters) -> None:
        """Registers the counts of look-ups of pairs."""
        self._tokens.register(meters, "key-pair")

    async def log_in(
        self, call: Call, access_key_id: str, secret: str, use: KeyUse = KeyUse.REST
    ) -> tuple[str, int]:
        """Returns a caller token of a key pair, and when it expires, in Unix microseconds. Auth is asked, and told what
        the pair is used for.

        Raises:
            TarnError: UNAUTHENTICATED, SIGNATURE_MISMATCH: the pair is wrong; it does not tell which half.
        """
        if len(access_key_id) > _ACCESS_KEY_ID_MAX or len(secret) > _SECRET_MAX or not secret:
            text = "the key pair is wrong: check the access key id and the secret"
            raise TarnError(Kind.UNAUTHENTICATED, Reason.SIGNATURE_MISMATCH, text)
        session = await self._auth.log_in(
            call,
            access_key_id,
            secret,
            now_us=self._clock.now_us(),
            nonce=self._ids.nonce(),
            use=use,
        )
        return session.grant.caller_token, session.expire_time_us

    async def grant_of_pair(self, call: Call, access_key_id: str, secret: str) -> Grant:
        """Returns the grant of the user of a key pair.

        Raises:
            TarnError: as `log_in`; UNAUTHENTICATED: the key or its user was deleted.
        """
        pair = self._digest(access_key_id, secret)

        async def ask() -> tuple[str, int]:
            token, expire_time_us = await self.log_in(call, access_key_id, secret)
            left_ms = (expire_time_us - self._clock.now_us()) // 1000
            # Half of it: a request that begins with the token must be able to end with it.
            return token, min(_PAIR_MS_MAX, left_ms // 2)

        token = await self._tokens.load(call, pair, ask)
        try:
            return await self.grant_of_token(call, token)
        except TarnError as error:
            if error.kind is Kind.UNAUTHENTICATED:
                self._tokens.forget(pair)
            raise

    def knows_pair(self, access_key_id: str, secret: str) -> bool:
        """Whether a token of a key pair is kept, so that a request with it is not a sign-in."""
        return self._tokens.has(self._digest(access_key_id, secret))

    def known_pair(self, access_key_id: str, secret: str) -> Grant | None:
        """Returns the grant of a key pair if auth need not be asked."""
        token = self._tokens.get(self._digest(access_key_id, secret))
        return None if token is None else self._access.grant_cached(token)

    def known_token(self, token: str) -> Grant | None:
        """Returns the grant of a caller token if auth need not be asked."""
        return self._access.grant_cached(token)

    async def begin_session(self, call: Call, token: str) -> str:
        """Begins a session of a browser for a caller token; returns its secret. Raises as
        `AuthClient.begin_web_session`."""
        return await self._auth.begin_web_session(call, token)

    async def grant_of_session(self, call: Call, secret: str) -> Grant:
        """Returns the grant of a browser's session, which auth is asked for each time: an end takes effect at once.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID: it is over.
        """
        return await self._auth.authorize_web_session(call, _session_digest(secret))

    async def end_session(self, call: Call, secret: str) -> None:
        """Ends a browser's session; one that is over is not an error."""
        await self._auth.end_web_session(call, _session_digest(secret))

    async def grant_of_token(self, call: Call, token: str) -> Grant:
        """Returns the grant of a caller token.

        Raises:
            TarnError: as `Access.grant`.
        """
        asking = Call(call.request_id, token, call.deadline)
        return self._access.grant_cached(token) or await self._access.grant(asking)

    def _digest(self, access_key_id: str, secret: str) -> bytes:
        pair = f"{len(access_key_id)}:{access_key_id}{secret}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(pair, key=self._digest_key, digest_size=32).digest()


def _session_digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
