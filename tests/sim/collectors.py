"""Collectors: processes that mark and sweep repositories while clients work on them (docs/design/collection.md).

Everything is production's: the collector, its lease, its reads of roots and listings, its quarantine and its
deletions. Only the block store and the transport are simulated. A collection is no write: all promises must hold
beside it (I7, I9).
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from tests.sim.machine import Machine
from tests.sim.transport import SimTransport
from tests.support.sim.swept_blocks import SweptBlockLink

from tarn.client.collections import CollectionClient
from tarn.collection.collector import Collector, Step, next_step
from tarn.collection.engine import InProcess
from tarn.collection.limits import Limits
from tarn.collection.outcomes import Outcome, Report
from tarn.collection.progress import CollectionProgress
from tarn.collection.sweeping import SweepOptions
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import unavailable_error

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["CollectorProcess", "collect_twice"]

_CALL_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.3
_SAMPLE: Final = 20
_PATIENCE: Final = 100
_LATER: Final = (Reason.COLLECTION_RUNNING, Reason.COLLECTION_TOO_EARLY)


class _OwnTransport(SimTransport):
    """The transport of a process, which sends nothing once the process is dead."""

    def __init__(self, machine: Machine, world: World, rng: random.Random) -> None:
        super().__init__(world, rng)
        self._wire = machine.wire

    async def unary(
        self, service: ServiceDescriptor, name: str, request: Message, call: Call
    ) -> Message:
        """See `Transport.unary`."""
        if self._wire.is_cut:
            raise unavailable_error("the process is dead")
        self._wire.note(name, "sent")
        try:
            answer = await super().unary(service, name, request, call)
        except TarnError as error:
            self._wire.note(name, error.reason)
            raise
        self._wire.note(name, "answered")
        return answer


class CollectorProcess(Machine):
    """One collector process.

    Args:
        world: the installation, whose plan has collections.
        name: of the machine.
        repositories: the repositories that it collects.
    """

    def __init__(self, world: World, name: str, repositories: Sequence[str]) -> None:
        super().__init__(world, name, world.collector_faults)
        self._repositories = repositories
        self._what = "collection"
        self._pause_seconds = _PAUSE_SECONDS

    def start(self) -> None:
        """Starts a new process, which collects until the faults end."""
        self.prepare()
        self.spawn(self._run(), may_stop=True)

    def prepare(self) -> None:
        """Starts a process that does nothing by itself."""
        super().start()
        seed = f"collector {self.world.plan.seed} {self.name} {self._life}"
        self._random = random.Random(seed)
        self._transport = transport = _OwnTransport(
            self, self.world, random.Random(f"transport {seed}")
        )
        self._collector = Collector(
            InProcess(),
            CollectionClient(transport),
            lambda: transport.call(_CALL_SECONDS),
            self.open_blocks(),
            self.clock,
            self.ids,
            self._random,
            Path(tempfile.gettempdir()),
            CollectionProgress(),
        )

    async def _run(self) -> None:
        while self.world.has_faults:
            await asyncio.sleep(self._random.expovariate(1 / self._pause_seconds))
            repository_id = self._random.choice(self._repositories)
            try:
                told = await self.turn(repository_id)
            except TarnError as error:
                told = f"failed: {error.reason}"
                if error.kind is Kind.CORRUPT:
                    self.world.problem(f"{self._what} of {repository_id}: {error!r}")
            self.world.statistics[f"{self._what}: {told}"] += 1
            self.world.log(f"{self.name} {repository_id}: {told}")

    def open_blocks(self) -> SweptBlockLink:
        """Returns the block store as this process sees it."""
        return self.world.swept_link(self.wire, self.world.collector_faults, self.world.swept)

    async def turn(self, repository_id: str) -> str:
        """Does what comes next; returns what it did.

        Raises:
            TarnError: as `Collector`.
        """
        return await self.step(repository_id)

    async def step(self, repository_id: str) -> str:
        """Marks or sweeps, whichever is due; returns the step.

        Raises:
            TarnError: as `Collector`.
        """
        plan = self.world.plan.collecting
        assert plan is not None, "the plan has collections"
        step = next_step(await self._collector.record(repository_id), self.clock.now_us())
        if step is Step.MARK:
            await self._collector.mark(repository_id)
        elif step is Step.SWEEP:
            options = SweepOptions(
                Limits(share_max=1.0), batch_blocks=plan.batch_blocks, sample=_SAMPLE
            )
            self._count(await self._collector.sweep(repository_id, options))
        return step.value

    def _count(self, report: Report) -> None:
        for kind, outcomes in report.outcomes.items():
            for outcome, tally in outcomes.items():
                if outcome != Outcome.DELETED:
                    self.world.statistics[f"collection: {kind} {outcome}"] += tally.count


async def collect_twice(world: World, repositories: Sequence[str]) -> None:
    """Marks and sweeps each repository twice, without faults. All present garbage is gone afterwards."""
    plan = world.plan.collecting
    assert plan is not None, "the plan has collections"
    collector = CollectorProcess(world, "last collector", repositories)
    collector.prepare()
    for repository_id in repositories:
        await asyncio.sleep(plan.cutoff_seconds + 3 * plan.skew_seconds)
        sweeps = 0
        for _ in range(_PATIENCE):
            try:
                sweeps += await collector.step(repository_id) == Step.SWEEP.value
            except TarnError as error:
                if error.reason is Reason.REPOSITORY_NOT_FOUND:
                    break
                if error.reason not in _LATER:
                    world.problem(f"a collection of {repository_id} without faults: {error!r}")
                    break
            if sweeps == 2:
                break
            await asyncio.sleep(plan.cutoff_seconds / 4)
        else:
            world.problem(f"{repository_id} was not collected in {_PATIENCE} steps")
    collector.crash()
