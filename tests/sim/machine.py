"""A machine of the installation: its process runs work, pauses sometimes, and crashes."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.descriptor import ServiceDescriptor
from tests.sim.lost import LostError
from tests.support.sim.clock import SimClock, SimIds
from tests.support.sim.faults import FaultInjector
from tests.support.sim.link import Wire
from tests.support.sim.pauses import STRAND, Process, Strand

from tarn.aio.task_set import TaskSet
from tarn.core.errors import TarnError
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.wire.methods import Endpoint

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["Machine", "Server", "some"]

R = TypeVar("R")
M = TypeVar("M", bound="Machine")


class Machine:
    """A machine that runs one process at a time; `crash` ends the process and `start` starts a new one.

    Args:
        world: the installation.
        name: of the machine.
        faults: decide when its process pauses; those of the world unless it has its own.

    Attributes:
        clock: clock of the machine; it outlives the process.
        ids: ids of the process.
        tasks: tasks of the process.
        wire: connection of the process to the stores.
    """

    def __init__(self, world: World, name: str, faults: FaultInjector | None = None) -> None:
        self.name = name
        self.world = world
        self._faults = world.faults if faults is None else faults
        skew = world.plan.skew_seconds
        self.clock = SimClock(world.loop, int(world.random.uniform(-skew, skew) * 1e6))
        self.is_up = False
        self._life = 0

    def start(self) -> None:
        """Starts a new process, with empty caches and new ids."""
        world, seed = self.world, self.world.plan.seed
        self._life += 1
        world.log(f"{self.name} starts")
        name = f"{self.name}.{self._life}"
        self._process = Process(self._faults, random.Random(f"pauses {seed} {name}"))
        self.ids = SimIds(self.clock, random.Random(f"ids {seed} {name}"))
        self.tasks = TaskSet()
        self.wire = Wire(name, world.tasks, world.log if world.is_traced else None)
        self.is_up = True

    def crash(self) -> None:
        """Cancels every task of the process; requests that were sent continue."""
        self.world.log(f"{self.name} crashes")
        self.is_up = False
        self.wire.cut()
        self.world.loop.kill(self._process)
        self.world.statistics["pauses"] += self._process.pauses
        self.world.tasks.spawn(self.tasks.close())

    def pause(self, seconds: float) -> None:
        """Stops the process between two of its steps."""
        self.world.log(f"{self.name} pauses for {seconds:.1f} s")
        self._process.stop(self.world.loop.time() + seconds)

    def spawn(self, work: Coroutine[Any, Any, None], *, may_stop: bool) -> None:
        """Starts a task of this process; `may_stop`: pauses may begin in it."""
        outside = STRAND.set(Strand(self._process, may_stop=may_stop))
        self.tasks.spawn(work)
        STRAND.reset(outside)

    async def ask(
        self,
        work: Callable[[], Awaitable[R]],
        seconds: float,
        expected: tuple[type[Exception], ...] = (TarnError,),
    ) -> R:
        """Runs work in this process.

        Args:
            work: the work.
            seconds: how long the caller waits.
            expected: errors that are answers; any other error is a bug.

        Raises:
            LostError: the process crashed, or the work took longer than `seconds` (and continues).
        """
        if not self.is_up:
            raise LostError("it is down")
        answer: asyncio.Future[R] = self.world.loop.create_future()

        async def run() -> None:
            try:
                result = await work()
            except asyncio.CancelledError:
                if not answer.done():
                    answer.set_exception(LostError("crashed"))
                raise
            except Exception as error:  # noqa: BLE001
                is_known = isinstance(error, expected)
                if not is_known:
                    self.world.problem("".join(traceback.format_exception(error)))
                if not answer.done():
                    answer.set_exception(error if is_known else LostError(repr(error)))
                return
            if not answer.done():
                answer.set_result(result)

        self.spawn(run(), may_stop=True)
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise LostError("hung up") from None


class Server(Machine):
    """A machine whose process serves rpcs.

    Attributes:
        server: production's, with its deadlines and handlers that outlive their callers.
        services: by their full names.
    """

    server: InProcessTransport
    services: dict[str, ServiceDescriptor]

    def serve(self, endpoints: Sequence[Endpoint]) -> None:
        """Serves rpcs from now on."""
        self.server = InProcessTransport(endpoints, self.clock)
        self.services = {endpoint.name: endpoint.descriptor for endpoint in endpoints}

    def crash(self) -> None:
        """Also cancels handlers that outlive their caller."""
        super().crash()
        self.world.tasks.spawn(self.server.close())


def some(machines: Sequence[M], rng: random.Random) -> M:
    """Returns any machine, preferably one that is up."""
    up = [machine for machine in machines if machine.is_up]
    return rng.choice(up or machines)
