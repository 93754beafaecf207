"""Runs in which the metadata store is lost, and rebuilt from the bucket by production's code (docs/design/journal.md).

Two worlds share a bucket and a clock. The *first* plays a plan whose replicas keep events and drain them. At a random
moment its store counts as lost. What becomes of its processes differs by seed: they are *gone*, they *pause* while
the rebuild runs and go on afterwards, or they never notice and go *on*. So there are drain holders and writers that
were paused over the rebuild, and others beside it. Whatever they do, the first world's own promises hold to its end,
and the second one must not notice them.

A process rebuilds the store of the *second* world. It crashes at random awaits and is refused by both stores; the same
rebuild is then repeated. If the lost store was drained between two attempts, the second one may refuse a target that
is half filled, which is then emptied, as it asks. Then clients go on over the rebuilt store, with the rebuilt state as
the first writes of their history. Judged is, without production's replay (`tests.sim.drained_state`):

- R1 *drained is rebuilt*: each branch, each record and each reflog is what the files of the epoch said when that of the
  rebuild began: also those files that a process of the lost store wrote while the rebuild worked.
- R2 *the difference is what was not drained*: files and events that were still in the store, together, are the store.
- R3 *nothing older than the lag*: a read of the rebuilt state, at some moment between the begin of the last pass and
  now, breaks no promise of the first world. So it has nothing that was never visible.
- R4 a repetition tells the same as an attempt that nothing disturbs.
- R5 the second world keeps all promises, also those of its journal.
- R6 *no dangling entry*: in runs with collections, when all processes of the lost store have ended, each block that the
  second world names is there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.sim.compactors import Compactor
from tests.sim.drained_state import (
    DELETED,
    Told,
    contents_of,
    epoch_of,
    listings_of,
    reflog_rows,
    stored,
    told_by,
)
from tests.sim.journaled import REBUILT
from tests.sim.lost import LostError
from tests.sim.machine import Machine
from tests.sim.plan import Plan, planned
from tests.sim.run import Run, judged, play, play_clients, simulated
from tests.sim.workload import Client
from tests.sim.world import SALT, World
from tests.support.check.history import ABSENT, Op, OpKind, Outcome
from tests.support.faults.modes import Mode
from tests.support.sim.blocks import BlockLink, committed_over
from tests.support.sim.faults import CALM, FaultProfile
from tests.support.sim.link import KvLink
from tests.support.sim.loop import SimLoop

from tarn.block.port import BlockInfo
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import MetarangeId
from tarn.journal.epochs import EpochCause, newest_epoch
from tarn.journal.names import EPOCHS, epoch_path
from tarn.journal.source import find_source
from tarn.kv.fence import read_fence
from tarn.kv.keys import InstallationKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import PartitionInfo
from tarn.kv.record_kinds import place_of
from tarn.kv.records import Repository, decode_bucket
from tarn.snapshot.store import OpenStore, RateLimiter, TransferOptions
from tarn_graveler.rebuild.filling import fill_installation
from tarn_graveler.rebuild.installation import rebuild_installation
from tarn_graveler.rebuild.report import RebuildReport
from tarn_graveler.rebuild.repository import Rebuilder

__all__ = ["AFTER", "Fate", "LossRun", "loss_plan", "loss_run"]

_KEYS = InstallationKeys("sim")
_SHARED = "local://tarn-journal-sim"
_SECOND_SEED = 1_000_000
_SAMPLE_SECONDS = 0.02
_ATTEMPTS_UNDER_FAULTS = 3
_ATTEMPTS_MAX = 12
_ATTEMPT_SECONDS = 600.0
_QUIET_SECONDS = 0.5
_OPERATIONS_MAX = 24
_CLIENTS_MAX = 4
_FAULTS = FaultProfile(hop_seconds=0.0005, refused_rate=0.002, lost_rate=0.01)
Contents = dict[str, dict[str, bytes]]


class Fate:
    """What becomes of the processes of the lost store."""

    GONE = "gone"
    PAUSED = "paused"
    ON = "on"


AFTER: Sequence[str] = (Fate.GONE, Fate.PAUSED, Fate.ON)
"""By the seed modulo three."""


@dataclass(frozen=True)
class LossRun:
    """The result of a seed: the two worlds, and what the rebuild broke."""

    first: Run
    second: Run
    problems: list[str]
    statistics: Mapping[str, int]

    @property
    def violations(self) -> list[str]:
        """All that was broken."""
        told = [f"before: {each}" for each in self.first.violations]
        return [*told, *(f"after: {each}" for each in self.second.violations), *self.problems]


class _LostWorld(World):
    """The first world. One whose processes are gone comes back when the rebuild is over."""

    def __init__(self, loop: SimLoop, plan: Plan, salt: str) -> None:
        super().__init__(loop, plan, salt=salt)
        self.is_lost = True
        self.is_gone = False
        self.is_rebuilt = asyncio.Event()
        self.samples: list[tuple[float, int]] = [(0.0, 0)]

    async def serving(self) -> None:
        """See `World.serving`."""
        if self.is_gone:
            await self.is_rebuilt.wait()

    def come_back(self) -> None:
        """Ends the time of the rebuild: what was gone comes back, and finds that another store has its journal."""
        for machine in self._processes if self.is_gone else []:
            machine.start()
        self.is_gone = False
        self.is_rebuilt.set()

    @property
    def _processes(self) -> list[Machine]:
        return [*self.replicas, *self.gateways, *self.collectors]

    async def sample(self) -> None:
        """Notes which time of the history is which time of the loop."""
        while not self.is_rebuilt.is_set():
            self.samples.append((self.loop.time(), self.history.clock))
            await asyncio.sleep(_SAMPLE_SECONDS)

    def lose(self, fate: str, rng: random.Random) -> None:
        """Loses the store: its processes meet their fate."""
        self.log(f"the store is lost; its processes: {fate}")
        if fate == Fate.GONE:
            self.is_gone, self.has_faults = True, False
        for machine in self._processes:
            if fate == Fate.GONE and machine.is_up:
                machine.crash()
            elif fate == Fate.PAUSED:
                machine.pause(rng.uniform(1.0, 8.0))


class _TargetLink(KvLink):
    """A link whose store can be listed."""

    async def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        """See `ListingKv.partitions`."""

        async def listed() -> list[PartitionInfo]:
            return [each async for each in self._kv.partitions(prefix)]  # type: ignore[attr-defined]

        for each in await self._wire.send("partitions", listed):
            yield each


class _BucketLink(BlockLink):
    """A link whose listings take time, and fail."""

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        """See `BlockStore.list_page`."""

        async def listed() -> list[BlockInfo]:
            await self._faults.hop("block")
            self._faults.refuse(f"the list of {prefix}")
            return await self._blocks.list_page(namespace, prefix, after, limit)

        return await self._wire.send(f"list {prefix}", listed)


class RebuildProcess(Machine):
    """`tarn rebuild`, on a machine that may crash."""

    def tools(self) -> Rebuilder:
        """Returns production's rebuild, which writes to a temporary store."""
        world = self.world
        blocks = _BucketLink(world.blocks, self.wire, world.faults)
        committed = committed_over(blocks, world.plan.rows_mean)
        return Rebuilder(MemKv(), _KEYS, blocks, committed, self.clock, self.ids)

    async def attempt(self) -> RebuildReport:
        """Rebuilds the store of the world, as the command does."""
        world, tools = self.world, self.tools()
        link = _TargetLink(world.store.open(self.clock), self.wire, world.plan.page_rows)
        is_shared = world.plan.store == "cassandra"
        target = OpenStore(link, "sim", "sim://", is_shared)
        options = TransferOptions(self.clock, RateLimiter(self.clock))
        made = tools.kv
        assert isinstance(made, MemKv)
        return await fill_installation(tools, made, target, self.ids, options, _SHARED)


@dataclass
class _Loss:
    """One loss, and its rebuild."""

    first: _LostWorld
    salt: str
    fate: str
    rng: random.Random
    second: World = field(init=False)
    problems: list[str] = field(default_factory=list)
    attempts: int = 0
    lost: dict[str, Repository] = field(default_factory=dict)

    def problem(self, text: str) -> None:
        self.first.log(f"PROBLEM {text}")
        self.problems.append(text)

    # ---- the loss

    async def lose(self) -> bool:
        """Loses the store, if anything was drained yet; otherwise there is nothing to rebuild, and it returns False."""
        try:
            await find_source(self.first.blocks, _SHARED)
        except TarnError:
            return False
        for repository in await self._repositories(self.first):
            try:
                source = await find_source(self.first.blocks, repository.storage_namespace)
            except TarnError:
                continue
            states = await told_by(self.first, repository.storage_namespace, source.epoch)
            self.lost[repository.repository_id] = repository
            await self._compare_difference(repository, states[-1])
        if "lake" not in self.lost:
            return False
        self.first.lose(self.fate, self.rng)
        return True

    async def _repositories(self, world: World) -> list[Repository]:
        rows, _ = await world.store.peek(_KEYS.graveler.name)
        found = [decode_bucket(value) for key, value in rows.items() if key.startswith(b"repos")]
        return [each for each in found if isinstance(each, Repository) and each.is_served]

    async def _compare_difference(self, repository: Repository, told: Told) -> None:
        """R2."""
        keys = _KEYS.of_repository(repository.repository_id, repository.instance_uid)
        state, events = await stored(self.first.store, keys)
        listings = await listings_of(self.first.store, keys)
        now = await contents_of(self.first, repository, state, listings)
        then = await contents_of(self.first, repository, told.with_events(events), listings)
        if now != then:
            self.problem(
                f"{repository.repository_id}: files and events that are left are not what the store holds: "
                f"{self._shown(then)} instead of {self._shown(now)}"
            )

    def _shown(self, contents: Contents) -> dict[str, dict[str, int]]:
        """As clients see it: of equal objects, a listing may keep the entry that it has."""
        values = self.first.values
        return {
            name: {path: values.same(values.of(entry)) for path, entry in sorted(entries.items())}
            for name, entries in sorted(contents.items())
        }

    # ---- the rebuild

    async def rebuild(self) -> RebuildReport | None:
        """Rebuilds until an attempt has opened the store; None: nobody has its report."""
        second = self.second
        process = RebuildProcess(second, "x")
        second.faults.profile = CALM
        if self.fate == Fate.GONE:  # what they have sent arrives
            profile = self.first.plan.profile
            await asyncio.sleep(1.0 + 4 * profile.slow_seconds + profile.queue_seconds)
        process.start()
        alone = await process.ask(self._alone(process), _ATTEMPT_SECONDS)
        process.crash()
        report = None
        while not await self._is_open():
            assert self.attempts < _ATTEMPTS_MAX, "a rebuild without faults does not end"
            self.attempts += 1
            report = await self._attempt(process)
        if report is not None and self.fate == Fate.GONE:
            report.rows = 0
            if report.as_record() != alone.as_record():
                self.problem(f"a repetition tells {report.as_record()}, not {alone.as_record()}")
        return report

    @staticmethod
    def _alone(process: RebuildProcess) -> Callable[[], Awaitable[RebuildReport]]:
        async def work() -> RebuildReport:
            return (await rebuild_installation(process.tools(), _SHARED)).report

        return work

    async def _attempt(self, process: RebuildProcess) -> RebuildReport | None:
        loop, is_calm = self.first.loop, self.attempts > _ATTEMPTS_UNDER_FAULTS
        self.second.faults.profile = CALM if is_calm else _FAULTS
        process.start()
        dies = None
        if not is_calm:
            dies = loop.call_later(
                self.rng.choice([0.05, 0.3, 2.0]) * self.rng.random(), process.crash
            )
        try:
            return await process.ask(process.attempt, _ATTEMPT_SECONDS)
        except (TarnError, LostError) as error:
            self.first.log(f"attempt {self.attempts} of the rebuild: {error}")
            if isinstance(error, TarnError) and error.kind is Kind.CONFLICT:
                self._empty_target()
            return None
        finally:
            self.second.faults.profile = CALM
            if dies is not None:
                dies.cancel()
            if process.is_up:
                process.crash()
            await asyncio.sleep(_QUIET_SECONDS)  # what it has sent has arrived

    def _empty_target(self) -> None:
        """Does what the refusal says: the lost store was drained between two attempts, so these differ."""
        if self.fate == Fate.GONE:
            self.problem("attempts differ, although nothing was drained between them")
        self.second.make_store()

    async def _is_open(self) -> bool:
        kv = self.second.store.open(self.first.replicas[0].clock)
        fence, _ = await read_fence(kv, "sim")
        rows, _ = await self.second.store.peek(_KEYS.graveler.name) if self.attempts else ({}, [])
        return fence is None and bool(rows)

    # ---- what it must be

    async def compare(self, report: RebuildReport | None) -> dict[str, Contents]:
        """Compares the rebuilt store with the bucket and with the history; returns what it shows."""
        shown: dict[str, Contents] = {}
        for repository in await self._repositories(self.second):
            name = repository.repository_id
            keys = _KEYS.of_repository(name, repository.instance_uid)
            state, _ = await stored(self.second.store, keys)
            listings = await listings_of(self.second.store, keys)
            shown[name] = await contents_of(self.second, repository, state, listings)
            if name not in self.lost or self.lost[name].instance_uid != repository.instance_uid:
                continue
            states = await self._possible(repository)
            possible = [await self._rebuilt(repository, each, listings) for each in states]
            now = self._shown(shown[name]), _others(state)
            if now not in possible:
                self.problem(f"{name} is not what its files say: {now} instead of {possible}")
        if "lake" not in shown:
            self.problem("lake was not rebuilt")
        else:
            self._read_in_the_past(shown["lake"], report)
        return shown

    async def _possible(self, repository: Repository) -> list[Told]:
        """Returns what the files said when the epoch of the rebuild began. If attempts had died after the begin of
        theirs, also what they said from the first of these on: the lost store could delete nothing any more."""
        blocks, namespace = self.first.blocks, repository.storage_namespace
        rebuilt = await newest_epoch(blocks, namespace)
        if rebuilt is None or rebuilt.cause is not EpochCause.REBUILD:
            self.problem(f"{repository.repository_id} has the newest epoch {rebuilt}")
            return []
        source = await epoch_of(blocks, namespace, rebuilt.parent)
        paths = blocks._namespaces[namespace]
        begun = [
            path for path in paths if path.startswith(EPOCHS) and path > epoch_path(source.number)
        ]
        return await told_by(self.first, namespace, source, begun[0], epoch_path(rebuilt.number))

    async def _rebuilt(
        self, repository: Repository, told: Told, listings: Mapping[str, MetarangeId]
    ) -> tuple[dict[str, dict[str, int]], dict[str, bytes]] | None:
        """Returns what a rebuild of these files must be; None: the store lacks a commit for that."""
        if any(each.commit_id not in listings for each in told.branches.values()):
            return None
        contents = await contents_of(self.second, repository, told, listings)
        others = {key: row for key, row in _others(told).items() if not key.startswith(DELETED)}
        return self._shown(contents), others | reflog_rows(told)

    def _read_in_the_past(self, shown: Contents, report: RebuildReport | None) -> None:
        """R3: a read for the checker of the first world."""
        lake = (
            [each for each in report.repositories if each.repository_id == "lake"] if report else []
        )
        if not lake:
            return
        clock, skew = self.first.replicas[0].clock, self.first.plan.skew_seconds
        ago = (clock.now_us() - clock.skew_us - lake[0].drained_until_us) / 1e6 + skew
        at = self.first.loop.time() - ago
        since = max(tick for time, tick in self.first.samples if time <= max(at, 0.0))
        history, values = self.first.history, self.first.values
        for branch in ("main", "side"):
            if branch == "side" and not self.first.plan.has_side:
                continue
            for key in self.first.keys:
                op = history.begin(REBUILT, OpKind.GET, f"lake/{branch}", key, inv=since)
                entry = shown.get(branch, {}).get(key)
                op.value = ABSENT if entry is None else values.of(entry)
                history.finish(op, Outcome.OK)

    # ---- the second world

    async def go_on(self, shown: dict[str, Contents]) -> None:
        """Plays clients over the rebuilt store."""
        second = self.second
        await self._note_base()
        branches = [f"lake/{name}" for name in ("main", "side") if name in shown["lake"]]
        (lake,) = [
            each for each in await self._repositories(second) if each.repository_id == "lake"
        ]
        keys = _KEYS.of_repository(lake.repository_id, lake.instance_uid)
        state, _ = await stored(second.store, keys)
        listings = await listings_of(second.store, keys)
        committed = committed_over(second.blocks, second.plan.rows_mean)
        for label in branches:
            name = label.removeprefix("lake/")
            head = state.branches[name].commit_id
            page = await committed.page(lake.storage_namespace, listings[head], "", 10_000)
            self._begin_with(label, head, dict(zip(*page, strict=True)), shown["lake"][name])
        for replica in second.replicas:
            replica.start()
        others: list[Client] = []
        if second.plan.compact_seconds:
            others = [Compactor(second, "2compactor", branches)]
        await play_clients(second, branches, others)

    def _begin_with(
        self, label: str, head: str, committed: Mapping[str, bytes], shown: Mapping[str, bytes]
    ) -> None:
        """Adds the rebuilt state of a branch to the history, as its first writes."""
        history, values = self.second.history, self.second.values
        ops: list[Op] = [history.begin(REBUILT, OpKind.CREATE, label)]
        ops[0].commit_id = head
        history.finish(ops[0], Outcome.OK)
        for path in sorted(committed.keys() | shown.keys()):
            entry = shown.get(path)
            if entry == committed.get(path):
                continue  # the creation wrote it
            if entry is None:
                op = history.begin(REBUILT, OpKind.DELETE, label, path, ABSENT)
            else:
                op = history.begin(REBUILT, OpKind.PUT, label, path, values.of(entry))
            history.finish(op, Outcome.OK)

    async def look_at_blocks(self) -> None:
        """R6. The blocks of what clients of the second world have put are not placed."""
        own = {
            op.value
            for op in self.second.history.ops
            if op.kind is OpKind.PUT and op.proc != REBUILT
        }
        replica = self.second.replicas[0]
        if not replica.is_up:
            replica.start()
        for repository in await self._repositories(self.second):
            referenced = await self.second.kept.referenced(replica, repository)
            for key in self.second.kept.missing(referenced):
                values = referenced[key] - own
                if not values and referenced[key]:
                    continue
                if not values or not all(map(self.first.kept.is_doubtful, values)):
                    self.problem(f"{key.path} of {repository.repository_id} is missing")

    async def _note_base(self) -> None:
        store = self.second.store
        for name in {
            partition for partition in await self._partitions() if place_of("sim", partition)
        }:
            rows, _ = await store.peek(name)
            self.second.journaled.records.rebuilt(name, rows)

    async def _partitions(self) -> list[str]:
        kv = self.second.store.open(self.first.replicas[0].clock)
        return [each.name async for each in kv.partitions("sim/")]  # type: ignore[attr-defined]


def _others(told: Told) -> dict[str, bytes]:
    """The records of which a rebuild makes no others."""
    made = ("branches/", "names/", "collection")
    return {
        key: payload
        for key, (_, payload) in told.records.items()
        if payload and not key.startswith(made)
    }


def loss_run(plan: Plan, *, salt: str = SALT) -> LossRun:
    """Plays a plan, loses its store at a random moment, rebuilds it, and goes on."""
    worlds: list[World] = []
    losses: list[_Loss] = []
    rng = random.Random(f"loss {plan.seed}")

    async def main(loop: SimLoop) -> None:
        loop.steps_max *= 2  # two worlds
        first = _LostWorld(loop, plan, salt)
        worlds.append(first)
        loss = _Loss(first, salt, AFTER[plan.seed % len(AFTER)], rng)
        losses.append(loss)
        first.tasks.spawn(first.sample())
        playing = loop.create_task(play(first))
        await asyncio.sleep(rng.uniform(1.0, 8.0))
        while not await loss.lose():  # noqa: ASYNC110 - there is no such event
            await asyncio.sleep(1.0)
        second = World(loop, _second(plan), salt=salt, before=first)
        second.life = "2"
        second.history.first = _SECOND_SEED
        loss.second = second
        report = await loss.rebuild()
        shown = await loss.compare(report)
        worlds.append(second)
        first.come_back()
        if "lake" in shown:
            await loss.go_on(shown)
        await playing
        if plan.collecting is not None:
            await loss.look_at_blocks()
        first.problems += loop.errors

    logs = simulated(plan, worlds, main)
    runs = [judged(world, logs) for world in worlds]
    second = runs[1] if len(runs) > 1 else runs[0]
    if len(runs) == 1:
        losses[0].problem("the store was not rebuilt")
    statistics = {"attempts": losses[0].attempts}
    return LossRun(runs[0], second, losses[0].problems, statistics)


def loss_plan(seed: int, store: str, mode: Mode = Mode.DRAWN) -> Plan:
    """Returns the plan of a seed with events, and so few operations that two worlds fit a run."""
    plan = planned(seed, mode)
    few = min(plan.operations, _OPERATIONS_MAX)
    clients = min(plan.clients, _CLIENTS_MAX)
    return replace(plan, store=store, keeps_events=True, operations=few, clients=clients)


def _second(plan: Plan) -> Plan:
    """The plan of the second world: as the first, with fewer operations, and without collections."""
    return replace(
        plan,
        collecting=None,
        online_seconds=0.0,
        seed=plan.seed + _SECOND_SEED,
        operations=max(5, plan.operations // 3),
        has_branch_turns=False,
        has_repository_turns=False,
        has_namesakes=False,
    )
