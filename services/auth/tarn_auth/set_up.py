"""Creates the first admin, once, for a caller that proves knowledge of the installation's secret.

There is no transaction over rows, so safety depends on the order of the writes and the names of the rows:

1. The admin's uid, and the access key id unless one was chosen, are derived from the installation's secret
   and the user's name. Each row is inserted, never overwritten. So attempts for the same user, after a
   crash or concurrently, write the same rows and give the same answer.
2. `setup` is inserted last. Until then a retry continues where the last attempt stopped, so the installation
   is never locked out. From then on SetUp is closed; it is never left open.
3. Attempts for different users race for `setup`. The loser removes its own rows, and the winner removes the
   rows of attempts that died: users whose uid is also derived from the secret.

One answer can be lost: that of an attempt which wrote `setup` and then died, if auth made the key pair.
Automated installers should choose the key pair themselves (`tarn` does): repeating SetUp with the same pair
always gives the same answer, and reveals only data that its caller sent.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

import structlog

from tarn.core.access.policy import Role
from tarn.core.access.proof import set_up_proof
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import AccessKeyId, UserId
from tarn.kv.auth_records import (
    Credential,
    Setup,
    User,
    decode_setup,
    decode_user,
    encode_setup,
    encode_user,
)
from tarn.kv.keys import AuthKeys
from tarn_auth.authorizer import Authorizer
from tarn_auth.credentials import ACCESS_KEY_SEED_BYTES, Credentials
from tarn_auth.keyring import Keyring
from tarn_auth.registers import Registers
from tarn_auth.secret_box import derive_key
from tarn_auth.users import Users

__all__ = ["FirstAdmin", "SetUp"]

_log = structlog.get_logger()

_DESCRIPTION = "made by set-up"
_USERS_PAGE = 100


@dataclass(frozen=True, slots=True)
class FirstAdmin:
    """The answer: the first key pair, including its secret."""

    credential: Credential
    secret: str = field(repr=False)


class SetUp:
    """Creates the first admin."""

    def __init__(
        self,
        registers: Registers,
        users: Users,
        credentials: Credentials,
        authorizer: Authorizer,
        keyring: Keyring,
        clock: Clock,
    ) -> None:
        self._registers = registers
        self._users = users
        self._credentials = credentials
        self._authorizer = authorizer
        self._keyring = keyring
        self._clock = clock

    async def is_done(self) -> bool:
        """Returns whether the first admin exists."""
        return await self._registers.get(AuthKeys.setup()) is not None

    async def set_up(
        self, proof: str, user_id: UserId, chosen: tuple[AccessKeyId, str] | None
    ) -> FirstAdmin:
        """Creates the first admin with a chosen key pair, or with one made here.

        Raises:
            TarnError: UNAUTHENTICATED, SIGNATURE_MISMATCH without the installation's secret, checked
                first, so that unauthenticated callers learn nothing; FAILED_PRECONDITION, ALREADY_SET_UP;
                ALREADY_EXISTS, USER_EXISTS if an attempt that died left the chosen access key id
                with another secret.
        """
        proofs = [set_up_proof(secret) for secret in self._keyring.secrets]
        if not any(hmac.compare_digest(each.encode(), proof.encode()) for each in proofs):
            text = (
                "the set-up proof was not made with this installation's secret: "
                "set `installation.secret` to that of auth"
            )
            raise TarnError(Kind.UNAUTHENTICATED, Reason.SIGNATURE_MISMATCH, text)
        if await self.is_done():
            return await self._repeat(user_id, chosen)
        user = await self._admin(user_id)
        access_key_id, secret = chosen or (self._access_key_id(user), "")
        credential, secret = await self._pair(user, access_key_id, secret)
        await self._close(user)
        return FirstAdmin(credential, secret)

    async def _repeat(self, user_id: UserId, chosen: tuple[AccessKeyId, str] | None) -> FirstAdmin:
        """Repeats the answer for a caller that sends the same key pair; refuses all others."""
        if chosen is not None:
            holder = await self._authorizer.find(chosen[0])
            if holder is not None and holder.user.user_id == user_id:
                secret = self._credentials.open(holder.credential)
                made_here = holder.credential.description == _DESCRIPTION
                if made_here and hmac.compare_digest(secret.encode(), chosen[1].encode()):
                    return FirstAdmin(holder.credential, secret)
        raise _already_set_up()

    async def _admin(self, user_id: UserId) -> User:
        user = User(user_id, self._uid(user_id), (Role.ADMIN.value,), self._clock.now_us())
        stored = decode_user(
            await self._registers.insert(AuthKeys.user(user_id), encode_user(user))
        )
        if self._is_mine(stored):
            return user  # of this attempt, or of another one for the same user
        if await self.is_done():
            raise _already_set_up()
        text = f"user {user_id} was left by an attempt with another secret; choose another"
        raise TarnError(Kind.ALREADY_EXISTS, Reason.USER_EXISTS, text, user_id=user_id)

    def _uid(self, user_id: UserId) -> bytes:
        return derive_key(self._keyring.secrets[0], f"first admin uid v1 {user_id}", 16)

    def _is_mine(self, user: User) -> bool:
        return user.user_uid == self._uid(user.user_id)

    def _access_key_id(self, user: User) -> AccessKeyId:
        purpose = f"first access key id v1 {user.user_id}"
        seed = derive_key(self._keyring.secrets[0], purpose, ACCESS_KEY_SEED_BYTES)
        return self._credentials.access_key_id_of(seed)

    async def _pair(
        self, user: User, access_key_id: AccessKeyId, secret: str
    ) -> tuple[Credential, str]:
        """Returns the key pair's row, of this or an earlier attempt; an empty secret is generated here."""
        wanted = secret or self._credentials.make_pair()[1]
        try:
            credential = await self._credentials.create(user, _DESCRIPTION, access_key_id, wanted)
        except TarnError as error:
            if error.kind is not Kind.ALREADY_EXISTS:
                raise
            found = await self._credentials.find(access_key_id)
            if found is None or found.user_uid != user.user_uid:
                raise _key_taken(access_key_id) from None
            stored = self._credentials.open(found)
            if secret and not hmac.compare_digest(stored.encode(), secret.encode()):
                raise _key_taken(access_key_id) from None
            return found, stored
        return credential, wanted

    async def _close(self, user: User) -> None:
        setup = Setup(self._clock.now_us(), user.user_id)
        stored = decode_setup(await self._registers.insert(AuthKeys.setup(), encode_setup(setup)))
        # Another attempt for the same user left the same rows, and gets the same answer.
        if stored.user_id != user.user_id:
            await self._users.end(user)
            raise _already_set_up()
        await self._remove_losers(user)

    async def _remove_losers(self, winner: User) -> None:
        """Removes rows that dead attempts left, or that losers have not removed yet."""
        try:
            for user in await self._users.page("", _USERS_PAGE):
                if user.user_id != winner.user_id and self._is_mine(user):
                    await self._users.end(user)
        except TarnError as error:
            # The answer must not be lost because of this: no later attempt would get one.
            _log.warning("an attempt to set up left a user", reason=error.reason)


def _already_set_up() -> TarnError:
    text = "this installation has its first admin already"
    return TarnError(Kind.FAILED_PRECONDITION, Reason.ALREADY_SET_UP, text)


def _key_taken(access_key_id: str) -> TarnError:
    text = f"access key {access_key_id} was left by an attempt with another secret; choose another"
    return TarnError(Kind.ALREADY_EXISTS, Reason.USER_EXISTS, text, access_key_id=access_key_id)
