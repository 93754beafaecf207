"""A simulated installation of real graveler replicas: production classes on simulated ports."""

import asyncio
import random
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

from tests.sim.plan import Plan

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.core.entry import Entry, is_marker, pack, unpack
from tarn.core.errors import TarnError
from tarn.core.ids import physical_path
from tarn.kv.port import Kv
from tarn.kv.records import Repository
from tarn.rpc.call import Call
from tarn.rpc.tasks import TaskSet
from tarn.testing.history import History
from tarn.testing.sim.blocks import BlockLink, committed_over
from tarn.testing.sim.clock import SimClock, SimIds
from tarn.testing.sim.kv_cassandra import SimCassandra
from tarn.testing.sim.kv_sqlite import SimSqlite
from tarn.testing.sim.link import KvLink, Wire
from tarn.testing.sim.loop import SimLoop
from tarn.testing.sim.pauses import STRAND, Process, Strand
from tarn.testing.sim.weather import CALM, Sky
from tarn_graveler.assembly import Graveler, GravelerSettings, assemble
from tarn_graveler.branch_service import BranchHandler
from tarn_graveler.repository_service import RepositoryHandler
from tarn_graveler.serving import Door

__all__ = ["LostError", "Replica", "World", "packed_value", "value_of"]

R = TypeVar("R")

_POLL_SECONDS = 0.05


class LostError(Exception):
    """Nobody will ever tell the client what became of its request."""


def packed_value(value: int, operation_id: str = "") -> bytes:
    """The entry that stands for a value: size, address and MD5 all say which."""
    md5 = value.to_bytes(16, "big")
    return pack(Entry(value, 0, _address(value), md5, operation_id=operation_id))


def _address(value: int) -> bytes:
    return (0x0192_0000_0000 + value).to_bytes(6, "big") + value.to_bytes(10, "big")


def value_of(packed: bytes) -> int:
    """The value of an entry; a number that nobody wrote if its parts do not agree."""
    entry = unpack(packed)
    unnamed = pack(replace(entry, operation_id=""))
    agrees = entry.address == _address(entry.size) and unnamed == packed_value(entry.size)
    return entry.size if agrees and not is_marker(packed) else -1000 - entry.size


class _End(Kv, Protocol):
    def crash(self) -> None: ...


class _Store(Protocol):
    def open(self, clock: SimClock) -> _End: ...


class _OpenDoor:
    """Lets everybody in: who may do what is not what is simulated."""

    def __init__(self, graveler: Graveler) -> None:
        self._repositories = graveler.repositories

    async def enter(self, call: object, operation: str, resource: str) -> "_OpenDoor":
        return self

    async def enter_repository(
        self, call: object, operation: str, repository_id: str, resource: str | None = None
    ) -> "tuple[Repository, _OpenDoor]":
        return await self._repositories.get(repository_id), self

    user_id = "ann"


NO_CALL = cast("Call", None)


class Replica:
    """One graveler process; `crash` and `start` make it another one in the same place."""

    def __init__(self, world: "World", name: str) -> None:
        self.name = name
        self._world = world
        skew = world.plan.skew_seconds
        self.clock = SimClock(world.loop, int(world.random.uniform(-skew, skew) * 1e6))
        self._life = 0
        self.graveler: Graveler | None = None

    @property
    def is_up(self) -> bool:
        return self.graveler is not None

    def start(self) -> None:
        """A new process: nothing cached, new ids."""
        world, plan = self._world, self._world.plan
        self._life += 1
        self.process = Process(
            world.sky, random.Random(f"pauses {plan.seed} {self.name} {self._life}")
        )
        world.log(f"{self.name} starts")
        name = f"{self.name}.{self._life}"
        ids = SimIds(self.clock, random.Random(f"ids {plan.seed} {name}"))
        self._tasks = TaskSet()
        self._wire = Wire(name, world.tasks, world.log if world.is_traced else None)
        self._end = world.store.open(self.clock)
        blocks = BlockLink(world.blocks, self._wire, world.sky)
        self.graveler = assemble(
            settings=GravelerSettings(
                "sim",
                drop_delay_seconds=plan.registered_seconds,
                cleanup_poll_seconds=_POLL_SECONDS,
                clock_skew_seconds=2 * plan.skew_seconds,
            ),
            kv=KvLink(self._end, self._wire, plan.page_rows),
            blocks=blocks,
            committed=committed_over(blocks, plan.rows_mean),
            clock=self.clock,
            ids=ids,
            tasks=self._tasks,
        )
        door = cast("Door", _OpenDoor(self.graveler))
        self.branch_handler = BranchHandler(door, self.graveler)
        self.repository_handler = RepositoryHandler(door, self.graveler)
        self._spawn(self.graveler.cleaning.run(), may_stop=False)

    def _spawn(self, work: Coroutine[Any, Any, None], *, may_stop: bool) -> None:
        """Starts a task of this process."""
        outside = STRAND.set(Strand(self.process, may_stop=may_stop))
        self._tasks.spawn(work)
        STRAND.reset(outside)

    def crash(self) -> None:
        """Everything that it does ends where it is; what it has sent is on its way."""
        self._world.log(f"{self.name} crashes")
        self._wire.cut()
        self._end.crash()
        self.graveler = None
        self._world.tasks.spawn(self._tasks.close())

    async def ask(self, work: Callable[[Graveler], Coroutine[Any, Any, R]], seconds: float) -> R:
        """Has this process do some work.

        Raises:
            LostError: it crashed, or took longer than `seconds` (and goes on with it).
        """
        graveler = self.graveler
        if graveler is None:
            raise LostError("it is down")
        answer: asyncio.Future[R] = self._world.loop.create_future()

        async def run() -> None:
            try:
                result = await work(graveler)
            except asyncio.CancelledError:
                if not answer.done():
                    answer.set_exception(LostError("crashed"))
                raise
            except Exception as error:  # noqa: BLE001
                if not isinstance(error, TarnError):
                    self._world.problem("".join(traceback.format_exception(error)))
                if not answer.done():
                    is_known = isinstance(error, TarnError)
                    answer.set_exception(error if is_known else LostError(repr(error)))
                return
            if not answer.done():
                answer.set_result(result)

        self._spawn(run(), may_stop=True)
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise LostError("hung up") from None


class World:
    """Everything of one run but its clients."""

    def __init__(self, loop: SimLoop, plan: Plan, *, is_traced: bool = False) -> None:
        self.loop = loop
        self.plan = plan
        self.is_traced = is_traced
        self.history = History()
        self.problems: list[str] = []
        self.random = random.Random(f"world {plan.seed}")
        self.sky = Sky(CALM, random.Random(f"sky {plan.seed}"))
        self.tasks = TaskSet()
        self.blocks = MemBlockStore(SimClock(loop))
        self.cassandra: SimCassandra | None = None
        self.store: _Store
        if plan.store == "cassandra":
            self.store = self.cassandra = SimCassandra(self.sky, self.tasks)
        else:
            self.store = SimSqlite(self.sky)
        self.replicas = [Replica(self, f"r{n}") for n in range(plan.replicas)]
        self._values = 0
        self.is_stormy = False

    def log(self, text: str) -> None:
        """A line of the run's log."""
        self.history.log.append(f"{self.loop.time():9.4f} {text}")

    def problem(self, text: str) -> None:
        """Something that must never happen, whatever the weather."""
        self.log(f"PROBLEM {text}")
        self.problems.append(text)

    async def new_value(self) -> int:
        """A value that nobody has written, and its block."""
        self._values += 1
        key = BlockKey("local://data", physical_path(_address(self._values)))
        await self.blocks.put(key, b"x")
        return self._values

    async def has_block(self, value: int) -> bool:
        """Whether the bytes of a value are there."""
        try:
            await self.blocks.stat(BlockKey("local://data", physical_path(_address(value))))
        except TarnError:
            return False
        return True

    def some_replica(self, rng: random.Random) -> Replica:
        """Any one; one that is up if there is one."""
        up = [replica for replica in self.replicas if replica.is_up]
        return rng.choice(up or self.replicas)

    def storm(self) -> None:
        """Bad weather and crashes begin."""
        self.is_stormy = True
        self.sky.weather = self.plan.weather
        if self.cassandra is not None and self.plan.weather.down_rate:
            self.tasks.spawn(self.cassandra.trouble())
        if self.plan.crash_seconds:
            for replica in self.replicas:
                self.tasks.spawn(self._crashes(replica))
        if self.plan.skew_seconds:
            self.tasks.spawn(self._clock_jumps())

    async def _crashes(self, replica: Replica) -> None:
        rng = random.Random(f"crashes {self.plan.seed} {replica.name}")
        while True:
            await asyncio.sleep(rng.expovariate(1 / self.plan.crash_seconds))
            if not self.is_stormy:
                return
            replica.crash()
            await asyncio.sleep(rng.uniform(0, 1.0))
            replica.start()

    async def _clock_jumps(self) -> None:
        rng = random.Random(f"jumps {self.plan.seed}")
        skew = self.plan.skew_seconds
        while self.is_stormy:
            await asyncio.sleep(rng.expovariate(0.2))
            rng.choice(self.replicas).clock.skew_us = int(rng.uniform(-skew, skew) * 1e6)

    async def calm_down(self) -> None:
        """Good weather; whatever is under way arrives; tokens are dropped."""
        self.is_stormy = False
        self.sky.weather = CALM
        plan = self.plan
        weather = plan.weather
        late = 4 * weather.slow_seconds + weather.queue_seconds + 2 * weather.pause_seconds
        await asyncio.sleep(10.0 + late)
        if self.cassandra is not None:
            self.cassandra.heal()
        for replica in self.replicas:
            if not replica.is_up:
                replica.start()
        await asyncio.sleep(2 * plan.registered_seconds + 2)
