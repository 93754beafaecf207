"""A real child process runs large builds with the same result, and never outlives its parent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import psutil
import pytest
from heavy_stores import NAMESPACE, Stores

from tarn.block.committed import BuildResult
from tarn.config import variables_of
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId
from tarn.core.listing.pages import PathSpan
from tarn.rpc.process.system import SystemClock
from tarn_graveler.branch.building import BuildOrder
from tarn_graveler.heavy.builder import HeavyLimits, ProcessBuilder
from tarn_graveler.heavy.priority import Priority
from tarn_graveler.heavy.worker import HeavyProcess, WorkerLimits, start_process

SECONDS = 60

pytestmark = pytest.mark.timeout(2 * SECONDS)


def pid_of(builder: ProcessBuilder) -> int:
    assert builder.pid is not None
    return builder.pid


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not is_so():  # noqa: ASYNC110 - other processes set no event here
            await asyncio.sleep(0.01)


async def until_waiting(builder: ProcessBuilder) -> None:
    """Waits until the child has received an order."""
    await until(lambda: not builder._children[Priority.REQUESTED].is_idle)


async def test_a_child_restores_and_counts_over_a_compacted_listing(stores: Stores) -> None:
    """Head: a, b/1, c; compacted: a changed, b/2 new, c gone; staged: rows of b/ that are not read, and d."""
    first = await stores.order({"a": 1, "b/1": 1, "c": 1})
    head = (await stores.inline.build(first)).metarange_id
    gone = replace(await stores.order({"a": 2, "b/1": 2, "b/2": 2, "e": 2}), base=head)
    compacted = (await stores.inline.build(gone)).metarange_id
    order = await stores.order({"b/1": 3, "b/3": 3, "d": 3})
    commit = replace(order, base=compacted, head=head)
    async with stores.builder() as builder:
        for each in (
            commit,
            replace(commit, reset=PathSpan.of_prefix("b/")),
            replace(commit, reset=PathSpan.of_path("e")),
        ):
            built = await builder.build(each)
            assert built == await stores.inline.build(each)
            pid_of(builder)
        counted = await builder.build(commit)
        assert (counted.added, counted.updated, counted.removed) == (4, 2, 0)
        # A compaction counts only what its own rows change.
        uncounted = await builder.build(replace(commit, counts_changes=False))
        assert (uncounted.added, uncounted.updated, uncounted.removed) == (2, 1, 0)
        assert uncounted.metarange_id == counted.metarange_id


class SlowChild:
    """A child whose builds end when the test says so."""

    pid, is_over = 1, False

    def __init__(self) -> None:
        self.begun: list[BuildOrder] = []
        self.may_end = asyncio.Event()
        self.is_closed = False
        self._running = 0

    @property
    def is_idle(self) -> bool:
        return self._running == 0

    async def build(self, order: BuildOrder) -> BuildResult:
        self.begun.append(order)
        self._running += 1
        await self.may_end.wait()
        self._running -= 1
        return BuildResult(order.base, False, 0, 0, 0, 0, 0, 0, 0)

    async def close(self) -> None:
        self.is_closed = True


class SlowChildren:
    """Starts a slow child of each priority; one that is missing here cannot be started in time."""

    def __init__(self, *priorities: Priority) -> None:
        self.children = {priority: SlowChild() for priority in priorities}
        self.starts: list[Priority] = []

    async def start(self, priority: Priority) -> HeavyProcess:
        self.starts.append(priority)
        if priority not in self.children:
            await asyncio.Event().wait()
        return cast("HeavyProcess", self.children[priority])


def slow_builder(
    stores: Stores, children: SlowChildren, clock: SystemClock, limits: HeavyLimits
) -> ProcessBuilder:
    return ProcessBuilder(
        children.start, stores.kv, stores.committed, clock, random.Random(0), limits
    )


async def test_compactions_are_built_one_at_a_time_in_a_child_of_their_own(stores: Stores) -> None:
    children = SlowChildren(*Priority)
    behind, asked = children.children[Priority.BACKGROUND], children.children[Priority.REQUESTED]
    order = await stores.order({"a": 1})
    compaction = replace(order, is_background=True)
    limits = HeavyLimits(rows_here=0)
    async with (
        slow_builder(stores, children, SystemClock(), limits) as builder,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(3):
            group.create_task(builder.build(compaction))
        await until(lambda: len(behind.begun) == 1)
        for _ in range(3):
            group.create_task(builder.build(order))
        await until(lambda: len(asked.begun) == 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert behind.begun == [compaction]
        assert asked.begun == [order, order], "the third commit waits, too"
        assert (builder.processes, builder.starts) == (2, 2)
        assert (builder.running, builder.waiting) == (3, 3)
        behind.may_end.set()
        asked.may_end.set()
    assert (len(behind.begun), len(asked.begun)) == (3, 3)
    assert (builder.running, builder.waiting, builder.starts) == (0, 0, 2)


async def test_a_compaction_that_starves_is_built_beside_commits(stores: Stores) -> None:
    """And so are the next ones, for a while."""

    class Clock(SystemClock):
        ahead_s = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.ahead_s

    children, clock = SlowChildren(*Priority), Clock()
    behind, asked = children.children[Priority.BACKGROUND], children.children[Priority.REQUESTED]
    asked.may_end.set()
    compaction = replace(await stores.order({"a": 1}), is_background=True)
    limits = HeavyLimits(rows_here=0, background_s=0.05, starved_s=600.0)
    async with slow_builder(stores, children, clock, limits) as builder, asyncio.timeout(SECONDS):
        await builder.build(compaction)
        assert (len(behind.begun), len(asked.begun)) == (1, 1)
        clock.ahead_s = 500.0
        await builder.build(compaction)
        assert (len(behind.begun), len(asked.begun)) == (1, 2)
        clock.ahead_s = 700.0
        behind.may_end.set()
        await builder.build(compaction)
        assert (len(behind.begun), len(asked.begun)) == (2, 2)


async def test_a_compaction_whose_child_cannot_start_in_time_is_built_beside_commits(
    stores: Stores,
) -> None:
    children = SlowChildren(Priority.REQUESTED)
    children.children[Priority.REQUESTED].may_end.set()
    compaction = replace(await stores.order({"a": 1}), is_background=True)
    limits = HeavyLimits(rows_here=0, background_s=0.05)
    async with (
        slow_builder(stores, children, SystemClock(), limits) as builder,
        asyncio.timeout(SECONDS),
    ):
        await builder.build(compaction)
    assert children.starts == [Priority.BACKGROUND, Priority.REQUESTED]


async def test_real_children_step_back(stores: Stores) -> None:
    """The child for compactions is not waited for: on a busy machine it does not get ready."""
    known = {each.pid for each in psutil.Process().children()}
    variables = variables_of(stores.config)
    starting = asyncio.ensure_future(
        start_process(variables, stores.clock, WorkerLimits(), Priority.BACKGROUND)
    )
    found: list[int] = []

    def has_stepped_back() -> bool:
        found[:] = [each.pid for each in psutil.Process().children() if each.pid not in known]
        return any(os.sched_getscheduler(pid) == os.SCHED_IDLE for pid in found)

    await until(has_stepped_back)
    (pid,) = found
    threads = psutil.Process(pid).threads()
    assert {os.sched_getscheduler(each.id) for each in threads} == {os.SCHED_IDLE}
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await (await starting).close()
    assert not lives(pid)

    async with stores.builder() as builder:
        await builder.build(await stores.order({"a": 1}, {"b": 2}))
        assert (builder.background_pid, builder.processes) == (None, 1)
        assert os.sched_getscheduler(pid_of(builder)) == os.SCHED_OTHER
        assert psutil.Process(pid_of(builder)).nice() == min(19, psutil.Process().nice() + 5)


async def test_a_stopped_child_delays_a_compaction_only(stores: Stores) -> None:
    """It stands for one that gets no processor time at all."""

    async def start(priority: Priority) -> HeavyProcess:
        behind = priority is Priority.BACKGROUND
        made = await start_process(variables, stores.clock, WorkerLimits(), Priority.REQUESTED)
        if behind:
            os.kill(made.pid, signal.SIGSTOP)
            stopped.append(made.pid)
        return made

    variables, stopped = variables_of(stores.config), list[int]()
    order = await stores.order({"a": 1}, {"b": 2})
    async with ProcessBuilder(
        start,
        stores.kv,
        stores.committed,
        stores.clock,
        random.Random(0),
        HeavyLimits(rows_here=0, background_s=4.0),
    ) as builder:
        built = await builder.build(replace(order, is_background=True))
        assert await builder.build(order) == built
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert not any(map(lives, stopped))


async def test_a_child_builds_what_this_process_would(stores: Stores) -> None:
    order = await stores.order(
        {"a": 1, "c": 3, "ü": 9}, {f"b/{number}": number for number in range(3000)} | {"a": 7}
    )
    async with stores.builder() as builder:
        built = await builder.build(order)
        pid = pid_of(builder)
        base = replace(order, base=built.metarange_id)
        again = await builder.build(base)
        assert pid_of(builder) == pid, "one child serves many builds"
    assert built == await stores.inline.build(order)
    assert (built.added, built.count) == (3003, 3003)
    assert not again.changed
    assert await stores.committed.lookup(NAMESPACE, built.metarange_id, "ü")
    assert not lives(pid)


async def test_a_small_build_starts_no_child(stores: Stores) -> None:
    order = await stores.order({"a": 1}, {"b": 2})
    async with stores.builder(rows_here=2) as builder:
        assert (await builder.build(order)).count == 2
        assert builder.pid is None
        more = await stores.order({"a": 1}, {"b": 2, "c": 3})
        assert (await builder.build(more)).count == 3
        assert builder.pid is not None


async def test_errors_of_the_child_are_those_of_a_build_here(stores: Stores) -> None:
    order = await stores.order({"a": 1})
    order = replace(order, base=MetarangeId("ab" * 32))
    with pytest.raises(TarnError) as here:
        await stores.inline.build(order)
    async with stores.builder() as builder:
        with pytest.raises(TarnError) as there:
            await builder.build(order)
    assert here.value.reason is Reason.BLOCK_NOT_FOUND
    for name in ("kind", "reason", "message", "metadata"):
        assert getattr(there.value, name) == getattr(here.value, name)


async def test_a_child_that_dies_fails_its_build_and_the_next_build_has_another(
    stores: Stores,
) -> None:
    order = await stores.order({"a": 1})
    async with stores.builder() as builder:
        await builder.build(order)
        pid = pid_of(builder)
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.TaskGroup() as group:
            build = group.create_task(caught(builder.build(order)))
            await until_waiting(builder)
            os.kill(pid, signal.SIGKILL)
        assert build.result().kind is Kind.UNAVAILABLE
        assert (await builder.build(order)).count == 1
        assert pid_of(builder) != pid
        assert (builder.starts, builder.deaths, builder.running) == (2, 1, 0)


async def caught(work: object) -> TarnError:
    with pytest.raises(TarnError) as raised:
        await work  # type: ignore[misc]  # a coroutine
    return raised.value


async def test_closing_ends_even_a_child_that_hangs_and_fails_its_build(stores: Stores) -> None:
    order = await stores.order({"a": 1})
    async with (
        asyncio.TaskGroup() as group,
        stores.builder(limits=WorkerLimits(stop_s=0.1)) as builder,
    ):
        await builder.build(order)
        pid = pid_of(builder)
        os.kill(pid, signal.SIGSTOP)
        build = group.create_task(caught(builder.build(order)))
        await until_waiting(builder)
    assert build.result().kind is Kind.UNAVAILABLE
    assert not lives(pid)


async def test_signals_to_the_whole_group_leave_the_child_to_its_parent(stores: Stores) -> None:
    order = await stores.order({"a": 1})
    async with stores.builder() as builder:
        await builder.build(order)
        pid = pid_of(builder)
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
        await builder.build(order)
        assert pid_of(builder) == pid


async def test_a_cancelled_build_is_ended_in_the_child_too(stores: Stores) -> None:
    order = await stores.order({"a": 1})
    async with stores.builder() as builder:
        await builder.build(order)
        pid = pid_of(builder)
        os.kill(pid, signal.SIGSTOP)
        build = asyncio.ensure_future(builder.build(order))
        await until_waiting(builder)
        build.cancel()
        with pytest.raises(asyncio.CancelledError):
            await build
        os.kill(pid, signal.SIGCONT)
        child = builder._children[Priority.REQUESTED]
        assert not child.is_idle, "the child has not confirmed the end yet"
        await until(lambda: child.is_idle)
        assert (await builder.build(order)).count == 1
        assert pid_of(builder) == pid


async def test_a_child_that_does_not_end_a_cancelled_build_is_replaced(stores: Stores) -> None:
    order = await stores.order({"a": 1})
    async with stores.builder(limits=WorkerLimits(cancel_s=0.05)) as builder:
        await builder.build(order)
        pid = pid_of(builder)
        os.kill(pid, signal.SIGSTOP)
        build = asyncio.ensure_future(builder.build(order))
        await until_waiting(builder)
        build.cancel()
        with pytest.raises(asyncio.CancelledError):
            await build
        await until(lambda: not lives(pid))
        await until(lambda: builder.pid is None)
        assert (await builder.build(order)).count == 1


async def test_a_child_without_work_gives_its_memory_back(stores: Stores) -> None:
    order = await stores.order({"a": 1})
    async with stores.builder(idle_s=0.05) as builder:
        await builder.build(order)
        await until(lambda: builder.pid is None)
        assert (await builder.build(order)).count == 1


async def test_a_child_that_cannot_open_its_stores_says_why(stores: Stores, tmp_path: Path) -> None:
    order = await stores.order({"a": 1})
    (tmp_path / "file").touch()
    local = replace(stores.config.blockstore.local, path=tmp_path / "file" / "blocks")
    blockstore = replace(stores.config.blockstore, local=local)
    broken = replace(stores, config=replace(stores.config, blockstore=blockstore))
    async with broken.builder() as builder:
        with pytest.raises(TarnError, match="blocks") as raised:
            await builder.build(order)
        assert raised.value.kind is Kind.UNAVAILABLE
        assert builder.pid is None


PARENT = """
import asyncio, os, sys
from pathlib import Path
from heavy_stores import open_stores

async def main():
    async with open_stores(Path(sys.argv[1])) as stores, stores.builder() as builder:
        await builder.build(await stores.order({"a": 1}))
        # One write: the child logs to the same pipe, and `print` may write its line end apart.
        os.write(1, b"%d\\n" % builder.pid)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


async def test_a_child_that_is_not_ready_in_time_fails_its_build(stores: Stores) -> None:
    limits = WorkerLimits(start_s=0.01, stop_s=0.01)
    async with stores.builder(limits=limits) as builder:
        order = await stores.order({"a": 1})
        error = await caught(builder.build(order))
    assert error.kind is Kind.UNAVAILABLE
    assert "not ready" in error.message


async def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    harness = Path(__file__).parents[3] / "harness"
    path = os.pathsep.join([str(harness), *filter(None, [os.environ.get("PYTHONPATH")])])
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        assert parent.stdout is not None
        async with asyncio.timeout(SECONDS):
            pid = await anext(int(line) async for line in parent.stdout if line.strip().isdigit())
        assert lives(pid)
    finally:
        parent.kill()
        await parent.wait()
    await until(lambda: not lives(pid))


async def test_children_that_keep_dying_are_started_again_after_growing_pauses(
    stores: Stores,
) -> None:
    order = await stores.order({"a": 1})
    pauses: list[float] = []

    class Clock(SystemClock):
        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)

    async def start(_: Priority) -> HeavyProcess:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no room for a process")

    limits = HeavyLimits(rows_here=0)
    async with ProcessBuilder(
        start, stores.kv, stores.committed, Clock(), random.Random(1), limits
    ) as builder:
        counts = []
        for _ in range(4):
            with pytest.raises(TarnError, match="no room"):
                await builder.build(order)
            counts.append(len(pauses))
    assert counts == [0, 0, 1, 2], "the first death costs no pause"
    assert (builder.running, builder.waiting, builder.starts) == (0, 0, 0)
    assert 0 < pauses[0] < 0.1
    assert pauses[1] > 0.049


async def test_a_child_with_old_settings_ends_after_its_builds(stores: Stores) -> None:
    """New credentials: further builds use a new child, running ones end in the old one."""
    old, new = SlowChild(), SlowChild()
    started: list[SlowChild] = []

    def starter(child: SlowChild) -> Callable[[Priority], Awaitable[HeavyProcess]]:
        async def start(_: Priority) -> HeavyProcess:
            started.append(child)
            return cast("HeavyProcess", child)

        return start

    limits, order = HeavyLimits(rows_here=0), await stores.order({"a": 1})
    clock = SystemClock()
    async with (
        ProcessBuilder(
            starter(old), stores.kv, stores.committed, clock, random.Random(0), limits
        ) as builder,
        asyncio.TaskGroup() as group,
    ):
        first = group.create_task(builder.build(order))
        await until(lambda: len(old.begun) == 1)
        builder.renew(starter(new))
        second = group.create_task(builder.build(order))
        await until(lambda: len(new.begun) == 1)
        assert not old.is_closed
        new.may_end.set()
        await second
        assert not first.done()
        old.may_end.set()
        await first
        await until(lambda: old.is_closed)
        assert not new.is_closed
    assert started == [old, new]
    assert new.is_closed


async def test_the_end_of_the_replica_ends_a_child_with_old_settings(stores: Stores) -> None:
    child = SlowChild()

    async def start(_: Priority) -> HeavyProcess:
        return cast("HeavyProcess", child)

    limits, order = HeavyLimits(rows_here=0), await stores.order({"a": 1})
    clock = SystemClock()
    async with ProcessBuilder(
        start, stores.kv, stores.committed, clock, random.Random(0), limits
    ) as builder:
        building = asyncio.ensure_future(builder.build(order))
        await until(lambda: len(child.begun) == 1)
        builder.renew(start)
        await asyncio.sleep(0)
    assert child.is_closed
    building.cancel()
