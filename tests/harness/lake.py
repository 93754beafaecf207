"""One or two graveler replicas over one gated KV in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from slowness import scaled
from tests.support.clock import ManualClock, SeededIds
from tests.support.faults.gates import GatedKv, HeldOperation

from tarn.aio.task_set import TaskSet
from tarn.block.mem import MemBlockStore
from tarn.core.branch import Token
from tarn.core.collection import LIMITS, CollectionLimits
from tarn.core.entry import Entry, pack, unpack
from tarn.core.errors import TarnError
from tarn.core.ids import BranchId, RepositoryId
from tarn.core.listing.breaks import BreakRule
from tarn.kv.keys import InstallationKeys, RepositoryKeys, path_key
from tarn.kv.mem import MemKv
from tarn.kv.port import Kv, Partition
from tarn.kv.records import Repository
from tarn.telemetry.meters import Meters
from tarn.telemetry.operations import Operations
from tarn_graveler.assembly import Graveler, GravelerSettings, assemble
from tarn_graveler.branch.committing import CommitRequest, CommitResult
from tarn_graveler.collection.online_deletion import OFFLINE, OnlineSettings
from tarn_graveler.config import open_committed
from tarn_graveler.reads.journal import ReadJournal
from tarn_graveler.records.branches import BranchName

__all__ = [
    "MAIN",
    "Lake",
    "Replicas",
    "Running",
    "create_repository",
    "ended",
    "entry",
    "keep_tokens",
    "reached",
    "started",
]

T = TypeVar("T")

MAIN = BranchId("main")
DELAY = 60.0


ADDRESS = SeededIds(ManualClock(), seed=7).uuid7()
"""An address that may be staged: it is made when the clock of a lake begins."""


def entry(size: int, operation_id: str = "", address: bytes = bytes(16)) -> bytes:
    """Returns an entry that is identified by its size."""
    return pack(Entry(size, 0, address, bytes(16), operation_id=operation_id))


async def keep_tokens(tokens: Sequence[Token]) -> None:
    """Announces no tokens, so a deleted branch leaves its tokens behind."""


async def reached(gate: HeldOperation) -> None:
    """Waits until an operation has arrived at a gate; fails after a while, and tells which calls came instead."""
    try:
        async with asyncio.timeout(scaled(15)):
            await gate.reached.wait()
    except TimeoutError:
        told = ", ".join(gate.passed()) or "none"
        raise AssertionError(
            f"no call that the gate holds; calls since it was made: {told}"
        ) from None


async def ended(task: asyncio.Task[Any]) -> None:
    """Waits until a task is over, however it ends."""
    await asyncio.wait([task])


@dataclass(frozen=True)
class Lake:
    """A repository and the replica that a test talks to."""

    graveler: Graveler
    repository: Repository
    kv: GatedKv
    clock: ManualClock
    meters: Meters = field(default_factory=Meters)

    @property
    def main(self) -> BranchName:
        """The branch `main`."""
        return self.branch(MAIN)

    def branch(self, branch_id: BranchId) -> BranchName:
        """Returns a branch of the repository."""
        return BranchName(self.repository, branch_id)

    async def put(self, path: str, size: int, branch: BranchId = MAIN) -> None:
        await self.graveler.staging.stage(self.branch(branch), path, entry(size))

    async def delete(self, *paths: str, branch: BranchId = MAIN) -> list[TarnError | None]:
        return await self.graveler.staging.unstage(self.branch(branch), paths)

    async def get(self, path: str, ref: str = "main") -> int | None:
        """Returns the size of a path's entry; None if it has none."""
        try:
            return unpack(await self.graveler.reading.lookup(self.repository, ref, path)).size
        except TarnError as error:
            if error.reason == "ENTRY_NOT_FOUND":
                return None
            raise

    async def commit(self, message: str = "", *, allow_empty: bool = False) -> CommitResult:
        request = CommitRequest("ann", message, allow_empty=allow_empty)
        return await self.graveler.committing.commit(self.main, request)

    async def staging_rows(self) -> Partition:
        branch = (await self.graveler.branches.fresh(self.main)).branch
        keys = self.graveler.repositories.keys_of(self.repository)
        return keys.token(MAIN, branch.staging)

    @property
    def branch_key(self) -> bytes:
        return RepositoryKeys.branch(MAIN)

    @staticmethod
    def row_key(path: str) -> bytes:
        return path_key(path)

    async def drop_everything_removed(self) -> int:
        """Runs the cleaner after the drop delay: it looks at announced tokens, and drops them later."""
        count = 0
        for _ in range(3):
            self.clock.advance(DELAY + 1)
            count += await self.graveler.cleaner.drop_due()
        return count


class ReplicaTasks:
    """The background tasks of all replicas. Those of one replica end with it, before its threads and its cache."""

    def __init__(self) -> None:
        self._sets: list[TaskSet] = []

    def __len__(self) -> int:
        return sum(map(len, self._sets))

    @asynccontextmanager
    async def another(self) -> AsyncIterator[TaskSet]:
        made = TaskSet()
        self._sets.append(made)
        try:
            yield made
        finally:
            await made.close()

    async def drain(self, timeout_s: float) -> bool:
        """Waits until no task is left; returns False if a replica's tasks took longer than `timeout_s`."""
        return all([await each.drain(timeout_s) for each in self._sets])

    async def close(self) -> None:
        """Ends the tasks of all replicas at their present step."""
        for each in self._sets:
            await each.close()


class Replicas:
    """Makes replicas of one installation."""

    def __init__(
        self,
        directory: Path,
        kv: Kv | None = None,
        collection: CollectionLimits = LIMITS,
        store: Callable[[ManualClock], MemBlockStore] = MemBlockStore,
        online: OnlineSettings = OFFLINE,
        *,
        keeps_reads: bool = False,
        keeps_events: bool = False,
        namespace_prefix: str = "local://",
    ) -> None:
        self.keeps_reads = keeps_reads
        self.keeps_events = keeps_events
        self.namespace_prefix = namespace_prefix
        self.directory = directory
        self.collection = collection
        self.online = online
        self.clock = ManualClock()
        self.kv = GatedKv(kv or MemKv())
        self.blocks = store(self.clock)
        self.tasks = ReplicaTasks()
        self.meters = Meters()
        self.count = 0
        self.made: list[Graveler] = []

    @asynccontextmanager
    async def replica(self) -> AsyncIterator[Graveler]:
        self.count += 1
        async with (
            open_committed(
                self.blocks, self.directory / f"cache{self.count}", rule=BreakRule(rows_mean=4)
            ) as committed,
            self.tasks.another() as tasks,
        ):
            graveler = assemble(
                settings=GravelerSettings(
                    "test",
                    drop_delay_seconds=DELAY,
                    collection=self.collection,
                    online=self.online,
                    namespace_prefix=self.namespace_prefix,
                    keeps_events=self.keeps_events,
                ),
                kv=self.kv,
                blocks=self.blocks,
                committed=committed,
                clock=self.clock,
                ids=SeededIds(self.clock, seed=self.count),
                tasks=tasks,
                operations=Operations(self.clock, self.meters),
            )
            if self.keeps_reads:
                ids, keys = SeededIds(self.clock, seed=100 + self.count), InstallationKeys("test")
                journal = ReadJournal(
                    self.kv, self.blocks, self.clock, ids, keys, graveler.features
                )
                graveler = replace(graveler, journal=journal)
            self.made.append(graveler)
            yield graveler


async def create_repository(graveler: Graveler, name: str = "lake") -> Repository:
    from tarn.core.commit import Commit

    reservation = await graveler.repositories.reserve(RepositoryId(name), "", MAIN)
    repository = reservation.repository
    built = await graveler.committed.build(repository.storage_namespace, None, [])
    commit = Commit((), built.metarange_id, "ann", "", 0, 0, ())
    commit_id = await graveler.commits.add(repository, commit)
    await graveler.branches.create(BranchName(repository, MAIN), commit_id)
    await graveler.repositories.publish(reservation)
    return repository


class Running:
    """Starts operations that a gate holds; ends them with the test."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        return task

    async def close(self) -> None:
        """Cancels what still runs, and drops its errors, which answer the cancellation.

        A task that had failed before is reported as asyncio does it, unless the test has looked at its error."""
        running = [task for task in self._tasks if task.cancel()]
        self._tasks.clear()
        if running:
            await asyncio.wait(running)
        for task in running:
            if not task.cancelled():
                task.exception()


async def started(
    work: Coroutine[Any, Any, None], held: HeldOperation, running: Running
) -> tuple[asyncio.Task[None], HeldOperation]:
    """Starts some work, which goes as far as the operation that is held."""
    task = running.start(work)
    await reached(held)
    return task, held
