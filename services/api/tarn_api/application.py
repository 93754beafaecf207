"""Assembles the REST endpoint from its parts."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import Self

from tarn.aio.task_set import TaskSet
from tarn.block.port import BlockStore
from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.core.access.service import Service
from tarn.core.clock import Clock, IdSource
from tarn.gate.access import Access
from tarn.gate.addresses import AddressRate
from tarn.gate.rates import RateLimits
from tarn.gate.request_counts import RequestCounts
from tarn.gate.service_calls import ServiceCalls
from tarn.gate.sign_in import SignIn
from tarn.objects.backend import ObjectBackend
from tarn.objects.repository_cache import RepositoryCache
from tarn.rpc.client.addresses import address_of
from tarn.rpc.wire.methods import Endpoint as RpcEndpoint
from tarn.telemetry.audit.log import AuditLog
from tarn.telemetry.meters import Meters
from tarn_api.config import ApiSettings
from tarn_api.context import Backend
from tarn_api.endpoint import Endpoint
from tarn_api.feed.feeds import Feeds
from tarn_api.http import HttpServer
from tarn_api.rpcs import Rpcs
from tarn_api.traces import Traces
from tarn_api.web.page import compile_templates

__all__ = ["ApiApplication"]


class ApiApplication:
    """The REST endpoint over graveler, auth and a block store, which their owners close.

    An async context manager: entering it starts to listen. It serves no rpcs and keeps no state.

    Args:
        settings: see `ApiSettings`.
        graveler: reads and writes metadata.
        auth: checks key pairs.
        access: provides grants.
        blocks: stores the bytes of objects.
        clock: time.
        ids: request ids, nonces of sign-in, and addresses of blocks.
        tls: for https; None for http.
        listens: called with `("api", "host:port")` once the endpoint listens.
        meters: counts requests; None: only for tests.
        audit: records requests; None: nothing does.
        rates: those of the gateway in this process, which reads them; None: the endpoint reads its own.
        request_counts: those of the gateway in this process, which reports them; None: the endpoint reports its own,
            if the settings say so.
    """

    name = "api"
    endpoints: Sequence[RpcEndpoint] = ()

    def __init__(
        self,
        settings: ApiSettings,
        graveler: GravelerClient,
        auth: AuthClient,
        rpcs: Rpcs,
        access: Access,
        blocks: BlockStore,
        *,
        clock: Clock,
        ids: IdSource,
        tls: ssl.SSLContext | None = None,
        listens: Callable[[str, str], None] | None = None,
        meters: Meters | None = None,
        audit: AuditLog | None = None,
        rates: RateLimits | None = None,
        request_counts: RequestCounts | None = None,
    ) -> None:
        meters = meters or Meters()
        self._settings, self._tls, self._listens = settings, tls, listens
        sign_in = SignIn(auth, access, clock, ids)
        sign_in.register(meters)
        repositories = RepositoryCache(graveler, clock)
        calls = ServiceCalls(access, Service.API, clock, ids)
        objects = self._objects = ObjectBackend(
            graveler=graveler,
            blocks=blocks,
            repositories=repositories,
            clock=clock,
            ids=ids,
            own_token=calls.proof,
            kept_token=calls.kept_proof,
        )
        self._feeds = Feeds(graveler, clock, ids, settings.feeds)
        self._own_counts: RequestCounts | None = None
        if request_counts is None and settings.reports_requests:
            request_counts = RequestCounts(meters, graveler, calls, clock, ids)
            self._own_counts = request_counts
        self._request_counts = request_counts
        backend = Backend(
            graveler,
            auth,
            rpcs,
            sign_in,
            clock,
            settings.version,
            settings.namespace_prefix,
            AddressRate(clock, settings.failed_sign_ins),
            objects,
            self._feeds,
            settings.bodies,
            settings.presigned_links,
            settings.s3,
            audit_folder=settings.audit_folder,
            request_counts=request_counts,
        )
        self._tasks = TaskSet()
        self._own_rates: RateLimits | None = None
        if rates is None:
            rates = RateLimits(graveler, calls, clock, gateways=settings.processes)
            self._own_rates = rates
        traces = Traces(meters, audit, access_log=settings.access_log)
        endpoint = Endpoint(backend, traces, ids, meters, settings.requests_max, rates)
        self._server = HttpServer(endpoint, settings.bounds)
        meters.sample("api.connections", lambda: self._server.connection_count)
        self._port = 0

    @property
    def port(self) -> int:
        """The port on which the endpoint listens; valid after entering."""
        return self._port

    async def __aenter__(self) -> Self:
        """Starts to listen.

        Raises:
            OSError: the address is in use or does not belong to this machine.
        """
        settings = self._settings
        self._port = await self._server.listen(
            settings.host, settings.port, tls=self._tls, reuse_port=settings.reuse_port
        )
        if self._own_rates is not None:
            self._tasks.spawn(self._own_rates.run())
        if self._own_counts is not None:
            self._tasks.spawn(self._own_counts.run())
        self._tasks.spawn(compile_templates())
        if self._listens is not None:
            self._listens("api", address_of(settings.host, self._port))
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Aborts remaining requests; call `drain` first to lose none."""
        self._feeds.end()
        await self._server.__aexit__(*exc)
        await self._feeds.close()
        await self._objects.removals.close()
        await self._tasks.close()

    async def drain(self, timeout_s: float) -> None:
        """Stops listening and lets current requests finish, for at most `timeout_s`. Then waits for the removals of
        blocks that follow their answers, again for at most `timeout_s`. Streams of events end at once."""
        self._feeds.end()
        await self._server.drain(timeout_s)
        await self._objects.removals.drain(timeout_s)
        if self._request_counts is not None:
            await self._request_counts.drain(timeout_s)
