"""Sessions of browsers: what a cookie of the REST endpoint stands for (docs/design/web-sessions.md).

A session has two rows: the session itself, named by the SHA-256 of its secret, and one in the index of its user with
the time of its end. Nothing is kept in memory, and each request reads the session, its key pair and its user, so an end
takes effect at once. Sessions that are over are removed when others begin.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tarn.core.access.key_use import KeyUse
from tarn.core.access.policy import Grant
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import Feature, FeatureGate
from tarn.kv.auth_records import WebSession, decode_web_session, encode_web_session
from tarn.kv.keys import AuthKeys, after_prefix
from tarn_auth.authorizer import Authorizer, Holder
from tarn_auth.key_uses import KeyUses
from tarn_auth.registers import Registers
from tarn_auth.secret_box import RandomBytes

__all__ = [
    "IDLE_US",
    "LIFE_US",
    "WEB_SESSIONS_MAX",
    "WEB_SESSIONS_PER_USER_MAX",
    "WebSessions",
    "web_session_id",
]

LIFE_US: Final = 12 * 3_600_000_000
IDLE_US: Final = 3_600_000_000
WEB_SESSIONS_PER_USER_MAX: Final = 16
"""One more ends the one that was not used for the longest time: whoever lost a cookie can always sign in."""
WEB_SESSIONS_MAX: Final = 10_000
"""Of all users together. Both are checked without a lock: sessions that begin beside each other, and in the last minute
on other replicas, may exceed them by their number."""

_USE_GRAIN_US: Final = 60_000_000
_SWEEP_SECONDS: Final = 60.0
_SECRET_BYTES: Final = 32
_DIGEST_BYTES: Final = 32
_ID_DIGITS: Final = 16
_PAGE: Final = 1000
_END: Final = struct.Struct(">q")


def web_session_id(digest: bytes) -> str:
    """Returns the name of a session among those of its user; it proves nothing."""
    return digest.hex()[:_ID_DIGITS]


class WebSessions:
    """Begins, finds and ends sessions of browsers.

    Args:
        authorizer: finds users and their key pairs.
        features: whether replicas of the last release may still run, whose backups would save sessions.
    """

    def __init__(
        self,
        registers: Registers,
        authorizer: Authorizer,
        clock: Clock,
        random_bytes: RandomBytes,
        features: FeatureGate,
        uses: KeyUses,
    ) -> None:
        self._registers = registers
        self._authorizer = authorizer
        self._uses = uses
        self._clock = clock
        self._random_bytes = random_bytes
        self._features = features
        self._stored = 0
        self._sweep_at = -1.0

    async def begin(self, caller_token: str) -> str:
        """Begins a session of a user who has just signed in; returns its secret, which auth does not keep.

        The row of the index is written first: after a crash in between it leads to no session. The other order would
        leave a session that no listing shows. If the answer is lost, no browser has the secret, and the session
        ends for want of use.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID; DENIED, ACCESS_DENIED: the token is that of a session key,
                which makes itself no other credential; FAILED_PRECONDITION, FEATURE_LEVEL; EXHAUSTED, OVERLOADED: too
                many live; errors of the store.
        """
        self._features.require(Feature.WEB_SESSIONS)
        holder = await self._authorizer.holder_of(caller_token)
        if holder.session is not None:
            text = "a session key begins no session of a browser; sign in with a key pair"
            raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, text)
        await self._make_room(holder)
        secret = base64.urlsafe_b64encode(self._random_bytes(_SECRET_BYTES)).decode().rstrip("=")
        digest = hashlib.sha256(secret.encode()).digest()
        now_us = self._clock.now_us()
        session = WebSession(
            holder.user.user_id,
            holder.user.user_uid,
            holder.credential.access_key_id,
            create_time_us=now_us,
            use_time_us=now_us,
        )
        index = AuthKeys.web_session_end(session.user_uid, digest)
        await self._registers.insert(index, _END.pack(now_us + LIFE_US))
        await self._registers.insert(AuthKeys.web_session(digest), encode_web_session(session))
        self._stored += 1
        return secret

    async def authorize(self, digest: bytes) -> Grant:
        """Returns the grant of the user of a session, as stored now, and notes the use.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID: it is over, or its key pair or its user was deleted.
        """
        session = await self._find(digest)
        holder = None if session is None else await self._authorizer.find(session.access_key_id)
        if session is None or holder is None or not _is_of(session, holder):
            text = "the session is over; sign in again"
            raise TarnError(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID, text)
        if session.use_time_us + _USE_GRAIN_US <= self._clock.now_us():
            # Without it, the session ends earlier: the next use notes it.
            with contextlib.suppress(TarnError):
                await self._note_use(digest)
        self._uses.note(holder.credential, KeyUse.WEB)
        return self._authorizer.grant(holder, KeyUse.WEB)

    async def end(self, digest: bytes) -> None:
        """Ends a session; one that is over is not an error."""
        session = await self._find(digest)
        if session is not None:
            await self._drop(session.user_uid, [digest])

    async def of_user(self, user_uid: bytes) -> list[tuple[bytes, WebSession]]:
        """Returns the sessions of a life of a user that live, with their digests; the one that was used last first."""
        start = AuthKeys.web_session_end(user_uid, b"")
        rows = await self._registers.page(start, after_prefix(start), _PAGE)
        found = await self._sessions([_digest_of(key) for key, _ in rows])
        living = [(digest, session) for digest, session in found if session is not None]
        return sorted(living, key=lambda each: each[1].use_time_us, reverse=True)

    async def end_of_user(self, user_uid: bytes, name: str = "") -> int:
        """Ends all sessions of a life of a user, or the one with a name (`web_session_id`); returns their number."""
        found = await self.of_user(user_uid)
        digests = [digest for digest, _ in found if name in ("", web_session_id(digest))]
        await self._drop(user_uid, digests)
        return len(digests)

    async def _find(self, digest: bytes) -> WebSession | None:
        """Returns a session that is not over; None if there is none."""
        if len(digest) != _DIGEST_BYTES:
            return None
        return (await self._sessions([digest]))[0][1]

    async def _sessions(self, digests: Sequence[bytes]) -> list[tuple[bytes, WebSession | None]]:
        keys = [AuthKeys.web_session(digest) for digest in digests]
        rows = await self._registers.get_many(keys) if keys else []
        return [
            (digest, None if row is None else self._living(decode_web_session(row.value)))
            for digest, row in zip(digests, rows, strict=True)
        ]

    def _living(self, session: WebSession) -> WebSession | None:
        now_us = self._clock.now_us()
        end_us = min(session.create_time_us + LIFE_US, session.use_time_us + IDLE_US)
        return session if now_us < end_us else None

    async def _note_use(self, digest: bytes) -> None:
        now_us = self._clock.now_us()

        def decide(found: WebSession | None) -> WebSession | None:
            # One that was ended meanwhile stays so.
            return (
                None
                if found is None
                else replace(found, use_time_us=max(found.use_time_us, now_us))
            )

        row = self._registers.record(
            AuthKeys.web_session(digest),
            decode_web_session,
            encode_web_session,
            f"web session {web_session_id(digest)}",
        )
        await row.change(decide)

    async def _drop(self, user_uid: bytes, digests: Sequence[bytes]) -> None:
        # The sessions are removed before their rows in the index: a crash in between leaves none that lives.
        await self._registers.drop([AuthKeys.web_session(each) for each in digests])
        await self._registers.drop([AuthKeys.web_session_end(user_uid, each) for each in digests])

    async def _make_room(self, holder: Holder) -> None:
        """Ends what a user has too many of, and refuses a session too many in sum."""
        if self._clock.monotonic() >= self._sweep_at:
            self._sweep_at = self._clock.monotonic() + _SWEEP_SECONDS
            self._stored = await self._sweep(are_idle_read=False)
            if self._stored >= WEB_SESSIONS_MAX:
                self._stored = await self._sweep(are_idle_read=True)
        if self._stored >= WEB_SESSIONS_MAX:
            text = "too many sessions of browsers live; use a key pair with each request, or try again later"
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
        uid = holder.user.user_uid
        own = await self.of_user(uid)
        await self._drop(uid, [digest for digest, _ in own[WEB_SESSIONS_PER_USER_MAX - 1 :]])

    async def _sweep(self, *, are_idle_read: bool) -> int:
        """Removes sessions that are over; returns the number of the others.

        Args:
            are_idle_read: whether to read each session, to find those that were not used. The index alone tells which
                ones are over for their age.
        """
        start, end = AuthKeys.WEB_SESSION_ENDS, after_prefix(AuthKeys.WEB_SESSION_ENDS)
        now_us, kept = self._clock.now_us(), 0
        while rows := await self._registers.page(start, end, _PAGE):
            gone = [key for key, value in rows if _END.unpack(value)[0] <= now_us]
            if are_idle_read:
                found = await self._sessions([_digest_of(key) for key, _ in rows])
                gone = [
                    key for (key, _), (_, each) in zip(rows, found, strict=True) if each is None
                ]
            await self._registers.drop([AuthKeys.web_session(_digest_of(key)) for key in gone])
            await self._registers.drop(gone)
            kept += len(rows) - len(gone)
            start = rows[-1][0] + b"\0"
        return kept


def _is_of(session: WebSession, holder: Holder) -> bool:
    """Whether a session is of this life of a user."""
    return hmac.compare_digest(session.user_uid, holder.user.user_uid)


def _digest_of(index_key: bytes) -> bytes:
    return bytes.fromhex(index_key.rpartition(b"/")[2].decode())
