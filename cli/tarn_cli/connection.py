"""A connection to Tarn for one command: it logs in, and is closed when the command ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tarn.client.async_client import AsyncClient
from tarn.client.paging import collect
from tarn.core.clock import Clock, IdSource
from tarn_cli.settings import Settings

__all__ = ["Connection", "collect", "connect"]

Connection = AsyncClient
"""Commands print what the server answers, so most of them use the rpcs of `graveler` and `auth` themselves."""


@asynccontextmanager
async def connect(
    settings: Settings, clock: Clock, ids: IdSource, timeout_s: float, *, log_in: bool = True
) -> AsyncIterator[Connection]:
    """Connects, and logs in unless `log_in` is False.

    Raises:
        CliError: DENIED, no credentials are set.
        TarnError: UNAVAILABLE, no server answers; UNAUTHENTICATED, the key is wrong.
    """
    key = settings.require_key() if log_in else Settings()
    connection = AsyncClient(
        settings.server,
        access_key_id=key.access_key_id,
        secret_access_key=key.secret_access_key,
        auth_addresses=settings.auth_server if settings.auth_server != settings.server else (),
        timeout_s=timeout_s,
        name="cli",
        clock=clock,
        ids=ids,
    )
    async with connection:
        if log_in:
            await connection.log_in()
        yield connection
