"""A real child process runs large builds with the same result, and never outlives its parent."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from heavy_children import SECONDS, lives, pid_of, until
from heavy_stores import NAMESPACE, Stores, entry

from tarn.core.entry import TOMBSTONE, address_of
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId
from tarn.core.listing.spans import PathSpan
from tarn.rpc.process.system import SystemClock
from tarn_graveler.heavy.builder import HeavyLimits, ProcessBuilder
from tarn_graveler.heavy.priority import Priority
from tarn_graveler.heavy.wire import order_of, said_order
from tarn_graveler.heavy.worker import HeavyProcess, WorkerLimits

pytestmark = pytest.mark.timeout(2 * SECONDS)


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
            replace(commit, counts_changes=False, finely=True),
        ):
            built = await builder.build(each)
            assert built == await stores.inline.build(each)
            assert order_of(said_order(each)) == each
            pid_of(builder)
        counted = await builder.build(commit)
        assert (counted.added, counted.updated, counted.removed) == (4, 2, 0)
        # A compaction counts only what its own rows change.
        uncounted = await builder.build(replace(commit, counts_changes=False))
        assert (uncounted.added, uncounted.updated, uncounted.removed) == (2, 1, 0)
        assert uncounted.metarange_id == counted.metarange_id


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


@pytest.mark.parametrize("rows_here", [0, 1000])
@pytest.mark.parametrize("erased", [0, 2, 40])
async def test_the_same_object_as_an_erased_one_replaces_it(
    stores: Stores, rows_here: int, erased: int
) -> None:
    """In a child and in this process: its address is looked up, alone or with others."""
    paths = [f"p{number:02}" for number in range(50)]
    old = {path: address(number) for number, path in enumerate(paths)}
    first = await stores.order({}, entries={path: entry(7, old[path]) for path in paths})
    base = (await stores.inline.build(first)).metarange_id
    commits = await stores.erase(*(old[path] for path in paths[:erased]))
    again = {path: entry(7, address(100)) for path in paths}
    order = replace(await stores.order({}, entries=again), base=base, commits=commits)
    assert order_of(said_order(order)) == order
    async with stores.builder(rows_here=rows_here) as builder:
        built = await builder.build(order)
        assert (builder.pid is None) == (rows_here > 0)
    assert built.updated == erased
    for number, path in enumerate(paths):
        found = await stores.committed.lookup(NAMESPACE, built.metarange_id, path)
        assert found is not None
        assert address_of(found) == (address(100) if number < erased else old[path])


def address(number: int) -> bytes:
    return number.to_bytes(15, "big") + b"\1"


@pytest.mark.parametrize("rows_here", [0, 1000])
async def test_the_rows_of_an_order_lie_over_its_tokens(stores: Stores, rows_here: int) -> None:
    """In a child and in this process: an entry replaced, one deleted, one that no token has."""
    first = await stores.order({"a": 1, "b": 1, "ü": 1})
    base = (await stores.inline.build(first)).metarange_id
    order = await stores.order({"a": 2, "b": 2, "d": 2})
    rows = (("a", TOMBSTONE), ("b", entry(7)), ("ü", entry(8)))
    order = replace(order, base=base, rows=rows, counts_changes=False, finely=True)
    assert order_of(said_order(order)) == order
    async with stores.builder(rows_here=rows_here) as builder:
        built = await builder.build(order)
        assert (builder.pid is None) == (rows_here > 0)
    assert built == await stores.inline.build(order)
    found = [await stores.committed.lookup(NAMESPACE, built.metarange_id, each) for each in "abdü"]
    assert found == [None, entry(7), entry(2), entry(8)]


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


_BROKEN_CHILD = """
import json, socket, struct, sys
end = socket.socket(fileno=int(sys.argv[1]))
for message in ({"ready": True}, {"result": {}}):
    body = json.dumps(message).encode()
    end.sendall(struct.pack(">I", len(body)) + body)
while end.recv(1 << 16):
    pass
sys.exit(7)
"""
"""It answers without the number of a build, and goes on until its parent closes the socket."""


async def test_a_child_that_sends_what_is_no_answer_is_killed() -> None:
    """It would hold the memory of its builds, for which nobody waits any more."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _BROKEN_CHILD, str(theirs.fileno()), pass_fds=(theirs.fileno(),)
        )
    process = HeavyProcess(child, reader, writer, SystemClock(), WorkerLimits(stop_s=SECONDS))
    await process.begin({})
    await until(lambda: process.is_over)
    await process.close()
    assert child.returncode == -signal.SIGKILL


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
