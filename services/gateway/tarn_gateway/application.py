"""Assembles the gateway from its parts."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import Self

from tarn.aio.task_set import TaskSet
from tarn.block.port import BlockStore
from tarn.client.graveler import GravelerClient
from tarn.core.access.service import Service
from tarn.core.clock import Clock, IdSource
from tarn.gate.access import Access
from tarn.gate.rates import RateLimits
from tarn.gate.request_counts import RequestCounts
from tarn.gate.service_calls import ServiceCalls
from tarn.objects.repository_cache import RepositoryCache
from tarn.rpc.client.addresses import address_of
from tarn.rpc.wire.methods import Endpoint
from tarn.telemetry.audit.log import AuditLog
from tarn.telemetry.meters import Meters
from tarn.telemetry.tracing import Tracing
from tarn_gateway.anonymous import AnonymousRequests
from tarn_gateway.backend import Backend
from tarn_gateway.bucket_cache import BucketCache
from tarn_gateway.config import GatewaySettings
from tarn_gateway.documents.reading import DocumentReader
from tarn_gateway.grants import Authenticator
from tarn_gateway.handler import S3Handler
from tarn_gateway.http import HttpServer
from tarn_gateway.overload import request_queue
from tarn_gateway.s3error import head_refusal
from tarn_gateway.signing.sigv4 import SigV4Policy
from tarn_gateway.traces import Traces

__all__ = ["GatewayApplication"]


class GatewayApplication:
    """The S3 endpoint over graveler, auth and a block store, which their owners close.

    An async context manager: entering it starts to listen. It serves no rpcs.

    Args:
        settings: see `GatewaySettings`.
        graveler: reads and writes metadata.
        access: authenticates callers and provides their grants.
        blocks: stores the bytes of objects.
        clock: time.
        ids: makes block addresses and request ids.
        tls: for https; None for http.
        listens: called with `("s3", "host:port")` once the endpoint listens.
        meters: counts requests; None: only for tests.
        tracing: traces requests that are sampled; None: none.
        audit: records requests; None: nothing does.

    Attributes:
        rates: limits of requests and bytes, also for another endpoint of this process.
        request_counts: reports the requests of all endpoints of this process; None: nothing does.
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
        meters: Meters | None = None,
        tracing: Tracing | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        meters = self._meters = meters or Meters()
        self._settings, self._tls, self._listens, self._port = settings, tls, listens, 0
        bounds = settings.bounds
        repositories = RepositoryCache(graveler, clock)
        repositories.register(meters)
        buckets = BucketCache(graveler, clock)
        buckets.register(meters)
        access.register(meters)
        calls = ServiceCalls(access, Service.GATEWAY, clock, ids)
        backend = self._backend = Backend(
            graveler=graveler,
            blocks=blocks,
            repositories=repositories,
            buckets=buckets,
            clock=clock,
            ids=ids,
            bounds=bounds,
            region=settings.region,
            own_token=calls.proof,
            kept_token=calls.kept_proof,
            bucket_mode=settings.bucket_mode,
            documents=DocumentReader(bounds.document_memory_bytes),
        )
        meters.sample("gateway.document_memory", lambda: backend.documents.budget.held)
        self.rates = RateLimits(graveler, calls, clock, gateways=settings.gateways)
        counts = RequestCounts(meters, graveler, calls, clock, ids)
        self.request_counts = counts if settings.reports_requests else None
        self._tasks = TaskSet()
        traces = Traces(
            access_log=settings.access_log,
            meters=meters,
            slow_s=settings.slow_operation_s,
            tracing=tracing,
            clock=clock,
            rates=self.rates,
            audit=audit,
        )
        handler = S3Handler(
            _authenticator(settings, access, clock),
            backend,
            traces,
            domains=settings.domains,
            rates=self.rates,
            queue=request_queue(clock, meters),
            anonymous=AnonymousRequests(backend, settings.anonymous),
        )
        self._server = HttpServer(
            handler,
            settings.limits,
            clock=clock,
            ids=ids,
            on_error=handler.refuse,
            observer=traces.end,
            on_head_error=head_refusal,
        )

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
        await self._server.__aenter__()
        try:
            self._port = await self._server.listen(
                settings.host, settings.port, tls=self._tls, reuse_port=settings.reuse_port
            )
        except BaseException:
            await self._server.__aexit__()
            raise
        self._tasks.spawn(self.rates.run())
        if self.request_counts is not None:
            self._tasks.spawn(self.request_counts.run())
        self._meters.sample("gateway.connections", lambda: self._server.connection_count)
        self._meters.sample("gateway.unsent_memory", lambda: self._server.unsent_bytes)
        if self._listens is not None:
            self._listens("s3", address_of(settings.host, self._port))
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Aborts remaining requests; call `drain` first to lose none."""
        await self._server.__aexit__(*exc)
        await self._tasks.close()
        await self._backend.removals.close()

    async def drain(self, timeout_s: float) -> None:
        """Stops listening and lets current requests finish, for at most `timeout_s`. Then waits for the
        removals of blocks that follow their answers, again for at most `timeout_s`."""
        await self._server.drain(timeout_s)
        await self._backend.removals.drain(timeout_s)
        if self.request_counts is not None:
            await self.request_counts.drain(timeout_s)


def _authenticator(settings: GatewaySettings, access: Access, clock: Clock) -> Authenticator:
    return Authenticator(
        access,
        clock,
        SigV4Policy(settings.region),
        timeout_s=settings.bounds.call_timeout_s,
        sigv2_domains=settings.domains if settings.sigv2 else None,
    )
