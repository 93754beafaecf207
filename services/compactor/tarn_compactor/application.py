"""Assembles the compactor from its parts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Self

from tarn.aio.task_set import TaskSet
from tarn.client.auth import AuthClient
from tarn.client.compactions import CompactionClient
from tarn.client.staging_events import StagingEventClient
from tarn.core.access.service import Service
from tarn.core.clock import Clock, IdSource
from tarn.gate.access import Access
from tarn.gate.permits import AccessGate
from tarn.gate.service_calls import ServiceCalls
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.methods import Endpoint
from tarn.telemetry.meters import Meters
from tarn_compactor.compactor import Compactor
from tarn_compactor.compactor_service import CompactorService
from tarn_compactor.config import CompactorSettings
from tarn_compactor.counts import Counts
from tarn_compactor.metrics import register_staging
from tarn_compactor.pauses import Pauses
from tarn_compactor.sensor import Sensor
from tarn_proto.compactor.v1.compactor_service_rpc import compactor_service

__all__ = ["CompactorApplication"]


class CompactorApplication:
    """A sensor and a compactor over calls to graveler; keeps everything in memory.

    Args:
        settings: see `CompactorSettings`.
        replicas: returns the transport of each replica of graveler by its address.
        graveler: reaches any replica.
        auth: reaches auth.
        clock: time.
        ids: names calls.
        rng: jitter.
        meters: counts the work.
        failed: called with the reason if the sensor or the compactor ends by a defect; the process should end.
    """

    name = "compactor"

    def __init__(
        self,
        settings: CompactorSettings,
        *,
        replicas: Callable[[], Awaitable[Mapping[str, Transport]]],
        graveler: Transport,
        auth: AuthClient,
        clock: Clock,
        ids: IdSource,
        rng: random.Random,
        meters: Meters,
        failed: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self._failed = failed
        self._tasks = TaskSet()
        access = Access(auth, clock)
        calls = ServiceCalls(access, Service.COMPACTOR, clock, ids)
        staging = StagingEventClient(graveler)
        compactions = CompactionClient(graveler)
        self.counts = Counts()
        self.pauses = Pauses(compactions, calls, clock)
        self.sensor = Sensor(replicas, staging, calls, self.counts, clock, rng)
        self.compactor = Compactor(
            self.counts,
            self.sensor,
            compactions,
            staging,
            calls,
            self.pauses,
            settings.thresholds,
            concurrency=settings.concurrency,
            clock=clock,
            rng=rng,
            meters=meters,
        )
        self.sensor.report = partial(self.compactor.report, ids.uuid7().hex(), clock.now_us())
        service = CompactorService(self.counts, self.sensor, self.compactor, self.pauses, clock)
        register_staging(meters, self.counts, clock)
        self.endpoints: Sequence[Endpoint] = (compactor_service(service, AccessGate(access)),)

    async def __aenter__(self) -> Self:
        """Starts; does not wait for graveler or auth."""
        for work in (self.sensor.run(), self.compactor.run()):
            self._tasks.spawn(work, when_done=self._ended)
        return self

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._failed(f"the compactor's work ended: {task.exception()!r}")

    async def __aexit__(self, *exc: object) -> None:
        await self._tasks.close()

    async def drain(self, timeout_s: float) -> None:  # noqa: ARG002 - it does not wait
        """Starts no further compaction. Graveler finishes those that run."""
        self.compactor.stop()
