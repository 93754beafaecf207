"""A connection to Tarn for one command: it logs in, and is closed when the command ends."""

from __future__ import annotations

import io
import logging
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import structlog

from tarn.client.async_client import AsyncClient
from tarn.client.compactor import CompactorClient
from tarn.client.paging import collect
from tarn.core.clock import Clock, IdSource
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.process.tls import ChannelTls
from tarn_cli.settings import DEFAULT_COMPACTOR, Settings
from tarn_cli.terminal import write_lines

__all__ = ["Connection", "collect", "connect", "connect_to_compactor"]

Connection = AsyncClient
"""Commands print the answers of the server, so most of them use the rpcs of `graveler` and `auth` themselves."""


@asynccontextmanager
async def connect(
    settings: Settings, clock: Clock, ids: IdSource, timeout_s: float, *, log_in: bool = True
) -> AsyncIterator[Connection]:
    """Connects, and logs in unless `log_in` is False.

    Raises:
        CliError: DENIED, no credentials are set; USAGE or NOT_FOUND, the files for TLS.
        TarnError: UNAVAILABLE, no server answers; UNAUTHENTICATED, the key is wrong.
    """
    key = settings.require_key() if log_in else Settings()
    connection = AsyncClient(
        settings.server,
        access_key_id=key.access_key_id,
        secret_access_key=key.secret_access_key,
        auth_addresses=settings.auth_server if settings.auth_server != settings.server else (),
        tls=settings.tls(),
        timeout_s=timeout_s,
        name="cli",
        clock=clock,
        ids=ids,
    )
    with _quiet():
        async with connection:
            if log_in:
                await connection.log_in()
            yield connection


@asynccontextmanager
async def connect_to_compactor(settings: Settings, clock: Clock) -> AsyncIterator[CompactorClient]:
    """Connects to the compactors, with the certificates of all services. Its calls carry the token of a login.

    Raises:
        CliError: as `Settings.tls`.
    """
    tls = settings.tls()
    transport = GrpcTransport(
        [settings.compactor_server or DEFAULT_COMPACTOR],
        tls=None if tls is None else ChannelTls(tls),
        clock=clock,
        rng=random.SystemRandom(),
    )
    try:
        yield CompactorClient(transport)
    finally:
        await transport.close()


class _Lines(io.StringIO):
    """A file of lines on standard error."""

    def write(self, text: str) -> int:
        write_lines(text.splitlines(), err=True)
        return len(text)


@contextmanager
def _quiet() -> Iterator[None]:
    """Within the block, log lines of libraries go to standard error, from warnings on: standard output is for results,
    which programs parse. By default structlog prints all lines there."""
    if structlog.is_configured():
        yield
        return
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        processors=[
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(colors=False),
        ],
        logger_factory=lambda *_: structlog.PrintLogger(_Lines()),
    )
    try:
        yield
    finally:
        structlog.reset_defaults()
