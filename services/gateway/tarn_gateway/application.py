"""The gateway, put together."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import Self

from tarn.block.port import BlockStore
from tarn.client.access import Access
from tarn.client.graveler import GravelerClient
from tarn.core.clock import Clock, IdSource
from tarn.rpc.server.endpoint import Endpoint
from tarn_gateway.backend import Backend
from tarn_gateway.config import GatewaySettings
from tarn_gateway.grants import Authenticator
from tarn_gateway.handler import S3Handler
from tarn_gateway.http import HttpServer
from tarn_gateway.repository_cache import RepositoryCache
from tarn_gateway.signing.sigv4 import SigV4Policy
from tarn_gateway.trace import Traces

__all__ = ["GatewayApplication"]


class GatewayApplication:
    """The S3 endpoint over graveler, auth and a block store, which their owners close.

    An async context manager: entering it listens. It answers no rpc of its own.

    Args:
        settings: see there.
        graveler: metadata.
        access: who asks, and what they may do.
        blocks: the bytes of objects.
        clock: time.
        ids: block addresses, request ids.
        tls: for https; None for http.
        listens: told `("s3", "host:port")` once it listens.
    """

    name = "gateway"
    endpoints: Sequence[Endpoint] = ()

    def __init__(
        self,
        settings: GatewaySettings,
        graveler: GravelerClient,
        access: Access,
        blocks: BlockStore,
        *,
        clock: Clock,
        ids: IdSource,
        tls: ssl.SSLContext | None = None,
        listens: Callable[[str, str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._tls = tls
        self._listens = listens
        bounds = settings.bounds
        backend = self._backend = Backend(
            graveler, blocks, RepositoryCache(graveler, clock), clock, ids, bounds, settings.region
        )
        policy = SigV4Policy(settings.region)
        authenticator = Authenticator(access, clock, policy, timeout_s=bounds.call_timeout_s)
        traces = Traces(access_log=settings.access_log)
        handler = S3Handler(authenticator, backend, traces, domains=settings.domains)
        self._server = HttpServer(
            handler,
            settings.limits,
            clock=clock,
            ids=ids,
            on_error=handler.refuse,
            observer=traces.end,
        )
        self._port = 0

    @property
    def port(self) -> int:
        """Where it listens, once it does."""
        return self._port

    async def __aenter__(self) -> Self:
        """Listens.

        Raises:
            OSError: the address is taken or not ours.
        """
        settings = self._settings
        await self._server.__aenter__()
        try:
            self._port = await self._server.listen(
                settings.host, settings.port, tls=self._tls, reuse_port=settings.reuse_port
            )
        except BaseException:
            await self._server.__aexit__()
            raise
        if self._listens is not None:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            self._listens("s3", f"{host}:{self._port}")
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Aborts what is left; `drain` first to lose nothing."""
        await self._server.__aexit__(*exc)
        await self._backend.removals.close()

    async def drain(self, timeout_s: float) -> None:
        """Stops listening and lets requests under way finish, for at most `timeout_s`; then the removals
        of blocks behind their answers, for as long again."""
        await self._server.drain(timeout_s)
        await self._backend.removals.drain(timeout_s)
