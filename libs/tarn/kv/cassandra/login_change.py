"""Takes another login of the configuration into use while the store is open."""

from __future__ import annotations

from tarn.config import Config
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.cassandra.store import CassandraKv

__all__ = ["LoginChange"]


class LoginChange:
    """Tells a store of another role or password (`tarn.config.SecretChanges`).

    Args:
        store: the open store.
        config: the configuration that it was opened with.
    """

    def __init__(self, store: CassandraKv, config: Config) -> None:
        self._store = store
        self._used = _login(config)

    async def use(self, config: Config) -> None:
        """Takes the login of a configuration into use; does nothing if it is in use already.

        Raises:
            TarnError: FAILED_PRECONDITION: there is none any more. As `CassandraKv.use_login`.
        """
        login = _login(config)
        if login == self._used:
            return
        if login is None:
            text = "metadata.db.cassandra.username and .password were removed; restart to connect without a login"
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)
        await self._store.use_login(*login)
        self._used = login


def _login(config: Config) -> tuple[str, str] | None:
    section = config.metadata.db.cassandra
    if section.username is None or section.password is None:
        return None
    return section.username, section.password.reveal()
