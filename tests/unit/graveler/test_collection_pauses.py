"""Operations that pause for days at any of their requests, beside the real collector (rule 13).

An operation runs on a replica of its own and is held at one of its requests to the stores. Meanwhile a collection
deletes what is unreferenced and old; or it reads what is in use, and deletes when the operation has ended. Whatever the
operation answers: every branch and all of its history can be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from collector_lab import NO_LIMITS, CollectorLab, collector_lab
from lake import Replicas

from tarn.client.collections import CollectionClient
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import BranchId, RepositoryId
from tarn.core.listing.spans import PathSpan
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import OutcomeUnknownError
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.wire.call import Call
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.records.branches import BranchName
from tarn_graveler.versioning.merges import Destination, MergeRequest, PickRequest
from tarn_graveler.versioning.range_reverts import RangeRevertRequest
from tarn_proto.graveler.v1 import collection_service_pb2 as pb

PATHS = [f"k{number:02}" for number in range(6)]
MAIN, DEV = BranchId("main"), BranchId("dev")
_HELD = {"set_if", "set_many", "put"}

pytestmark = pytest.mark.slow


@dataclass(eq=False)
class Pause:
    """Holds one request of an operation after it was applied, before its answer.

    Attributes:
        at: which one, from 0: of those that change a store or read the collection record; of compare-and-sets if
            `loses`.
        loses: the answer of the request is lost.
    """

    at: int
    loses: bool
    count: int = -1
    held: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    name: str = ""

    async def run(self, name: str, act: Callable[[], Awaitable[Any]]) -> Any:
        answer = await act()
        self.count += name == "set_if" or not self.loses
        if self.count == self.at and not self.held.is_set():
            self.name = name
            self.held.set()
            await self.opened.wait()
            if self.loses:
                raise OutcomeUnknownError("the answer was lost")
        return answer


class Held:
    """A store that asks a pause at each request."""

    def __init__(self, store: Any, pause: Pause) -> None:
        self._store = store
        self._pause = pause

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in _HELD and name != "get_many":
            return method

        async def held(*args: Any, **named: Any) -> Any:
            if name == "get_many" and args[1] != [RepositoryKeys.COLLECTION]:
                return await method(*args, **named)
            return await self._pause.run(name, lambda: method(*args, **named))

        return held


class LateDeletions(CollectionClient):
    """Holds the first batch of deletions before it begins."""

    def __init__(self, transport: InProcessTransport) -> None:
        super().__init__(transport)
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def begin_batch(
        self, call: Call, repository_id: str, run_id: str, block_ids: Sequence[str]
    ) -> pb.Collection:
        self.reached.set()
        await self.opened.wait()
        return await super().begin_batch(call, repository_id, run_id, block_ids)


@dataclass
class Scene:
    """A lake before an operation."""

    lab: CollectorLab
    graveler: Graveler
    main: BranchName
    dev: BranchName

    async def head(self, name: BranchName) -> Any:
        return (await self.graveler.branches.fresh(name)).branch.commit_id

    async def committed(self, branch: str, paths: list[str]) -> None:
        for path in paths:
            await self.lab.put(branch, path)
        await self.lab.commit(branch)

    async def diverged(self) -> MergeRequest:
        """Both branches have commits; returns the merge of `dev` into `main`."""
        await self.committed("main", PATHS)
        await self.lab.service.graveler.create_branch(self.lab.admin, "lake", "dev", "main")
        await self.committed("main", PATHS[::2])
        await self.committed("dev", PATHS[1::2])
        return MergeRequest(await self.head(self.dev), "ann", "")


Work = Callable[[], Awaitable[object]]


async def commit(scene: Scene) -> Work:
    for path in PATHS:
        await scene.lab.put("main", path)
    return lambda: scene.graveler.committing.commit(scene.main, CommitRequest("ann", ""))


async def compaction(scene: Scene) -> Work:
    for path in PATHS:
        await scene.lab.put("main", path)
    return lambda: scene.graveler.compacting.compact(scene.main)


async def commit_over_a_compaction(scene: Scene) -> Work:
    for path in PATHS:
        await scene.lab.put("main", path)
    await scene.lab.service.graveler.compact_branch(scene.lab.admin, "lake", "main")
    await scene.lab.put("main", "k05")
    return lambda: scene.graveler.committing.commit(scene.main, CommitRequest("ann", ""))


async def part_reset(scene: Scene) -> Work:
    for path in [*PATHS, "reset/a"]:
        await scene.lab.put("main", path)
    return lambda: scene.graveler.part_resets.reset(scene.main, PathSpan("reset/", "reset0"))


async def merge(scene: Scene) -> Work:
    request = await scene.diverged()
    return lambda: scene.graveler.merges.merge(scene.main, request)


async def what_if(scene: Scene) -> Work:
    request = await scene.diverged()
    name = BranchName(scene.main.repository, BranchId("whatif"))
    into, head = Destination("branch", "main"), await scene.head(scene.main)
    return lambda: scene.graveler.merge_branches.create(name, head, into, request)


async def cherry_pick(scene: Scene) -> Work:
    request = PickRequest((await scene.diverged()).source, "ann", "")
    return lambda: scene.graveler.merges.cherry_pick(scene.main, request)


async def revert_of_a_range(scene: Scene) -> Work:
    """The second revert takes over ranges that the first one has written, and that are in no commit."""
    await scene.committed("main", PATHS)
    since = await scene.head(scene.main)
    await scene.committed("main", ["k01"])
    await scene.committed("main", ["k03"])
    last = await scene.head(scene.main)
    await scene.committed("main", ["k05"])
    request = RangeRevertRequest(since, PickRequest(last, "ann", ""), squash=True)
    return lambda: scene.graveler.range_reverts.revert(scene.main, request)


@asynccontextmanager
async def scene_of(folder: Path, pause: Pause) -> AsyncIterator[tuple[Scene, Graveler]]:
    """Yields the lake through an undisturbed replica, and the replica of the operation."""
    async with collector_lab(folder) as lab:
        shared = lab.service.replicas
        slow = Replicas(folder / "held", Held(shared.kv, pause))
        slow.clock, slow.blocks, slow.tasks = shared.clock, Held(shared.blocks, pause), shared.tasks  # type: ignore[assignment]
        slow.count = 50  # the seed of its ids
        async with shared.replica() as graveler, slow.replica() as held:
            repository = await graveler.repositories.read(RepositoryId("lake"))
            scene = Scene(lab, graveler, BranchName(repository, MAIN), BranchName(repository, DEV))
            yield scene, held


async def collected_days(lab: CollectorLab) -> None:
    """A collection after more than a day: all that was unreferenced in between is gone."""
    await lab.pass_days(1.5)
    await lab.collector.mark("lake")
    await lab.pass_days(0.5)
    await lab.collector.sweep("lake", NO_LIMITS)


@asynccontextmanager
async def collected_days_late(lab: CollectorLab) -> AsyncIterator[None]:
    """As `collected_days`, but the sweep deletes ranges at the end of the block."""
    client = LateDeletions(lab.service.transport)
    await lab.pass_days(1.5)
    await lab.collector.mark("lake")
    await lab.pass_days(0.5)
    sweep = asyncio.ensure_future(replace(lab.collector, client=client).sweep("lake", NO_LIMITS))
    reached = asyncio.ensure_future(client.reached.wait())
    await asyncio.wait([sweep, reached], return_when=asyncio.FIRST_COMPLETED)
    yield
    client.opened.set()
    reached.cancel()
    await sweep


async def assert_whole(lab: CollectorLab) -> dict[str, set[str]]:
    """Every branch and its history can be read from the stores alone; returns the paths of the branches."""
    found = {}
    async with lab.service.another_replica() as service:
        graveler, admin = service.graveler, lab.admin
        for branch in (await graveler.list_branches(admin, "lake")).branches:
            page = await graveler.list_entries(admin, "lake", branch.branch_id)
            found[branch.branch_id] = set(page.paths)
            for each in (await graveler.list_commits(admin, "lake", branch.branch_id)).commits:
                await graveler.list_entries(admin, "lake", each.commit_id)
    return found


def folder_of(parent: Path, at: int) -> Path:
    """Makes the folder of a run."""
    folder = parent / f"run{at}"
    folder.mkdir()
    return folder


async def play(
    folder: Path,
    prepare: Callable[[Scene], Awaitable[Work]],
    pause: Pause,
    *,
    deletes_late: bool = False,
) -> bool:
    """Plays one run; False if the operation has no such request."""
    async with scene_of(folder, pause) as (scene, held):
        quiet, pause.at = pause.at, -2
        scene_of_operation = Scene(scene.lab, held, scene.main, scene.dev)
        work = await prepare(scene_of_operation)
        pause.at, pause.count = quiet, -1
        running = asyncio.ensure_future(work())
        reached = asyncio.ensure_future(pause.held.wait())
        async with asyncio.timeout(20):
            await asyncio.wait([running, reached], return_when=asyncio.FIRST_COMPLETED)
        is_held = pause.held.is_set()
        async with AsyncExitStack() as stack:
            if deletes_late:
                await stack.enter_async_context(collected_days_late(scene.lab))
            elif is_held:
                await collected_days(scene.lab)
            pause.opened.set()
            reached.cancel()
            await asyncio.wait([running], timeout=20)
            if (error := running.exception()) is not None:
                assert isinstance(error, TarnError), error
                assert error.kind in {Kind.UNAVAILABLE, Kind.UNKNOWN_OUTCOME}, error
                assert is_held
        after = await assert_whole(scene.lab)
        assert after["main"] >= {*PATHS}, pause
        await collected_days(scene.lab)
        assert await assert_whole(scene.lab) == after
    return is_held


OPERATIONS = {
    each.__name__: each
    for each in (
        commit,
        commit_over_a_compaction,
        compaction,
        part_reset,
        merge,
        what_if,
        cherry_pick,
        revert_of_a_range,
    )
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("operation", ["commit", "compaction", "part_reset", "merge"])
async def test_an_operation_that_pauses_while_a_sweep_reads_the_roots_publishes_no_deleted_range(
    tmp_path: Path, operation: str
) -> None:
    """The sweep deletes after the last look of the operation, which has noticed no deletion."""
    for at in range(100):
        pause = Pause(at, loses=False)
        work = OPERATIONS[operation]
        if not await play(folder_of(tmp_path, at), work, pause, deletes_late=True):
            break


@pytest.mark.timeout(240)
@pytest.mark.parametrize("loses", [False, True])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_an_operation_that_pauses_for_days_publishes_no_deleted_range(
    tmp_path: Path, operation: str, *, loses: bool
) -> None:
    names = []
    for at in range(100):
        pause = Pause(at, loses)
        if not await play(folder_of(tmp_path, at), OPERATIONS[operation], pause):
            break
        names.append(pause.name)
    wanted = {"set_if"} if loses else {"set_if", "get_many", "put"}
    assert wanted <= set(names), names
