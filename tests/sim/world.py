"""A simulated installation of real graveler replicas and gateways: production classes on simulated ports."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from tests.sim.auths import Auth
from tests.sim.collecting import Collecting
from tests.sim.collectors import CollectorProcess
from tests.sim.equals import Discard
from tests.sim.erased import Erased
from tests.sim.erasers import EraserProcess
from tests.sim.gateways import Gateway
from tests.sim.journaled import Journaled
from tests.sim.journaled_records import WatchedLink
from tests.sim.kept import Kept
from tests.sim.keys import keys_of
from tests.sim.machine import Machine, Server, some
from tests.sim.plan import Plan
from tests.sim.sessions import Sessions
from tests.sim.transport import OPEN, MixedAccess, SimTransport
from tests.sim.values import Values
from tests.sim.views import Views
from tests.support.check.history import History
from tests.support.sim.blocks import BlockLink, committed_over
from tests.support.sim.clock import SimClock
from tests.support.sim.faults import CALM, FaultInjector, FaultProfile, refused
from tests.support.sim.kv_cassandra import SimCassandra
from tests.support.sim.kv_sqlite import SimSqlite
from tests.support.sim.link import Wire
from tests.support.sim.loop import SimLoop
from tests.support.sim.swept_blocks import SweptBlockLink

from tarn.aio.task_set import TaskSet
from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.client.auth import AuthClient
from tarn.core.collection import LIMITS
from tarn.core.errors import TarnError
from tarn.core.expiry import Expiry
from tarn.core.ids import CommitId
from tarn.gate.access import Access
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Companion, Group, Kv, Partition, Predicate, Row
from tarn.kv.records import Repository
from tarn_graveler.application import endpoints_of
from tarn_graveler.assembly import GravelerSettings, assemble
from tarn_graveler.branch.leaps import LEAP_ROWS_MIN
from tarn_graveler.collection.online_deletion import OnlineSettings
from tarn_graveler.guards.fences import BuildBlocks, Fences, ResultT
from tarn_graveler.records.expired import ExpiredCommits

__all__ = ["SALT", "Replica", "World"]

SALT = "sky"
"""Salt of the recorded seeds: with the seed, it determines the stream of injected faults. Another salt plays other
runs of the same plans."""

_AUTHS = 2
_AUTH_CRASH_SECONDS = 4.0
_COLLECTOR_HOP_SECONDS = 0.001
_SLOW_RATE = 0.01
_COLLECTOR_PAUSE_SECONDS = 2.0
_ONLINE_POLL_SECONDS = 0.05
_ONLINE_HELD_SECONDS = 0.2
_CALM_SECONDS = 10.0
_BRISK_CALM_SECONDS = 3.0

NO_COLLECTION = replace(LIMITS, staging_us=1 << 62, ahead_us=1 << 62)
"""No collector runs in these worlds, and the addresses of values (`Values`) are older than every run."""


class _End(Kv, Protocol):
    def crash(self) -> None: ...


class _Store(Protocol):
    def open(self, clock: SimClock) -> _End: ...
    def token_names(self) -> list[str]: ...
    async def peek(self, partition: str) -> tuple[dict[bytes, bytes], list[Companion]]: ...


class _ReplicaLink(WatchedLink):
    """The link of a replica, which must not remove single rows of a staging token.

    Listings remember which rows a token holds (docs/design/tombstones.md); only a whole token is dropped.
    """

    def __init__(self, world: World, kv: Kv, wire: Wire, page_rows: int) -> None:
        super().__init__(world, kv, wire, page_rows)
        self._world = world

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`. Refuses rows of commits at a rate of the plan: a later build finds these ranges again."""
        collecting, faults = self._world.plan.collecting, self._world.collector_faults
        prefix = RepositoryKeys.EXPIRED
        expiring = [each.anchor for each in groups if each.anchor.startswith(prefix)]
        for anchor in expiring:
            self._world.kept.expiring(anchor[len(prefix) :].decode())
        is_commit = partition.name.endswith("/commits") and self._world.has_faults and not expiring
        rate = collecting.refused_commit_rate if collecting is not None and is_commit else 0.0
        if faults.happens(rate):
            return [refused("row of a commit") for _ in groups]
        return await super().set_many(partition, groups)

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """See `Kv.delete_many`."""
        self._check(partition)
        await super().delete_many(partition, keys)

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        """See `Kv.delete_if`."""
        self._check(partition)
        await super().delete_if(partition, key, predicate, companions=companions)

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`."""
        world = self._world
        if world.plan.keeps_events and partition.name in world.store.token_names():
            await world.journaled.look(partition.name)
        await super().drop_partition(partition)

    def _check(self, partition: Partition) -> None:
        if ":" in partition.name:  # as in `RepositoryKeys.token`, and in no other name
            self._world.problem(f"a row of the staging token {partition.name} is removed")


async def _always(_: set[str]) -> bool:
    return True


async def _none_expired(_: set[CommitId]) -> None:
    pass


class _NoFences(Fences):
    """No collector runs in these worlds: the reads of the collection record would only move the recorded seeds."""

    def __init__(self) -> None:
        pass

    async def rooted(
        self, repository: Repository, make: Callable[[BuildBlocks], Awaitable[ResultT]]
    ) -> ResultT:
        """Returns the result of a build."""
        return await make(BuildBlocks(_always, _none_expired, is_beside_sweep=False))


class _NothingExpires(ExpiredCommits):
    """As `_NoFences`: without a collector no commit expires."""

    def __init__(self) -> None:
        pass

    async def find(
        self, repository: Repository, commit_ids: Sequence[CommitId]
    ) -> dict[CommitId, Expiry]:
        """Returns the expired ones: none."""
        return {}

    async def refuse_read(self, repository: Repository, commit_id: CommitId) -> None:
        """Refuses nothing."""


class Replica(Server):
    """One graveler process: production's services on simulated stores.

    Attributes:
        server: the in-process server, which answers calls as production's server does.
        services: its services, by name.
        graveler: its parts, for the checks at the end.
        kv: its link to the store.
    """

    def start(self) -> None:
        """Starts a new process."""
        super().start()
        world, plan = self.world, self.world.plan
        self._end = world.store.open(self.clock)
        self.kv = _ReplicaLink(world, self._end, self.wire, plan.page_rows)
        blocks = world.block_link(self.wire)
        collecting = plan.collecting
        self.graveler = assemble(
            settings=GravelerSettings(
                "sim",
                drop_delay_seconds=plan.registered_seconds,
                cleanup_poll_seconds=plan.registered_seconds / 4,
                clock_skew_seconds=2 * plan.skew_seconds,
                reflog_retention_seconds=(
                    90 * 86_400.0 if plan.expiring is None else plan.expiring.reflog_seconds
                ),
                leap_rows_min=1 if plan.has_leaps else LEAP_ROWS_MIN,
                collection=NO_COLLECTION if collecting is None else collecting.limits,
                online=OnlineSettings(
                    is_enabled=plan.online_seconds > 0,
                    delay_seconds=plan.online_seconds,
                    poll_seconds=_ONLINE_POLL_SECONDS,
                    held_seconds=_ONLINE_HELD_SECONDS,
                ),
                keeps_events=plan.keeps_events,
                drain_poll_seconds=plan.registered_seconds / 4,
            ),
            kv=self.kv,
            blocks=blocks,
            committed=committed_over(blocks, plan.rows_mean),
            clock=self.clock,
            ids=self.ids,
            tasks=self.tasks,
            fences=_NoFences() if collecting is None else None,
            expired=_NothingExpires() if collecting is None else None,
        )
        self.serve(endpoints_of(self.graveler, self._access()))
        self.spawn(self.graveler.cleaner.run(), may_stop=False)
        if self.graveler.drain is not None:
            self.spawn(self.graveler.drain.run(), may_stop=False)
        if self.graveler.online is not None:
            self.graveler.online.queue.outcomes = world.online_outcomes
            self.spawn(self.graveler.online.run(), may_stop=False)

    def _access(self) -> Access:
        """Knows what callers may do."""
        if not self.world.plan.session_users:
            return OPEN
        rng = random.Random(f"access {self.world.plan.seed} {self.name} {self._life}")
        return MixedAccess(self.world.auth_client(rng), self.clock)

    def crash(self) -> None:
        """Also drops the writes that the process has queued."""
        self._end.crash()
        super().crash()


def _brisk(profile: FaultProfile, collecting: Collecting) -> FaultProfile:
    """Returns the faults of a collector's own requests: one that is always slow would not come to an end."""
    return replace(
        profile,
        hop_seconds=_COLLECTOR_HOP_SECONDS,
        slow_rate=0.0 if collecting.slow_seconds else _SLOW_RATE,
        slow_seconds=collecting.slow_seconds or profile.slow_seconds,
        slow_what=frozenset({"block"} if collecting.slow_seconds else ()),
        pause_rate=max(profile.pause_rate, collecting.pause_rate),
        pause_seconds=max(profile.pause_seconds, _COLLECTOR_PAUSE_SECONDS),
        late_deletion_rate=collecting.late_rate,
    )


class World:
    """The installation of one run, without its clients.

    Args:
        before: the world whose store was lost: this one has its bucket, and a new store.
    """

    def __init__(
        self,
        loop: SimLoop,
        plan: Plan,
        *,
        is_traced: bool = False,
        salt: str = SALT,
        before: World | None = None,
    ) -> None:
        self.loop = loop
        self.plan = plan
        self.is_traced = is_traced
        self.keys = keys_of(plan.keys)
        self.history = History()
        self.problems: list[str] = []
        self.reflog_problems: list[str] = []
        self.random = random.Random(f"world {plan.seed}")
        # Do not rename random streams: all recorded seeds would give other runs.
        self.faults = FaultInjector(CALM, random.Random(f"{salt} {plan.seed}"))
        self.collector_faults = FaultInjector(CALM, random.Random(f"{salt} collectors {plan.seed}"))
        self.tasks = TaskSet()
        self.blocks: MemBlockStore = (
            MemBlockStore(SimClock(loop)) if before is None else before.blocks
        )
        self.values: Values = Values(self.blocks) if before is None else before.values
        self.statistics: Counter[str] = Counter()
        self.cassandra: SimCassandra | None = None
        self.store: _Store
        self.make_store()
        self.online_outcomes: Counter[str] = Counter()
        reading_seconds = 0.0 if plan.collecting is None else plan.collecting.reading_seconds
        if plan.expiring is not None:  # a reader may use a commit a little longer than it is kept
            reading_seconds -= plan.expiring.read_cache_seconds
        self.kept = Kept(self, plan.online_seconds or reading_seconds)
        self.erased = Erased(self)
        self.journaled = Journaled(self)
        self.views = Views()
        self.sessions = Sessions()
        self.replicas = [Replica(self, f"r{n}") for n in range(plan.replicas)]
        self.auths = [Auth(self, f"a{n}") for n in range(_AUTHS if plan.session_users else 0)]
        self.gateways = [Gateway(self, f"g{n}") for n in range(plan.gateways)]
        self.collectors: list[CollectorProcess] = []
        self.erasers: list[EraserProcess] = []
        # Reads through tags: tag, its commit, key, value.
        self.commit_reads: list[tuple[str, str, str, int]] = []
        # Entries that erasures have discarded.
        self.discards: list[Discard] = []
        # Ids of the commits that were built in the repository with merges, published or not.
        self.built: set[str] = set()
        self.has_faults = False
        # Of a store that is lost, and of the one that is rebuilt (`tests.sim.rebuilding`).
        self.is_lost = False
        self.is_second = before is not None
        self.life = ""

    def make_store(self) -> None:
        """Makes an empty store. Processes that have begun use the one before."""
        if self.plan.store == "cassandra":
            self.store = self.cassandra = SimCassandra(self.faults, self.tasks)
        else:
            self.store = SimSqlite(self.faults)

    async def serving(self) -> None:
        """Waits while the installation is gone; clients wait for that before an operation."""

    def log(self, text: str) -> None:
        """Adds a line to the run's log."""
        self.history.log.append(f"{self.loop.time():9.4f} {text}")

    def problem(self, text: str) -> None:
        """Records an event that must never happen under any faults."""
        self.log(f"PROBLEM {text}")
        self.problems.append(text)

    def some_replica(self, rng: random.Random) -> Replica:
        """Returns any replica, preferably one that is up."""
        return some(self.replicas, rng)

    def some_gateway(self, rng: random.Random) -> Gateway:
        """Returns any gateway, preferably one that is up."""
        return some(self.gateways, rng)

    def auth_client(self, rng: random.Random) -> AuthClient:
        """Returns a client of auth, which reaches any replica of it that is up."""
        return AuthClient(SimTransport(self, rng, lambda: self.auths))

    def start_faults(self) -> None:
        """Starts faults and crashes."""
        self.has_faults = True
        self.faults.profile = self.plan.profile
        if self.plan.collecting is not None:
            self.collector_faults.profile = _brisk(self.plan.profile, self.plan.collecting)
        if self.cassandra is not None and self.plan.profile.down_rate:
            self.tasks.spawn(self.cassandra.trouble())
        if self.plan.crash_seconds:
            for machine in [*self.replicas, *self.gateways]:
                self.tasks.spawn(self._crashes(machine, self.plan.crash_seconds))
        for auth in self.auths:
            self.tasks.spawn(self._crashes(auth, self.plan.crash_seconds or _AUTH_CRASH_SECONDS))
        if self.plan.collecting is not None and self.plan.collecting.crash_seconds:
            for collector in self.collectors:
                self.tasks.spawn(self._crashes(collector, self.plan.collecting.crash_seconds))
        if self.plan.erasing is not None and self.plan.erasing.crash_seconds:
            for eraser in self.erasers:
                self.tasks.spawn(self._crashes(eraser, self.plan.erasing.crash_seconds))
        if self.plan.away_seconds:
            self.tasks.spawn(self._outages())
        if self.plan.skew_seconds:
            self.tasks.spawn(self._clock_jumps())

    def start_collectors(self, repositories: Sequence[str]) -> None:
        """Starts the collectors of the plan."""
        if self.plan.collecting is None:
            return
        for number in range(self.plan.collecting.collectors):
            self.collectors.append(CollectorProcess(self, f"k{number}", repositories))
            self.collectors[-1].start()
        for number in range(self.plan.erasing.erasers if self.plan.erasing is not None else 0):
            self.erasers.append(EraserProcess(self, f"e{number}"))
            self.erasers[-1].start()

    def block_link(self, wire: Wire) -> BlockLink:
        """Returns the block store as a replica or a gateway sees it."""
        if self.plan.collecting is None:
            return BlockLink(self.blocks, wire, self.faults)
        return self.swept_link(wire, self.faults, partial(self.kept.deleting, is_swept=False))

    def swept_link(
        self, wire: Wire, faults: FaultInjector, deleted: Callable[[BlockKey], None]
    ) -> SweptBlockLink:
        """Returns the block store as a process sees it that may delete blocks; `deleted` learns of each."""
        collecting = self.plan.collecting
        assert collecting is not None, "the plan has collections"
        return SweptBlockLink(
            self.blocks, wire, faults, valid_seconds=collecting.valid_seconds, deleted=deleted
        )

    def swept(self, key: BlockKey) -> None:
        """Notes that a collector is about to delete a block."""
        self.kept.deleting(key, is_swept=True)

    async def _crashes(self, machine: Machine, mean_seconds: float) -> None:
        rng = random.Random(f"crashes {self.plan.seed} {machine.name}")
        while True:
            await asyncio.sleep(rng.expovariate(1 / mean_seconds))
            if not self.has_faults:
                return
            machine.crash()
            await asyncio.sleep(rng.uniform(0, 1.0))
            machine.start()

    async def _outages(self) -> None:
        """Makes the block store refuse writes for a while, so that commits fail half-way."""
        rng = random.Random(f"outages {self.plan.seed}")
        while self.has_faults:
            await asyncio.sleep(rng.expovariate(1 / self.plan.away_seconds))
            self.faults.are_blocks_away = self.has_faults
            await asyncio.sleep(rng.uniform(0.5, 4.0))
            self.faults.are_blocks_away = False

    async def _clock_jumps(self) -> None:
        rng = random.Random(f"jumps {self.plan.seed}")
        skew = self.plan.skew_seconds
        while self.has_faults:
            await asyncio.sleep(rng.expovariate(0.2))
            rng.choice(self._machines).clock.skew_us = int(rng.uniform(-skew, skew) * 1e6)

    @property
    def _machines(self) -> list[Machine]:
        return [*self.replicas, *self.gateways, *self.auths, *self.collectors, *self.erasers]

    async def calm_down(self) -> None:
        """Ends all faults; waits until requests in flight have arrived and tokens are dropped."""
        self.has_faults = False
        self.faults.profile = self.collector_faults.profile = CALM
        self.faults.are_blocks_away = False
        plan = self.plan
        profile = plan.profile
        late = 4 * profile.slow_seconds + profile.queue_seconds + 2 * profile.pause_seconds
        is_brisk = plan.collecting is not None and plan.is_narrow
        await asyncio.sleep((_BRISK_CALM_SECONDS if is_brisk else _CALM_SECONDS) + late)
        if self.cassandra is not None:
            self.cassandra.heal()
        for process in [*self.collectors, *self.erasers]:
            if process.is_up:
                process.crash()
        for machine in [*self.replicas, *self.gateways, *self.auths]:
            if not machine.is_up:
                machine.start()
        await asyncio.sleep(2 * plan.registered_seconds + 2)
