"""Users: names, roles, and a deletion that also removes their key pairs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import structlog

from tarn.core.access.anonymous import ANONYMOUS
from tarn.core.access.policy import Role
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UserId
from tarn.core.levels import Feature, FeatureGate
from tarn.kv.auth_records import User, decode_user, encode_user
from tarn.kv.keys import AuthKeys, after_prefix
from tarn.kv.register import Register
from tarn_auth.credentials import Credentials
from tarn_auth.registers import Registers
from tarn_auth.session_keys import SessionKeys

__all__ = ["Users", "user_not_found"]

_log = structlog.get_logger()

_DELETIONS_PAGE = 100


def user_not_found(user_id: str) -> TarnError:
    """Returns the error for a user that does not exist."""
    text = f"user {user_id} does not exist"
    return TarnError(Kind.NOT_FOUND, Reason.USER_NOT_FOUND, text, user_id=user_id)


class Users:
    """Creates, finds, changes and deletes users."""

    def __init__(
        self,
        registers: Registers,
        credentials: Credentials,
        session_keys: SessionKeys,
        clock: Clock,
        ids: IdSource,
        features: FeatureGate,
    ) -> None:
        self._registers = registers
        self._credentials = credentials
        self._session_keys = session_keys
        self._clock = clock
        self._ids = ids
        self._features = features

    async def create(self, user_id: UserId, roles: Iterable[Role]) -> User:
        """Creates a user, with a uid that no earlier user of this name had.

        Raises:
            TarnError: ALREADY_EXISTS, USER_EXISTS if there is a user of this name; INVALID for the name of anonymous
                callers.
        """
        if user_id == ANONYMOUS:
            text = f"{ANONYMOUS} stands for callers without an access key; choose another name"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, user_id=user_id)
        names = tuple(role.value for role in roles)
        user = User(user_id, self._ids.nonce(), names, self._clock.now_us())
        stored = decode_user(
            await self._registers.insert(AuthKeys.user(user_id), encode_user(user))
        )
        if stored.user_uid != user.user_uid:
            text = f"user {user_id} exists already"
            raise TarnError(Kind.ALREADY_EXISTS, Reason.USER_EXISTS, text, user_id=user_id)
        return stored

    async def find(self, user_id: str) -> User | None:
        """Returns a user, None if there is none."""
        found = await self._registers.get(AuthKeys.user(user_id))
        return None if found is None else decode_user(found.value)

    async def get(self, user_id: str) -> User:
        """Returns a user.

        Raises:
            TarnError: NOT_FOUND, USER_NOT_FOUND if there is none.
        """
        if (user := await self.find(user_id)) is None:
            raise user_not_found(user_id)
        return user

    async def page(self, after: str, limit: int, prefix: str = "") -> list[User]:
        """Returns up to `limit` users in byte order of their ids, after the id `after`, with a prefix."""
        start = max(AuthKeys.user(after + "\0" if after else ""), AuthKeys.user(prefix))
        end = after_prefix(AuthKeys.user(prefix))
        rows = await self._registers.page(start, end, limit) if start < end else []
        return [decode_user(value) for _, value in rows]

    async def update_roles(self, user_id: UserId, roles: Iterable[Role]) -> User:
        """Replaces a user's roles.

        Raises:
            TarnError: NOT_FOUND, USER_NOT_FOUND if there is none; as `Register.change`.
        """
        names = tuple(role.value for role in roles)
        # Roles that are taken, given and taken again are another record each time. Otherwise a change that a store
        # makes late would find the record that it expects, and give rights that were taken since.
        change_id = self._ids.nonce() if self._features.allows(Feature.NEW_FIELDS) else b""

        def decide(user: User | None) -> User:
            if user is None:
                raise user_not_found(user_id)
            return replace(user, roles=names, change_id=change_id)

        changed = await self._register(user_id).change(decide)
        assert changed is not None, "decide returns a user"
        return changed

    async def delete(self, user_id: UserId) -> None:
        """Deletes a user and its key pairs.

        The intent is recorded first, so that `finish_deletions` can remove rows that a crash leaves. Then the
        user is removed. Its key pairs name a uid that no user has, so all of them are invalid from here on,
        and only their rows remain to be removed.

        Raises:
            TarnError: NOT_FOUND, USER_NOT_FOUND if there is none; as `Register.change`.
        """
        await self.end(await self.get(user_id))

    async def end(self, user: User) -> None:
        """Deletes one incarnation of a user, as `delete`; an incarnation that is gone already is not an error."""
        await self._begin_deletion(user)

        def without_it(found: User | None) -> User | None:
            # A later user of the same name must not be deleted.
            return None if found is not None and _is_same(found, user) else found

        await self._register(user.user_id).change(without_it)
        try:
            await self._end_deletion(user)
        except TarnError as error:
            # The user is deleted, as requested; the remaining rows wait for `finish_deletions`.
            _log.warning("rows of a deleted user remain", user_id=user.user_id, reason=error.reason)

    async def finish_deletions(self) -> int:
        """Finishes deletions that a crash interrupted; returns their number. Safe to repeat.

        A deletion that never removed its user was answered with an error, so it is cancelled.
        """
        start = AuthKeys.deletion(None)
        count = 0
        while rows := await self._registers.page(start, after_prefix(start), _DELETIONS_PAGE):
            for key, value in rows:
                user = decode_user(value)
                found = await self.find(user.user_id)
                if found is not None and _is_same(found, user):
                    await self._registers.drop([key])
                else:
                    await self._end_deletion(user)
                    count += 1
        return count

    async def _begin_deletion(self, user: User) -> None:
        # Another call that deletes the same user may have written it; the uid is what counts.
        await self._registers.insert(AuthKeys.deletion(user.user_uid), encode_user(user))

    async def _end_deletion(self, user: User) -> None:
        await self._credentials.delete_all(user.user_uid)
        await self._session_keys.end_all(user.user_uid)
        await self._registers.drop([AuthKeys.deletion(user.user_uid)])

    def _register(self, user_id: UserId) -> Register[User | None]:
        key = AuthKeys.user(user_id)
        return self._registers.record(key, decode_user, encode_user, f"user {user_id}")


def _is_same(user: User, other: User) -> bool:
    """Returns whether two records are of one incarnation of a user."""
    return user.user_uid == other.user_uid
