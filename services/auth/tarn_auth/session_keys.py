"""Session keys: stored by their ids, bounded in number, and removed some time after they expired.

A session key has two rows: the key itself, and one in the index of its user with the time of its end. Whether a key is
valid is decided by `tarn_auth.authorizer`, from the key, its user, and the key pair that issued it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tarn.core.access.policy import Binding
from tarn.core.access.session_policy import Permission
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import AccessKeyId
from tarn.core.levels import Feature, FeatureGate
from tarn.kv.auth_records import (
    Credential,
    SessionKey,
    User,
    decode_session_key,
    encode_session_key,
)
from tarn.kv.keys import AuthKeys, after_prefix
from tarn.kv.port import Row
from tarn_auth.registers import Registers
from tarn_auth.secret_box import RandomBytes, SecretBox

__all__ = [
    "SESSIONS_MAX",
    "SESSIONS_PER_USER_MAX",
    "NewSessionKey",
    "SessionKeys",
    "is_token_of",
    "session_not_found",
]

SESSIONS_PER_USER_MAX: Final = 100
SESSIONS_MAX: Final = 10_000
"""Keys that live, of all users together. Both are checked without a lock: creations beside each other, and in the last
minute on other replicas, may exceed them by their number."""

_KEPT_US: Final = 3_600_000_000
"""An expired key stays for this time, so that its holder learns that it has expired."""
_SWEEP_SECONDS: Final = 60.0
_PREFIX: Final = "TSES"
_SEED_BYTES: Final = 10
_SECRET_BYTES: Final = 25
_TOKEN_BYTES: Final = 32
_PAGE: Final = 1000
_END: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class NewSessionKey:
    """A new session key, with the secrets that leave auth only once."""

    key: SessionKey
    secret: str = field(repr=False)
    token: str = field(repr=False)


def session_not_found(access_key_id: str) -> TarnError:
    """Returns the error for a session key that does not exist."""
    text = f"session key {access_key_id} does not exist; it may have ended"
    return TarnError(Kind.NOT_FOUND, Reason.CREDENTIAL_NOT_FOUND, text, access_key_id=access_key_id)


def is_token_of(key: SessionKey, digest: bytes) -> bool:
    """Whether a digest is that of a key's session token."""
    return hmac.compare_digest(key.token_digest, digest)


class SessionKeys:
    """Creates, finds, renews and ends session keys.

    Args:
        features: whether replicas of the last release may still run, which would misread them.
    """

    def __init__(
        self,
        registers: Registers,
        box: SecretBox,
        clock: Clock,
        random_bytes: RandomBytes,
        features: FeatureGate,
    ) -> None:
        self._registers = registers
        self._box = box
        self._clock = clock
        self._random_bytes = random_bytes
        self._features = features
        self._living = 0
        self._sweep_at = -1.0

    async def create(
        self,
        user: User,
        issuer: Credential,
        description: str,
        duration_s: int,
        permissions: Sequence[Permission],
        bindings: Sequence[Binding],
    ) -> NewSessionKey:
        """Creates a session key of a user, who has proved to hold the key pair `issuer`.

        The row of the index is written first: after a crash in between it leads to no key. The other order would leave
        a key that no listing shows.

        Raises:
            TarnError: FAILED_PRECONDITION, FEATURE_LEVEL; EXHAUSTED, OVERLOADED: too many live; errors of the store.
        """
        self._features.require(Feature.SESSION_KEYS)
        await self._require_room(user)
        access_key_id = AccessKeyId(_PREFIX + _base32(self._random_bytes(_SEED_BYTES)))
        secret = _base32(self._random_bytes(_SECRET_BYTES))
        token = _base32(self._random_bytes(_TOKEN_BYTES)).rstrip("=")
        sealed, encryption_key_id = self._box.seal(access_key_id, secret)
        now_us = self._clock.now_us()
        key = SessionKey(
            access_key_id=access_key_id,
            user_id=user.user_id,
            user_uid=user.user_uid,
            issuer_access_key_id=issuer.access_key_id,
            description=description,
            create_time_us=now_us,
            expire_time_us=now_us + duration_s * 1_000_000,
            sealed_secret=sealed,
            encryption_key_id=encryption_key_id,
            token_digest=hashlib.sha256(token.encode()).digest(),
            permissions=tuple(permissions),
            bindings=tuple(bindings),
        )
        index = AuthKeys.session_end(user.user_uid, access_key_id)
        await self._registers.insert(index, _END.pack(key.expire_time_us))
        await self._registers.insert(AuthKeys.session(access_key_id), encode_session_key(key))
        self._living += 1
        return NewSessionKey(key, secret, token)

    async def find(self, access_key_id: str) -> SessionKey | None:
        """Returns a session key, expired or not; None if there is none."""
        found = await self._registers.get(AuthKeys.session(access_key_id))
        return None if found is None else decode_session_key(found.value)

    async def page(self, user_uid: bytes, after: str, limit: int) -> tuple[list[SessionKey], str]:
        """Returns session keys of a user that live, in byte order, after the access key id `after`.

        Returns:
            Up to `limit` keys, and the last access key id that was read, empty if there are no more.
        """
        rows = await self._index(user_uid, after, limit)
        ids = [_id_of(key) for key, _ in rows]
        keys = [AuthKeys.session(each) for each in ids]
        found = await self._registers.get_many(keys) if keys else []
        sessions = [decode_session_key(row.value) for row in found if row is not None]
        now_us = self._clock.now_us()
        living = [
            each for each in sessions if each.user_uid == user_uid and each.expire_time_us > now_us
        ]
        return living, ids[-1] if len(ids) == limit else ""

    def open(self, key: SessionKey) -> str:
        """Returns the secret of a session key, for signing keys and proofs."""
        return self._box.open(key.access_key_id, key.sealed_secret, key.encryption_key_id)

    async def renew(self, key: SessionKey, duration_s: int) -> SessionKey:
        """Lets a session key live for `duration_s` from now, but not beyond 36 hours from its creation. A renewal never
        shortens a life, so one that arrives late or twice does no harm.

        Raises:
            TarnError: NOT_FOUND, CREDENTIAL_NOT_FOUND: it has ended or expired; errors of `Register.change`.
        """
        until_us = min(self._clock.now_us() + duration_s * 1_000_000, key.renew_until_us)

        def decide(found: SessionKey | None) -> SessionKey | None:
            if found is None or found.expire_time_us <= self._clock.now_us():
                raise session_not_found(key.access_key_id)
            return replace(found, expire_time_us=max(found.expire_time_us, until_us))

        row = self._registers.record(
            AuthKeys.session(key.access_key_id),
            decode_session_key,
            encode_session_key,
            f"session key {key.access_key_id}",
        )
        renewed = await row.change(decide)
        assert renewed is not None, "decide returns a key"
        index = AuthKeys.session_end(key.user_uid, key.access_key_id)
        end = _END.pack(renewed.expire_time_us)
        end_row = self._registers.record(index, bytes, bytes, "the index of session keys")
        with contextlib.suppress(TarnError):  # a sweep asks the key itself
            await end_row.change(lambda found: None if found is None else max(found, end))
        return renewed

    async def end(self, key: SessionKey) -> None:
        """Ends a session key; one that is gone is not an error."""
        # The key is removed before its row in the index: a crash in between leaves no valid key.
        await self._registers.drop([AuthKeys.session(key.access_key_id)])
        await self._registers.drop([AuthKeys.session_end(key.user_uid, key.access_key_id)])

    async def end_all(self, user_uid: bytes) -> None:
        """Removes all session keys of a life of a user."""
        while rows := await self._index(user_uid, "", _PAGE):
            await self._registers.drop([AuthKeys.session(_id_of(key)) for key, _ in rows])
            await self._registers.drop([key for key, _ in rows])

    async def _require_room(self, user: User) -> None:
        now_us, start = self._clock.now_us(), AuthKeys.session_end(user.user_uid, "")
        if self._clock.monotonic() >= self._sweep_at:
            self._sweep_at = self._clock.monotonic() + _SWEEP_SECONDS
            self._living = await self._sweep(now_us)
        own = await self._ends(start, after_prefix(start), SESSIONS_PER_USER_MAX * 10)
        if sum(end_us > now_us for _, end_us in own) >= SESSIONS_PER_USER_MAX:
            text = (
                f"user {user.user_id} has {SESSIONS_PER_USER_MAX} session keys that live; end one"
            )
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text, user_id=user.user_id)
        if self._living >= SESSIONS_MAX or len(own) >= SESSIONS_PER_USER_MAX * 10:
            text = "too many session keys live or have just expired; try again later"
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)

    async def _sweep(self, now_us: int) -> int:
        """Removes keys that expired some time ago; returns the number of those that live."""
        start, end = AuthKeys.SESSION_ENDS, after_prefix(AuthKeys.SESSION_ENDS)
        living = 0
        while rows := await self._ends(start, end, _PAGE):
            living += sum(end_us > now_us for _, end_us in rows)
            old = [key for key, end_us in rows if end_us + _KEPT_US <= now_us]
            keys = [AuthKeys.session(_id_of(key)) for key in old]
            found = await self._registers.get_many(keys) if keys else []
            gone = []
            for index, key, row in zip(old, keys, found, strict=True):
                if row is None or decode_session_key(row.value).expire_time_us <= now_us:
                    gone.append((key, index))
                else:
                    living += 1  # it was renewed, and its row in the index was not
            await self._registers.drop([key for key, _ in gone])
            await self._registers.drop([index for _, index in gone])
            start = rows[-1][0] + b"\0"
        return living

    async def _ends(self, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, int]]:
        assert end is not None, "the prefix has an end"
        rows = await self._registers.page(start, end, limit)
        return [(key, _END.unpack(value)[0]) for key, value in rows]

    async def _index(self, user_uid: bytes, after: str, limit: int) -> list[Row]:
        prefix = AuthKeys.session_end(user_uid, "")
        start = AuthKeys.session_end(user_uid, after + "\0") if after else prefix
        return await self._registers.page(start, after_prefix(prefix), limit)


def _id_of(index_key: bytes) -> AccessKeyId:
    return AccessKeyId(index_key.rpartition(b"/")[2].decode())


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode()
