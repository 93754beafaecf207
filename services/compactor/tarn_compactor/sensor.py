"""The sensor: watches every replica of graveler, and keeps the counts of all branches.

Each replica answers a long poll with its changes. Three cases need more than the next answer, because changes may be
lost: the start of the sensor, a replica that has started again, and a replica that has forgotten changes. Then the
sensor lists the branches that have staged rows, and each is measured once. Listings never overlap: a gap during one
asks for one more, which skips the branches that were measured after the gap was noticed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import structlog

from tarn.aio.backoff import backoff_seconds
from tarn.aio.bounded_map import BoundedMap
from tarn.aio.task_set import TaskSet
from tarn.client.staging_events import StagingEventClient
from tarn.core.clock import Clock
from tarn.core.errors import Kind, TarnError
from tarn.gate.service_calls import ServiceCalls
from tarn.rpc.client.transport import Transport
from tarn_compactor.counts import BranchKey, Counts
from tarn_proto.graveler.v1 import staging_event_service_pb2 as pb

__all__ = ["ReplicaState", "Sensor"]

_WAIT_MS = 15_000
_TIMEOUT_SECONDS = 25.0
_RESOLVE_SECONDS = 15.0
_FIRST_RESOLVE_SECONDS = 1.0
_LIST_PAUSE_SECONDS = 0.05
"""Pause after each page of the listing of staged branches, so that a start does not load graveler."""
_UNMEASURED_MAX = 1000
"""The listing waits while this many branches wait to be measured."""
_FAILED_MOST_S = 5.0
_GONE_MAX = 1000
"""Streams of addresses that are gone, and are remembered in case that they come back."""
_MEASURED_MAX = 100_000
"""Branches of which a listing remembers that they were measured; others may be measured twice."""

_log = structlog.get_logger()


@dataclass(slots=True)
class ReplicaState:
    """The stream of one replica.

    Attributes:
        start_id: identifies the run of the replica; empty before the first answer.
        sequence: of the last answer.
        changes: changed tokens that were told.
        gaps: how often changes may have been lost.
        error: of the last request; empty if it was answered.
    """

    start_id: bytes = b""
    sequence: int = 0
    is_connected: bool = False
    changes: int = 0
    gaps: int = 0
    error: str = ""


class Sensor:
    """Keeps counts up to date.

    Args:
        transports: returns the transport of each replica by its address; called again and again.
        staged: lists staged branches, at any replica.
        calls: contexts of calls.
        counts: filled by the sensor.
        clock: time.
        rng: jitter.

    Attributes:
        replicas: the streams, by address.
        woken: set when counts changed.
        report: returns what this compactor does now, which each request tells.
    """

    def __init__(
        self,
        transports: Callable[[], Awaitable[Mapping[str, Transport]]],
        staged: StagingEventClient,
        calls: ServiceCalls,
        counts: Counts,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._transports = transports
        self._staged = staged
        self._calls = calls
        self._counts = counts
        self._clock = clock
        self._rng = rng
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._tasks = TaskSet()
        self._lost = asyncio.Event()
        self._measured_at: BoundedMap[BranchKey, float] = BoundedMap(_MEASURED_MAX)
        self._gone: BoundedMap[str, ReplicaState] = BoundedMap(_GONE_MAX)
        self._gap_at = clock.monotonic()
        self.replicas: dict[str, ReplicaState] = {}
        self.woken = asyncio.Event()
        self.report: Callable[[], pb.CompactorReport | None] = lambda: None

    async def run(self) -> None:
        """Watches until it is cancelled."""
        self.missed()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_replicas())
                group.create_task(self._list_after_gaps())
        finally:
            await self._tasks.close()

    def missed(self) -> None:
        """Asks for a listing of the staged branches, because changes may be lost."""
        self._gap_at = self._clock.monotonic()
        self._lost.set()

    def measured(self, key: BranchKey) -> None:
        """Notes that a branch was measured."""
        if self._lost.is_set() or self._measured_at.get(key) is not None:
            self._measured_at.put(key, self._clock.monotonic())

    # ---- replicas

    async def _follow_replicas(self) -> None:
        while True:
            transports = await self._transports()
            for address, watch in list(self._watches.items()):
                if watch.done():  # a defect, which is logged; its counts go on with a new state
                    del self._watches[address]
                    self.missed()
            for address in self._watches.keys() - transports.keys():
                self._watches.pop(address).cancel()
                if (state := self.replicas.pop(address, None)) is not None:
                    state.is_connected = False
                    self._gone.put(address, state)
                # Its last changes may not have been told.
                self.missed()
            for address in transports.keys() - self._watches.keys():
                # If the address comes back, its first answer shows which changes were missed meanwhile.
                state = self.replicas[address] = self._gone.get(address) or ReplicaState()
                self._gone.pop(address)
                self._watches[address] = self._tasks.spawn(
                    self._watch(address, transports[address], state)
                )
            pause = _RESOLVE_SECONDS if transports else _FIRST_RESOLVE_SECONDS
            await self._clock.sleep(pause * self._rng.uniform(0.5, 1.0))

    async def _watch(self, address: str, transport: Transport, state: ReplicaState) -> None:
        client = StagingEventClient(transport)
        failures = 0
        while True:
            try:
                await self._ask(address, client, state)
            except TarnError as error:
                self._calls.failed(error)
                if not state.error:
                    _log.info("no events from a replica", replica=address, error=error.message)
                state.is_connected, state.error = False, error.message
                pause = backoff_seconds(self._rng, failures, most_s=_FAILED_MOST_S)
                failures += 1
                await self._clock.sleep(pause)
            else:
                failures = 0

    async def _ask(self, address: str, client: StagingEventClient, state: ReplicaState) -> None:
        call = await self._calls.call(_TIMEOUT_SECONDS)
        # The first answer comes at once: it says that the replica is there, and which run of it.
        wait_ms = _WAIT_MS if state.is_connected else 0
        answer = await client.watch_staging(
            call, state.start_id, state.sequence, wait_ms, self.report()
        )
        is_restarted = bool(state.start_id) and answer.start_id != state.start_id
        if is_restarted or (answer.is_incomplete and state.start_id):
            state.gaps += 1
            _log.info(
                "changes were lost", replica=address, reason="restart" if is_restarted else "limit"
            )
            self.missed()
        state.start_id, state.sequence = answer.start_id, answer.sequence
        state.is_connected, state.error = True, ""
        state.changes += len(answer.tokens)
        self._counts.told(address, answer, self._clock.monotonic())
        if answer.tokens:
            self.woken.set()

    # ---- gaps

    async def _list_after_gaps(self) -> None:
        failures = 0
        while True:
            await self._lost.wait()
            gap_at = self._gap_at
            try:
                await self._list(gap_at)
            except TarnError as error:
                self._calls.failed(error)
                if error.kind is not Kind.UNAVAILABLE or not failures:
                    _log.warning("cannot list staged branches", error=error.message)
                await self._clock.sleep(backoff_seconds(self._rng, failures, most_s=30.0))
                failures += 1
                continue
            failures = 0
            if self._gap_at == gap_at:
                self._lost.clear()
                self._measured_at.clear()

    async def _list(self, gap_at: float) -> None:
        """Asks for a measurement of each staged branch that was not measured since the gap was noticed.

        Branches that have rows as far as is known, and are not listed, were committed or deleted during the gap: these
        are measured, too.
        """
        after = ("", "")
        believed = {key: None for key in self._counts.known() if self._has_rows(key)}
        while True:
            call = await self._calls.call(_TIMEOUT_SECONDS)
            page = await self._staged.list_staged_branches(call, *after)
            keys = [(each.repository_id, each.branch_id) for each in page.branches]
            self._want(keys, gap_at)
            for key in keys:
                believed.pop(key, None)
            after = (page.next_repository_id, page.next_branch_id)
            if not after[0]:
                self._want(list(believed), gap_at)
                return
            await self._clock.sleep(_LIST_PAUSE_SECONDS)
            while len(self._counts.unmeasured) > _UNMEASURED_MAX:
                await self._clock.sleep(_LIST_PAUSE_SECONDS)

    def _has_rows(self, key: BranchKey) -> bool:
        view = self._counts.view(key, self._clock.monotonic())
        return bool(view.rows or view.sealed_tokens)

    def _want(self, keys: list[BranchKey], gap_at: float) -> None:
        """Asks for measurements of those branches that were not measured since a gap."""
        wanted = [key for key in keys if (self._measured_at.get(key) or -1.0) < gap_at]
        self._counts.measure(wanted)
        for key in wanted:
            if self._measured_at.get(key) is None:
                self._measured_at.put(key, -1.0)
        if wanted:
            self.woken.set()
