"""A connection to Tarn for one command: it logs in, and is closed when the command ends."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.core.clock import Clock, IdSource
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.wire.call import Call
from tarn_cli.settings import Settings

__all__ = ["Connection", "Page", "collect", "connect"]

T = TypeVar("T")

_PAGE_SIZE = 5000
"""The greatest page size of any rpc; rpcs with a lower maximum return that many items."""


class Connection:
    """Clients of the services, and the context of their calls.

    Args:
        graveler: client of graveler.
        auth: client of auth.
        clock: measures deadlines.
        ids: makes request ids.
        token: caller token of the logged-in user; empty before the log-in.
        timeout_s: most seconds that one call may take.
    """

    def __init__(
        self,
        graveler: GravelerClient,
        auth: AuthClient,
        clock: Clock,
        ids: IdSource,
        token: str,
        timeout_s: float,
    ) -> None:
        self.graveler = graveler
        self.auth = auth
        self._clock = clock
        self._ids = ids
        self._token = token
        self._timeout_s = timeout_s

    def call(self) -> Call:
        """The context of a new call: request id, caller token, deadline."""
        deadline = self._clock.monotonic() + self._timeout_s
        return Call(f"cli-{self._ids.nonce().hex()[:16]}", self._token, deadline)

    def logged_in(self, token: str) -> Connection:
        """The same connection with a caller token."""
        return Connection(self.graveler, self.auth, self._clock, self._ids, token, self._timeout_s)


@asynccontextmanager
async def connect(
    settings: Settings, clock: Clock, ids: IdSource, timeout_s: float, *, log_in: bool = True
) -> AsyncIterator[Connection]:
    """Connects, and logs in unless `log_in` is False.

    Raises:
        CliError: DENIED, no credentials are set.
        TarnError: UNAVAILABLE, no server answers; UNAUTHENTICATED, the key is wrong.
    """
    if log_in:
        settings.require_key()
    rng = random.Random(ids.nonce())  # noqa: S311 - jitter
    graveler = GrpcTransport([settings.server], clock=clock, rng=rng)
    auth = graveler
    if settings.auth_server not in ("", settings.server):
        auth = GrpcTransport([settings.auth_server], clock=clock, rng=rng)
    try:
        connection = Connection(
            GravelerClient(graveler), AuthClient(auth), clock, ids, "", timeout_s
        )
        if log_in:
            session = await connection.auth.log_in(
                connection.call(),
                settings.access_key_id,
                settings.secret_access_key,
                now_us=clock.now_us(),
                nonce=ids.nonce(),
            )
            connection = connection.logged_in(session.grant.caller_token)
        yield connection
    finally:
        await graveler.close()
        await auth.close()


class Page(Protocol):
    """Any answer that may have a next page."""

    @property
    def next_page_token(self) -> str:
        """Token of the next page; empty after the last page."""
        ...


PageT = TypeVar("PageT", bound=Page)


async def collect(
    fetch: Callable[[int, str], Awaitable[PageT]],
    items: Callable[[PageT], Sequence[T]],
    limit: int = 0,
) -> list[T]:
    """Reads as many pages as needed and returns their items, in order.

    Args:
        fetch: reads a page; takes page size and page token.
        items: extracts the items of a page.
        limit: most items to return; 0 for no limit.
    """
    found: list[T] = []
    token = ""
    while True:
        size = min(_PAGE_SIZE, limit - len(found)) if limit else _PAGE_SIZE
        page = await fetch(size, token)
        found.extend(items(page))
        token = page.next_page_token
        if not token or (limit and len(found) >= limit):
            return found
