"""A collector beside writers, readers and builds, on the real parts of a replica, in random interleavings.

Every request to the stores takes a random number of ticks, and time passes at random. The collector here is the
simplest one that follows docs/design/collection.md. At the end, every branch and every commit that leads to one must be
whole, but for rows whose writers were told that their outcome is unknown; and every reader must have read its block.
Commits that no branch ever named may have lost ranges.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from lake import MAIN, create_repository
from tests.support.clock import ManualClock, SeededIds

from tarn.aio.task_set import TaskSet
from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.block.rangefile import metarange_path, range_path
from tarn.core import collection as core
from tarn.core.collection import Collection, CollectionLimits, Phase, Totals
from tarn.core.entry import Entry, address_of, pack
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import BranchId, MetarangeId, physical_path
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.spans import PathSpan
from tarn.kv.keys import PATHS_START
from tarn.kv.mem import MemKv
from tarn.kv.records import Repository
from tarn_graveler.assembly import Graveler, GravelerSettings, assemble
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.config import open_committed
from tarn_graveler.records.branches import BranchName

__all__ = ["BRANCHES", "World", "play"]

SECOND = 1_000_000
LIMITS = CollectionLimits(
    staging_us=30 * SECOND,
    cutoff_us=90 * SECOND,
    grace_us=60 * SECOND,
    lease_us=10_000 * SECOND,
    batch_us=10_000 * SECOND,
)
DEV = BranchId("dev")
BRANCHES = (MAIN, DEV)
PATHS = [f"p{number}" for number in range(6)]


class Slow:
    """A store whose requests take a random number of ticks before and after they are applied."""

    def __init__(self, store: Any, rng: random.Random) -> None:
        self._store = store
        self._rng = rng

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(method) or name == "close":
            return method

        async def slow(*args: Any, **named: Any) -> Any:
            await ticks(self._rng)
            answer = await method(*args, **named)
            await ticks(self._rng)
            return answer

        return slow


async def ticks(rng: random.Random) -> None:
    for _ in range(rng.choice((0, 0, 1, 3, 12))):
        await asyncio.sleep(0)


class World:
    """A replica and what happens to it."""

    def __init__(self, seed: int, graveler: Graveler, repository: Repository, **parts: Any) -> None:
        self.rng = random.Random(seed)
        self.graveler = graveler
        self.repository = repository
        self.blocks: MemBlockStore = parts["blocks"]
        self.kv: MemKv = parts["kv"]
        self.clock: ManualClock = parts["clock"]
        self.ids: SeededIds = parts["ids"]
        self.doubtful: set[bytes] = set()
        self.deleted = 0
        self.problems: list[str] = []
        self.is_over = False

    def key(self, path: str) -> BlockKey:
        return BlockKey(self.repository.storage_namespace, path)

    def branch(self) -> BranchName:
        return BranchName(self.repository, self.rng.choice(BRANCHES))

    async def lets_time_pass(self) -> None:
        while not self.is_over:
            await ticks(self.rng)
            await asyncio.sleep(0)
            self.clock.advance(self.rng.choice((0.0, 0.5, 2.0)))

    # ---- clients

    async def put(self) -> None:
        """Writes a block, and stages it after a time that may be too long."""
        address = self.ids.uuid7()
        await self.blocks.put(self.key(physical_path(address)), b"x")
        await self.clock.sleep(self.rng.choice((0, 0, 5, 25, 100, 400)))
        await self.stage(address)

    async def copy(self) -> None:
        """Stages an address that a lookup found; it may be old."""
        packed = await self.graveler.reading.lookup(
            self.repository, self.rng.choice(BRANCHES), self.rng.choice(PATHS)
        )
        await self.clock.sleep(self.rng.choice((0, 5, 100)))
        address = address_of(packed)
        if address is not None and address not in self.doubtful:
            await self.stage(address)

    async def stage(self, address: bytes) -> None:
        packed = pack(Entry(self.rng.randrange(3), 0, address, bytes(16)))
        try:
            await self.graveler.staging.stage(self.branch(), self.rng.choice(PATHS), packed)
        except TarnError as error:
            if error.kind is Kind.UNKNOWN_OUTCOME:
                self.doubtful.add(address)
            raise

    async def read(self) -> None:
        """Reads the block of an entry, for up to the grace time."""
        packed = await self.graveler.reading.lookup(
            self.repository, self.rng.choice(BRANCHES), self.rng.choice(PATHS)
        )
        end = self.clock.now_us() + self.rng.randrange(50) * SECOND
        address = address_of(packed)
        while self.clock.now_us() < end:  # noqa: ASYNC110 - a sleep would end when the clock has jumped past it
            await asyncio.sleep(0)
        if self.clock.now_us() < end + 5 * SECOND and address not in self.doubtful:
            await self.look(physical_path(address or b""), "a reader")

    async def delete(self) -> None:
        await self.graveler.staging.unstage(self.branch(), self.rng.sample(PATHS, 2))

    async def commit(self) -> None:
        await self.graveler.committing.commit(self.branch(), CommitRequest("ann", ""))

    async def compact(self) -> None:
        await self.graveler.compacting.compact(self.branch())

    async def reset(self) -> None:
        start = self.rng.choice(PATHS)
        await self.graveler.part_resets.reset(self.branch(), PathSpan(start, start + "\0"))

    def works(self) -> list[Callable[[], Awaitable[None]]]:
        """Random operations of a client."""
        return [
            *(self.put,) * 4,
            *(self.commit, self.compact) * 2,
            *(self.copy, self.read, self.delete, self.reset),
        ]

    async def client(self, turns: int) -> None:
        works = self.works()
        for _ in range(turns):
            with suppress(TarnError):  # refused, unknown, or not found
                await self.rng.choice(works)()
            await self.clock.sleep(self.rng.randrange(10))

    # ---- the collector

    async def change(self, decide: Callable[[Collection], Collection]) -> None:
        await self.graveler.collections.change(self.repository, decide)

    async def roots(self) -> tuple[set[bytes], set[str]]:
        """Returns the addresses and the paths of metadata that are referenced."""
        addresses: set[bytes] = set()
        listings: set[str] = set()
        emptied: set[str] = set()
        cursor = ""
        while True:
            page = await self.graveler.roots.page(self.repository, cursor, 3)
            addresses |= set(page.addresses)
            listings |= page.metarange_ids.keys() - page.emptied_ids.keys()
            emptied |= page.emptied_ids.keys()
            cursor = page.cursor
            if not cursor:
                break
        paths: set[str] = set()
        for listing in listings:
            found, made = await self.closure(MetarangeId(listing))
            addresses |= found
            paths |= made
        for listing in emptied:
            paths |= (await self.closure(MetarangeId(listing)))[1]
        return addresses, paths

    async def expire(self) -> None:
        """Lets commits expire, before the roots of a mark are read; here none."""

    async def closure(self, listing: MetarangeId) -> tuple[set[bytes], set[str]]:
        namespace = self.repository.storage_namespace
        metarange = await self.graveler.committed.metarange(namespace, listing)
        _, entries = await self.graveler.committed.page(namespace, listing, "", 1000)
        ranges = {range_path(each.range_id) for each in metarange.ranges}
        return {address_of(each) or b"" for each in entries}, {metarange_path(listing), *ranges}

    async def old(self, cutoff_us: int) -> set[str]:
        infos = await self.blocks.list_page(self.repository.storage_namespace, "", "", 10_000)
        return {
            info.path
            for info in infos
            if info.mtime_us < cutoff_us and info.path.startswith(("data/", "_tarn/ranges/"))
        }

    async def unreferenced(self, paths: set[str]) -> set[str]:
        addresses, live = await self.roots()
        return paths - live - {physical_path(address) for address in addresses if address}

    async def collect(self) -> None:
        for number in range(1000):
            if self.is_over:
                return
            mark, sweep = f"{2 * number:032x}", f"{2 * number + 1:032x}"
            await self.begin(mark, Phase.MARK)
            cutoff_us = (await self.graveler.collections.read(self.repository)).cutoff_us
            await self.expire()
            doomed = await self.unreferenced(await self.old(cutoff_us))
            await self.end(mark)
            await self.clock.sleep(LIMITS.grace_us / 1e6)
            await self.begin(sweep, Phase.SWEEP, mark)
            doomed = await self.unreferenced(doomed)
            await self.delete_doomed(sweep, cutoff_us, sorted(doomed))
            await self.end(sweep)

    async def begin(self, run: str, phase: Phase, mark: str = "") -> None:
        def decide(at: Collection) -> Collection:
            return core.begin(at, run, phase, mark, self.clock.now_us(), LIMITS)

        await self.change(decide)

    async def end(self, run: str) -> None:
        def decide(at: Collection) -> Collection:
            return core.end(at, run, Totals(run), self.clock.now_us(), is_complete=True)

        await self.change(decide)

    async def delete_doomed(self, run: str, cutoff_us: int, doomed: list[str]) -> None:
        slow = Slow(self.blocks, self.rng)
        namespace = self.repository.storage_namespace
        await slow.delete_many(namespace, [each for each in doomed if each.startswith("data/")])
        paths = [each for each in doomed if each.startswith("_tarn/")]
        self.deleted += len(doomed)
        if not paths:
            return
        ids = [path.rpartition("/")[2].partition(".")[0] for path in paths]

        def begin(at: Collection) -> Collection:
            return core.begin_batch(at, run, ids, self.clock.now_us(), LIMITS)

        def end(at: Collection) -> Collection:
            return core.end_batch(at, run, self.clock.now_us(), LIMITS)

        await self.change(begin)
        still = [path for path in paths if path in await self.old(cutoff_us)]
        await slow.delete_many(namespace, still)
        await self.change(end)

    # ---- the checks

    async def look(self, path: str, who: str) -> None:
        try:
            await self.blocks.stat(self.key(path))
        except BlockNotFoundError:
            self.problems.append(f"{who} misses {path}")

    async def check(self) -> None:
        keys = self.graveler.repositories.keys_of(self.repository)
        listings: dict[MetarangeId, str] = {}
        for branch_id in BRANCHES:
            name = BranchName(self.repository, branch_id)
            branch = (await self.graveler.branches.fresh(name)).branch
            line = [branch.commit_id]
            while line:
                commit = await self.graveler.commits.get(self.repository, line[-1])
                listings[commit.metarange_id] = f"commit {line.pop()}"
                line += commit.parents
            listings[await self.graveler.layers.base_of(self.repository, branch)] = branch_id
            for token in branch.tokens:
                for key, value in await self.kv.scan(keys.token(branch_id, token), b"", None, 1000):
                    address = address_of(value) if key.startswith(PATHS_START) else None
                    if address is not None and address not in self.doubtful:
                        await self.look(physical_path(address), f"{key!r} of {branch_id}")
        for listing, who in listings.items():
            addresses, paths = await self.closure(listing)
            for path in paths if await self.is_not_empty(listing) else ():
                await self.look(path, who)
            for address in addresses - self.doubtful - {b""}:
                await self.look(physical_path(address), who)

    async def is_not_empty(self, listing: MetarangeId) -> bool:
        namespace = self.repository.storage_namespace
        return bool((await self.graveler.committed.metarange(namespace, listing)).ranges)


WorldT = TypeVar("WorldT", bound=World)


@contextmanager
def work_in_the_loop() -> Iterator[None]:
    """Does what is meant for threads in the event loop, for the while.

    The manual clock goes on while a thread works: on a busy machine, a read of a file would take hours of its time.
    """
    loop = asyncio.get_running_loop()

    def run(_: object, call: Callable[..., object], *args: object) -> asyncio.Future[object]:
        done: asyncio.Future[object] = loop.create_future()
        try:
            done.set_result(call(*args))
        except Exception as error:  # noqa: BLE001 - it goes to who awaits
            done.set_exception(error)
        return done

    with patch.object(loop, "run_in_executor", run):
        yield


async def play(seed: int, folder: Path, turns: int, make: type[WorldT]) -> WorldT:
    """Plays one run."""
    clock, rng = ManualClock(), random.Random(f"stores {seed}")
    kv, blocks, ids = MemKv(), MemBlockStore(clock), SeededIds(clock, seed=seed)
    async with AsyncExitStack() as stack:
        stack.enter_context(work_in_the_loop())
        committed = await stack.enter_async_context(
            open_committed(Slow(blocks, rng), folder / f"cache{seed}", rule=BreakRule(rows_mean=2))
        )
        tasks = TaskSet()
        stack.push_async_callback(tasks.close)
        graveler = assemble(
            settings=GravelerSettings("test", drop_delay_seconds=20.0, collection=LIMITS),
            kv=Slow(kv, rng),
            blocks=Slow(blocks, rng),
            committed=committed,
            clock=clock,
            ids=ids,
            tasks=tasks,
        )
        repository = await create_repository(graveler)
        world = make(seed, graveler, repository, blocks=blocks, kv=kv, clock=clock, ids=ids)
        head = (await graveler.branches.fresh(BranchName(repository, MAIN))).branch.commit_id
        await graveler.branches.create(BranchName(repository, DEV), head)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(world.lets_time_pass())
            collecting = group.create_task(world.collect())
            cleaning = group.create_task(graveler.cleaner.run())
            clients = [group.create_task(world.client(turns)) for _ in range(4)]
            await asyncio.wait(clients)
            await clock.sleep(2 * LIMITS.cutoff_us / 1e6)
            world.is_over = True
            collecting.cancel()
            cleaning.cancel()
        await world.check()
    return world
