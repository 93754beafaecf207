"""A compactor over real replicas of graveler and a real auth, in one process, with a clock that runs by itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from graveler_service import Service, running_service
from tests.support.clock import ManualClock, SeededIds
from tests.support.sim.loop import SimLoop, simulate

from tarn.client.compactor import CompactorClient
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn.telemetry.meters import Meters
from tarn_compactor.application import CompactorApplication
from tarn_compactor.config import CompactorSettings
from tarn_compactor.policy import Thresholds
from tarn_graveler.records.branches import BranchName
from tarn_proto.graveler.v1.compaction_service_pb2 import CompactBranchRequest

LIMITS = Thresholds(tombstones=20, interval_s=5.0)


class LoopClock(ManualClock):
    """The virtual time of the loop."""

    def now_us(self) -> int:
        return super().now_us() + int(self.monotonic() * 1_000_000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def simulated(
    work: Callable[[CompactorLab], Coroutine[Any, Any, None]],
) -> Callable[[Path, pytest.MonkeyPatch], None]:
    """Makes a test of a coroutine that gets a lab: it runs in a loop with virtual time."""

    def test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lake.ManualClock", LoopClock)

        async def run(_loop: SimLoop) -> None:
            async with running_lab(tmp_path) as lab:
                await work(lab)

        simulate(run, seed=1)

    test.__name__ = work.__name__
    return test


class Wire:
    """A transport that a test can cut, and that counts calls."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.is_cut = False
        self.failing: set[str] = set()
        self.failing_branch = ""  # only calls about this branch fail; empty: about all
        self.error = TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the test cut the wire")
        self.calls: list[tuple[str, str]] = []
        self.compactions = self.compactions_most = 0
        self.waited_for = 0  # compactions that were not said to be in the background

    async def unary(
        self, service: ServiceDescriptor, method: str, request: Message, call: Call
    ) -> Message:
        branch = getattr(request, "branch_id", "")
        self.calls.append((method, branch))
        self._check(method, branch)
        self.compactions += method == "CompactBranch"
        if isinstance(request, CompactBranchRequest):
            self.waited_for += not request.is_background
        self.compactions_most = max(self.compactions, self.compactions_most)
        try:
            answer = await self.transport.unary(service, method, request, call)
        finally:
            self.compactions -= method == "CompactBranch"
        self._check(method, branch)
        return answer

    def _check(self, method: str, branch: str) -> None:
        is_meant = self.failing_branch in ("", branch)
        if self.is_cut or (method in self.failing and is_meant):
            raise self.error

    async def operate(
        self, service: ServiceDescriptor, operation: str, request: Message, call: Call
    ) -> Message:
        return await self.transport.operate(service, operation, request, call)

    async def close(self) -> None:
        pass

    def count(self, method: str, branch: str = "") -> int:
        return sum(each == method and (not branch or found == branch) for each, found in self.calls)


@dataclass
class CompactorLab:
    """A service, the wires to its replicas, and what starts compactors."""

    service: Service
    wires: dict[str, Wire]
    graveler: Wire
    meters: Meters = field(default_factory=Meters)

    @asynccontextmanager
    async def compactor(
        self, limits: Thresholds = LIMITS, seed: int = 0
    ) -> AsyncIterator[CompactorApplication]:
        clock = self.service.clock

        async def replicas() -> Mapping[str, Transport]:
            return dict(self.wires)

        application = CompactorApplication(
            CompactorSettings(limits),
            replicas=replicas,
            graveler=self.graveler,
            auth=self.service.auth,
            clock=clock,
            ids=SeededIds(clock, seed=500 + seed),
            rng=random.Random(seed),
            meters=self.meters,
        )
        async with application:
            yield application

    @asynccontextmanager
    async def client(self, application: CompactorApplication) -> AsyncIterator[CompactorClient]:
        transport = InProcessTransport(application.endpoints, self.service.clock)
        yield CompactorClient(transport)
        await transport.close()

    async def until(self, look: Callable[[], bool], seconds: float = 300.0) -> None:
        """Lets time pass until something is so; fails after some time of the clock."""
        clock = self.service.clock
        end = clock.monotonic() + seconds
        while not look():
            assert clock.monotonic() < end, "it did not happen in time"
            await self.passes(0.1)

    async def passes(self, seconds: float) -> None:
        """Lets virtual time pass."""
        await asyncio.sleep(seconds)

    async def put_and_delete(self, count: int, branch: str = "main", name: str = "tmp") -> None:
        """Commits objects and deletes them, so that each delete is a tombstone."""
        graveler, admin = self.service.graveler, self.service.admin
        for number in range(count):
            await self.service.put(f"{name}/{number}", 1, branch)
        await graveler.create_commit(admin, "lake", branch, "temporary")
        for number in range(count):
            await graveler.unstage(admin, "lake", branch, f"{name}/{number}")

    async def branches_with_deletes(self, counts: Mapping[str, int]) -> None:
        """Creates branches, each with so many tombstones."""
        for branch, count in counts.items():
            await self.service.graveler.create_branch(self.service.admin, "lake", branch, "main")
            await self.put_and_delete(count, branch)

    async def tombstones(self, branch: str = "main") -> int:
        found = await self.service.graveler.staging_statistics(self.service.admin, "lake", branch)
        return found.tombstone_count

    async def listed(self, branch: str = "main") -> list[str]:
        page = await self.service.graveler.list_entries(self.service.admin, "lake", branch)
        return list(page.paths)


async def running_mark(lab: CompactorLab) -> None:
    """Marks the branch as being compacted, as a replica leaves it that died during a compaction."""
    from tarn.core.branch import begin_compaction
    from tarn_graveler.branch.handle import BranchHandle

    async with lab.service.replicas.replica() as graveler:
        repository = await graveler.repositories.get("lake")
        handle = BranchHandle(graveler.branches, BranchName(repository, BranchId("main")))
        now_us = lab.service.clock.now_us()
        await handle.change(
            lambda now, op_id: begin_compaction(
                now, graveler.branches.new_token(), op_id, now_us=now_us
            ),
            lambda now: now.compaction_start_time_us == now_us,
        )


@asynccontextmanager
async def running_lab(folder: Path) -> AsyncIterator[CompactorLab]:
    async with running_service(folder) as service, service.another_replica() as other:
        wires = {"a": Wire(service.transport), "b": Wire(other.transport)}
        yield CompactorLab(replace(service), wires, Wire(service.transport))
