"""A process that dies at any await of a compaction, a commit or a reset leaves the branch as it was, or as the
operation leaves it.

Nothing remains of a dead process but what it has sent. So it dies once after each request that it sends, which may
still arrive, and once after each answer, before it sends anything more. Then another replica reads the branch, writes,
compacts and commits. In the end the cleaners have dropped every token that the record does not name, and fsck finds
nothing but what is left to garbage collection.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from lake import MAIN, Lake, create_repository
from lake_parts import listing, reset
from tests.sim.plan import Plan, draw
from tests.sim.world import Replica, World
from tests.support.clock import RestlessClock
from tests.support.sim.kv_cassandra import SimCassandra
from tests.support.sim.kv_sqlite import SimSqlite
from tests.support.sim.loop import SimLoop, simulate

from tarn.block.port import BlockKey
from tarn.core.branch import TokenKind
from tarn.core.condition import WriteCondition
from tarn.core.entry import Entry, pack
from tarn.core.errors import TarnError
from tarn.core.ids import physical_path
from tarn.fsck.check import check
from tarn.fsck.finding import Code
from tarn.fsck.progress import CheckProgress
from tarn.fsck.session import FsckOptions
from tarn.fsck.state import open_state
from tarn.kv.records import Repository
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.compaction.compacting import CompactionOutcome, CompactionResult

pytestmark = pytest.mark.timeout(600)

Contents = dict[str, int]

_DIES = "r0"
_SETTLES_SECONDS = 0.1
_LEFT_TO_COLLECTION = {
    Code.COMMIT_ORPHAN,
    Code.METARANGE_ORPHAN,
    Code.RANGE_ORPHAN,
    Code.BLOCK_ORPHAN,
}


class MortalWorld(World):
    """A world without faults, whose first replica dies at a moment: after it sends a request, or gets an answer.

    Attributes:
        dies_at: the number of the moment, from 1 on.
        moments: how many there were while `counts` was set.
        counts: whether the operation runs.
    """

    def __init__(self, loop: SimLoop, plan: Plan, dies_at: int) -> None:
        self.dies_at = dies_at
        self.moments = 0
        self.counts = False
        super().__init__(loop, plan, is_traced=True)

    def log(self, text: str) -> None:
        """Counts the moments: the wire tells each request and each answer."""
        super().log(text)
        if not self.counts or not text.startswith(f"  {_DIES}."):
            return
        self.moments += 1
        if self.moments == self.dies_at:
            self.counts = False
            self.replicas[0].crash()


@dataclass
class Scene:
    """The branch and the two replicas that serve it."""

    world: MortalWorld
    repository: Repository

    def lake(self, replica: Replica) -> Lake:
        # Its `kv` and `clock` are for tests with gates, and not used here.
        return Lake(replica.graveler, self.repository, None, None)  # type: ignore[arg-type]

    @property
    def dying(self) -> Lake:
        return self.lake(self.world.replicas[0])

    @property
    def other(self) -> Lake:
        return self.lake(self.world.replicas[1])

    async def put(self, lake: Lake, path: str, size: int, operation: str = "") -> None:
        """Stages an object with a block; a conditional creation if it names an operation."""
        ids, body = self.world.replicas[1].ids, path.encode().ljust(size, b"x")[:size]
        address = ids.uuid7()
        await self.world.blocks.put(
            BlockKey(self.repository.storage_namespace, physical_path(address)), body
        )
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        packed = pack(Entry(size, 0, address, digest, operation_id=operation))
        if operation:
            new = WriteCondition(if_none_match=True)
            await lake.graveler.conditional.stage(lake.main, path, packed, new)
        else:
            await lake.graveler.staging.stage(lake.main, path, packed)


async def compact(lake: Lake) -> CompactionResult:
    return await lake.graveler.compacting.compact(lake.main, force=True)


async def prepare(scene: Scene) -> None:
    """A commit, changes in a compacted listing, in a sealed token and in the staging token."""
    lake = scene.dying
    for name in ("a", "b", "c", "raw/1"):
        await scene.put(lake, name, 1)
    await lake.commit()
    await scene.put(lake, "raw/2", 2)
    await lake.delete("a")
    await compact(lake)
    await scene.put(lake, "d", 2)
    await lake.delete("b", "raw/1")
    await scene.put(lake, "raw/3", 3, "creation")
    await scene.put(lake, "c", 3)
    await lake.delete("d")


async def prepare_many_seals(scene: Scene) -> None:
    """Eight sealed tokens, so that a compaction folds these before it seals another one."""
    await prepare(scene)
    lake = scene.dying
    handle = BranchHandle(lake.graveler.branches, lake.main)
    for number in range(8):
        await handle.seal()
        await scene.put(lake, f"e/{number}", 1)


@dataclass(frozen=True)
class Story:
    """The operation that runs while the process dies.

    Attributes:
        changes: what the operation does to the listing.
    """

    prepare: Callable[[Scene], Awaitable[None]]
    work: Callable[[Lake], Awaitable[object]]
    changes: Callable[[Contents], Contents] = dict


def _reset_raw(before: Contents) -> Contents:
    rest = {path: size for path, size in before.items() if not path.startswith("raw/")}
    return rest | {"raw/1": 1}


STORIES = {
    "compaction": Story(prepare, compact),
    "compaction of many seals": Story(prepare_many_seals, compact),
    "commit": Story(prepare, Lake.commit),
    "reset of a part": Story(prepare, lambda lake: reset(lake, "raw/"), _reset_raw),
}


async def play(world: MortalWorld, story: Story, folder: Path) -> None:
    """Lets the process die at its moment, then checks what is left."""
    dies, _ = world.replicas
    for replica in world.replicas:
        replica.start()
    scene = Scene(world, await create_repository(dies.graveler))
    await story.prepare(scene)
    before = await listing(scene.other)
    world.counts = True
    await _run(dies, story.work(scene.dying))
    world.counts = False
    after = story.changes(before)
    assert await listing(scene.other) in (before, after)
    await asyncio.sleep(_SETTLES_SECONDS)  # requests that were sent arrive
    left = await listing(scene.other)
    assert left == after or (left == before and not dies.is_up)
    await _goes_on(scene, left)
    if not dies.is_up:
        dies.start()
    await asyncio.sleep(5 * world.plan.registered_seconds)
    record = (await scene.other.graveler.branches.fresh(scene.other.main)).branch
    keys = scene.other.graveler.repositories.keys_of(scene.repository)
    named = {keys.token(MAIN, token).name for token in record.tokens}
    assert _partitions_with_rows(world, f"{keys.root}/{MAIN}:") - named == set()
    if isinstance(world.store, SimSqlite):
        assert await _findings(world, folder) == []
    assert world.problems == []
    for replica in world.replicas:
        replica.crash()


async def _run(replica: Replica, work: Awaitable[object]) -> None:
    """Runs work in the process of a replica until its end, or that of the process."""

    async def run() -> None:
        with suppress(TarnError):  # what the dead process tries to send is refused
            await work

    await asyncio.wait([replica.tasks.spawn(run())])


async def _goes_on(scene: Scene, contents: Contents) -> None:
    """Writes, compacts and commits through the other replica."""
    lake = scene.other
    await scene.put(lake, "more", 7)
    await lake.delete("c")
    contents = {path: size for path, size in contents.items() if path != "c"} | {"more": 7}
    assert (await compact(lake)).outcome is CompactionOutcome.COMPACTED
    record = (await lake.graveler.branches.fresh(lake.main)).branch
    assert (record.sealed, record.staging.kind) == ((), TokenKind.PLAIN)
    assert not record.compaction_start_time_us
    assert await listing(lake) == contents
    await lake.commit()
    assert await listing(lake, "main@") == await listing(lake) == contents
    assert (await compact(lake)).outcome is CompactionOutcome.NOTHING_TO_DO


def _partitions_with_rows(world: World, prefix: str) -> set[str]:
    if isinstance(world.store, SimSqlite):
        partitions = world.store._rows._partitions
        names = [name for name, rows in partitions.items() if rows.keys]
    else:
        assert isinstance(world.store, SimCassandra)
        cells = [place for node in world.store._nodes for place, row in node.cells.items() if row]
        names = [name for name, _ in cells]
        names += [
            name
            for name, rows in world.store._registers.items()
            if any(row.decided is not None for row in rows.values())
        ]
    return {name for name in names if name.startswith(prefix)}


async def _findings(world: MortalWorld, folder: Path) -> Sequence[str]:
    """Runs fsck on the store as if two days later."""
    assert isinstance(world.store, SimSqlite)
    clock = RestlessClock(world.replicas[0].clock.now_us() + 2 * 86_400_000_000)
    options = FsckOptions()
    state = open_state(folder / f"fsck-{world.dies_at}", options.scope(), clock.now_us())
    try:
        await check(
            installation_id="sim",
            kv=world.store._rows,
            blocks=world.blocks,
            state=state,
            options=options,
            clock=clock,
            progress=CheckProgress(),
        )
        found = [each for each in state.findings() if each.code not in _LEFT_TO_COLLECTION]
        return [f"{each.code.label} {each.subject}: {each.detail}" for each in found]
    finally:
        state.close()


# Each second or third await here; `make test-long` plays all.
@pytest.mark.parametrize(
    ("store", "step"),
    [
        ("sqlite", 2),
        ("cassandra", 3),
        pytest.param("sqlite", 1, marks=pytest.mark.long),
        pytest.param("cassandra", 1, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("name", STORIES)
def test_a_process_may_die_at_any_await(name: str, store: str, step: int, tmp_path: Path) -> None:
    plan = replace(draw(1), store=store, replicas=2, gateways=0, page_rows=2, rows_mean=2)
    deaths = 0
    while True:
        worlds: list[MortalWorld] = []

        async def main(loop: SimLoop, dies_at: int = deaths + 1) -> None:
            worlds.append(MortalWorld(loop, plan, dies_at))  # noqa: B023 - runs at once
            await play(worlds[0], STORIES[name], tmp_path)  # noqa: B023

        simulate(main, seed=deaths)
        if worlds[0].moments <= deaths:
            break
        deaths += step
    assert deaths >= 20, "a process that sends nothing cannot die at an interesting moment"


def test_a_row_that_is_removed_from_a_token_is_reported() -> None:
    """Every run of the simulator checks that there is none: listings rely on it."""

    async def main(loop: SimLoop) -> None:
        world = World(loop, draw(1))
        replica = world.replicas[0]
        replica.start()
        graveler = replica.graveler
        lake = Lake(graveler, await create_repository(graveler), None, None)  # type: ignore[arg-type]
        record = (await graveler.branches.fresh(lake.main)).branch
        keys = graveler.repositories.keys_of(lake.repository)
        kv = graveler.reading._layers._kv
        await kv.delete_many(keys.commits, [b"none"])
        assert world.problems == []
        await kv.delete_many(keys.token(MAIN, record.staging), [b"none"])
        assert len(world.problems) == 1
        replica.crash()

    simulate(main, seed=0)
