"""Key pairs: a user has several, each is encrypted at rest, and each is invalid once its user's uid is gone."""

from __future__ import annotations

import base64
import hmac
import re

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import AccessKeyId
from tarn.kv.auth_records import Credential, User, decode_credential, encode_credential
from tarn.kv.keys import AuthKeys, after_prefix
from tarn_auth.registers import Registers
from tarn_auth.secret_box import RandomBytes, SecretBox

__all__ = [
    "ACCESS_KEY_SEED_BYTES",
    "CREDENTIALS_PER_USER_MAX",
    "Credentials",
    "credential_not_found",
    "parse_access_key_id",
    "parse_description",
    "parse_secret",
]

CREDENTIALS_PER_USER_MAX = 100
"""Checked without a lock: concurrent creations may exceed it by their number."""

ACCESS_KEY_SEED_BYTES = 10
"""Bytes of a key id's seed: 16 characters of base32."""

_DESCRIPTION_MAX = 256
_PAGE = 1000
# The characters that S3 clients accept; base32 needs no quoting in a shell or a URL.
_ACCESS_KEY_ID = re.compile(r"[A-Za-z0-9_]{16,128}")
_SECRET = re.compile(r"[!-~]{32,128}")
_ACCESS_KEY_PREFIX = "TARN"
_SECRET_BYTES = 25  # 40 characters of base32, 200 bits


def credential_not_found(access_key_id: str) -> TarnError:
    """Returns the error for a key pair that does not exist."""
    text = f"access key {access_key_id} does not exist"
    return TarnError(Kind.NOT_FOUND, Reason.CREDENTIAL_NOT_FOUND, text, access_key_id=access_key_id)


def parse_access_key_id(value: str) -> AccessKeyId:
    """Parses an access key id: 16 to 128 letters, digits and `_`; raises `TarnError` INVALID."""
    if not _ACCESS_KEY_ID.fullmatch(value):
        raise _invalid("access_key_id", "must be 16 to 128 letters, digits and '_'")
    return AccessKeyId(value)


def parse_secret(value: str) -> str:
    """Parses a chosen secret: 32 to 128 printable ASCII characters; raises `TarnError` INVALID."""
    if not _SECRET.fullmatch(value):
        rule = "must be 32 to 128 printable ASCII characters without spaces"
        raise _invalid("secret_access_key", rule)
    return value


def parse_description(value: str) -> str:
    """Parses a description, a line of at most 256 characters; raises `TarnError` INVALID."""
    if len(value) > _DESCRIPTION_MAX or not value.isprintable():
        raise _invalid("description", f"must be one line of at most {_DESCRIPTION_MAX} characters")
    return value


class Credentials:
    """Creates, finds and deletes key pairs."""

    def __init__(
        self, registers: Registers, box: SecretBox, clock: Clock, random_bytes: RandomBytes
    ) -> None:
        self._registers = registers
        self._box = box
        self._clock = clock
        self._random_bytes = random_bytes

    def make_pair(self) -> tuple[AccessKeyId, str]:
        """Returns a new access key id, 20 characters, and a new secret, 40 characters."""
        public = self.access_key_id_of(self._random_bytes(ACCESS_KEY_SEED_BYTES))
        return public, _base32(self._random_bytes(_SECRET_BYTES))

    @staticmethod
    def access_key_id_of(seed: bytes) -> AccessKeyId:
        """Returns the access key id for `ACCESS_KEY_SEED_BYTES` bytes."""
        return AccessKeyId(_ACCESS_KEY_PREFIX + _base32(seed))

    async def create(
        self, user: User, description: str, access_key_id: AccessKeyId, secret: str
    ) -> Credential:
        """Creates a key pair for this life of a user.

        The row by owner is written first. After a crash in between it points to no key pair; listings
        skip such rows and deletions remove them. The other order would leave a key that no listing shows.

        Raises:
            TarnError: EXHAUSTED, OVERLOADED if the user has too many; ALREADY_EXISTS, USER_EXISTS if the access key
                id has another user or secret.
        """
        owned = await self._owned(user.user_uid, "", CREDENTIALS_PER_USER_MAX)
        if len(owned) >= CREDENTIALS_PER_USER_MAX and access_key_id not in owned:
            text = f"user {user.user_id} has {len(owned)} access keys already; delete one"
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text, user_id=user.user_id)
        sealed, encryption_key_id = self._box.seal(access_key_id, secret)
        credential = Credential(
            access_key_id=access_key_id,
            user_id=user.user_id,
            user_uid=user.user_uid,
            description=description,
            create_time_us=self._clock.now_us(),
            sealed_secret=sealed,
            encryption_key_id=encryption_key_id,
        )
        await self._registers.insert(
            AuthKeys.owned(user.user_uid, access_key_id), AuthKeys.OWNED_VALUE
        )
        key, value = AuthKeys.credential(access_key_id), encode_credential(credential)
        stored = decode_credential(await self._registers.insert(key, value))
        is_same = hmac.compare_digest(self.open(stored).encode(), secret.encode())
        if stored.user_uid != user.user_uid or not is_same:
            text = f"access key {access_key_id} exists already, with another secret"
            raise TarnError(Kind.ALREADY_EXISTS, Reason.USER_EXISTS, text)
        return stored

    async def find(self, access_key_id: str) -> Credential | None:
        """Returns a key pair, None if there is none. Does not check whether its user lives."""
        found = await self._registers.get(AuthKeys.credential(access_key_id))
        return None if found is None else decode_credential(found.value)

    async def page(self, user_uid: bytes, after: str, limit: int) -> tuple[list[Credential], str]:
        """Returns key pairs of a user in byte order, after the access key id `after`.

        Returns:
            Up to `limit` key pairs, and the last access key id that was read, empty if there are no
            more. Rows without a key pair make pages shorter.
        """
        owned = await self._owned(user_uid, after, limit)
        keys = [AuthKeys.credential(access_key_id) for access_key_id in owned]
        found = await self._registers.get_many(keys) if keys else []
        credentials = [decode_credential(row.value) for row in found if row is not None]
        mine = [credential for credential in credentials if credential.user_uid == user_uid]
        return mine, owned[-1] if len(owned) == limit else ""

    def open(self, credential: Credential) -> str:
        """Returns the secret of a key pair; it leaves this process only in the answer to its creation."""
        return self._box.open(
            credential.access_key_id, credential.sealed_secret, credential.encryption_key_id
        )

    async def delete(self, credential: Credential) -> None:
        """Deletes a key pair with immediate effect; an absent one is not an error."""
        # The key is removed before its row by owner: a crash in between leaves no valid key.
        await self._registers.drop([AuthKeys.credential(credential.access_key_id)])
        await self._registers.drop([AuthKeys.owned(credential.user_uid, credential.access_key_id)])

    async def delete_all(self, user_uid: bytes) -> None:
        """Removes all key pairs of a life of a user."""
        while owned := await self._owned(user_uid, "", _PAGE):
            keys = [AuthKeys.credential(access_key_id) for access_key_id in owned]
            rows = await self._registers.get_many(keys)
            mine = [
                key
                for key, row in zip(keys, rows, strict=True)
                if row is not None and decode_credential(row.value).user_uid == user_uid
            ]
            await self._registers.drop(mine)
            await self._registers.drop([AuthKeys.owned(user_uid, key) for key in owned])

    async def _owned(self, user_uid: bytes, after: str, limit: int) -> list[AccessKeyId]:
        prefix = AuthKeys.owned(user_uid, "")
        start = AuthKeys.owned(user_uid, after + "\0") if after else prefix
        rows = await self._registers.page(start, after_prefix(prefix), limit)
        return [AccessKeyId(key[len(prefix) :].decode()) for key, _ in rows]


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode()


def _invalid(name: str, rule: str) -> TarnError:
    # Never with the value: a client that confuses the two halves of its key pair sends its secret.
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, f"{name} {rule}", field=name)
