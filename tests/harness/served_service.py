"""graveler and auth behind a real gRPC server, and `tarn.client` connected to them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graveler_service import Service, running_service
from tests.support.clock import ManualClock

from tarn.client import AsyncClient, TlsFiles
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.process.tls import server_credentials
from tarn.rpc.server.grpc_server import RpcServer, ServerConfig
from tarn.telemetry.audit.log import AuditLog
from tarn.telemetry.meters import Meters
from tarn.telemetry.tracing import Tracing
from tarn_proto.auth.v1 import session_service_pb2

__all__ = ["ServedService", "ServiceClock", "served_service"]


class ServiceClock:
    """The services' clock for the time of day, this machine's for waits.

    Args:
        services: the clock of the services.
        moves: whether the waits, too, see the time by which a test advances that clock.
    """

    def __init__(self, services: ManualClock, *, moves: bool = True) -> None:
        self._services = services
        self._moves = moves

    def now_us(self) -> int:
        return self._services.now_us()

    def monotonic(self) -> float:
        return time.monotonic() + (self._services.monotonic() if self._moves else 0.0)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class CountedSessions:
    """A session service that counts log-ins, and may fail them first.

    Attributes:
        count: number of log-ins that arrived.
        nonces: their nonces.
        before: called before a log-in is answered; raises to fail it.
    """

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self.count = 0
        self.nonces: list[str] = []
        self.before: Callable[[], Awaitable[None]] | None = None

    async def LogIn(self, request: Any, call: Any) -> Any:
        self.count += 1
        self.nonces.append(request.nonce)
        if self.before is not None:
            await self.before()
        return await self._handler.LogIn(request, call)

    async def GetSetupState(self, request: Any, call: Any) -> Any:
        return await self._handler.GetSetupState(request, call)

    async def SetUp(self, request: Any, call: Any) -> Any:
        return await self._handler.SetUp(request, call)

    async def GetCaller(self, request: Any, call: Any) -> Any:
        return await self._handler.GetCaller(request, call)

    async def ListWebSessions(self, request: Any, call: Any) -> Any:
        return await self._handler.ListWebSessions(request, call)

    async def EndWebSessions(self, request: Any, call: Any) -> Any:
        return await self._handler.EndWebSessions(request, call)


@dataclass(frozen=True)
class ServedService:
    """A server of graveler and auth, with a repository `lake`, and a key pair of its admin."""

    service: Service
    address: str
    sessions: CountedSessions
    clock: ServiceClock
    access_key_id: str
    secret_access_key: str

    def options(self, **more: Any) -> dict[str, Any]:
        """Returns the arguments of a client of the admin."""
        return {
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "clock": self.clock,
            **more,
        }

    def client(self, **more: Any) -> AsyncClient:
        """Returns a client of the admin."""
        return AsyncClient(self.address, **self.options(**more))


@asynccontextmanager
async def served_service(
    folder: Path, tls: TlsFiles | None = None, audit: AuditLog | None = None
) -> AsyncIterator[ServedService]:
    """Serves graveler and auth on a free port of this machine, until the end of the block."""
    async with running_service(folder) as service:
        sessions_descriptor = session_service_pb2.DESCRIPTOR.services_by_name["SessionService"]
        auth = {endpoint.name: endpoint for endpoint in service.auth_endpoints}
        sessions = CountedSessions(auth[sessions_descriptor.full_name].handler)
        counted = replace(auth[sessions_descriptor.full_name], handler=sessions)
        auth[sessions_descriptor.full_name] = counted
        # Deadlines are of this clock and compared with the services' clock. So this one must stay ahead of that one
        # when a test advances it, also on a machine that has just started.
        clock = ServiceClock(service.clock)
        server = RpcServer(
            [*service.endpoints, *auth.values()],
            ServerConfig("127.0.0.1:0", reflection=True),
            clock=clock,
            ids=SystemIds(SystemClock()),
            meters=Meters(),
            tracing=Tracing(None, 0, random.Random(1)),
            credentials=None if tls is None else server_credentials(tls),
            audit=audit,
        )
        address = await server.start()
        try:
            made = await service.auth.create_credential(service.admin, user_id="root")
            yield ServedService(
                service,
                address,
                sessions,
                clock,
                made.credential.access_key_id,
                made.secret_access_key,
            )
        finally:
            await server.close()
