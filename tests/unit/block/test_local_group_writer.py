"""Group writes: the memory that they hold is bounded, and is freed when their callers are cancelled."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.clock import ManualClock

from tarn.block.local import LocalBlockStore, group_writer, open_local
from tarn.block.local.small import Row, SmallWriter
from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.core.errors import Kind, Reason, TarnError
from tarn.testing.contract.block_samples import data_path

BODY = bytes(1000)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalBlockStore]:
    store = await open_local(tmp_path, clock=ManualClock())
    await store.put(key(0), BODY)
    yield store
    await store.close()
    assert (store._group_writer.held_requests, store._group_writer.held_bytes) == (0, 0)
    assert store._files.count == 0


def key(number: int) -> BlockKey:
    return BlockKey("local://lake", data_path(number))


@contextmanager
def locked_elsewhere(root: Path) -> Iterator[None]:
    """Another process holds the writers' lock and does not release it."""
    lock = os.open(root / ".tarn" / "small.lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def held(store: LocalBlockStore) -> tuple[int, int]:
    return store._group_writer.held_requests, store._group_writer.held_bytes


async def until_held(store: LocalBlockStore, requests: int) -> None:
    async with asyncio.timeout(30):
        while held(store)[0] != requests:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.001)


async def exists(store: LocalBlockStore, number: int) -> bool:
    try:
        return await store.read(key(number)) in (BODY, bytes(100_000))
    except BlockNotFoundError:
        return False


async def cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)


@pytest.mark.parametrize("size", [1000, 100_000])
async def test_cancelled_writes_leave_the_queue_with_their_bodies(
    store: LocalBlockStore, tmp_path: Path, size: int
) -> None:
    """Clients give up and try again several times; the writes that still wait land afterwards."""
    async with asyncio.TaskGroup() as group:
        with locked_elsewhere(tmp_path):
            stayed = group.create_task(store.put(key(1), BODY))
            await until_held(store, 1)
            for wave in range(5):
                numbers = range(10 + 10 * wave, 20 + 10 * wave)
                tasks = [group.create_task(store.put(key(n), bytes(size))) for n in numbers]
                await until_held(store, 11)
                await cancelled(tasks)
                assert held(store) == (1, len(BODY))
                assert len(store._group_writer._waiting) == 1
    assert stayed.done()
    assert await exists(store, 1)
    assert [n for n in range(10, 60) if await exists(store, n)] == []
    left = [path for path in (tmp_path / "lake").rglob("*") if path.is_file()]
    assert left == [], "no draft and no file of a cancelled write may remain"


@pytest.mark.parametrize(("requests", "size_bytes"), [(5, 1 << 30), (1000, 5 * len(BODY))])
async def test_queued_bytes_are_bounded_while_another_process_holds_the_lock(
    store: LocalBlockStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    requests: int,
    size_bytes: int,
) -> None:
    monkeypatch.setattr(group_writer, "HELD_REQUESTS_MAX", requests)
    monkeypatch.setattr(group_writer, "HELD_BYTES_MAX", size_bytes)
    async with asyncio.TaskGroup() as group:
        with locked_elsewhere(tmp_path):
            tasks = [group.create_task(store.put(key(n), BODY)) for n in range(1, 6)]
            await until_held(store, 5)
            for _ in range(20):
                with pytest.raises(TarnError, match=r"wait in this process .* try again") as caught:
                    await store.put(key(9), BODY)
                assert caught.value.kind is Kind.UNAVAILABLE
                assert caught.value.reason == Reason.OVERLOADED
            assert held(store) == (5, 5 * len(BODY))
            await cancelled(tasks[4:])  # a cancelled write makes room
            group.create_task(store.put(key(8), BODY))
            await until_held(store, 5)
    assert [n for n in range(10) if await exists(store, n)] == [0, 1, 2, 3, 4, 8]
    await store.put(key(9), BODY)
    assert await exists(store, 9)


async def test_a_body_above_the_bound_passes_alone(
    store: LocalBlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_writer, "HELD_BYTES_MAX", 10)
    await store.put(key(1), BODY)
    assert await exists(store, 1)


@pytest.mark.parametrize("count", [2, 3], ids=["one statement", "a transaction of statements"])
async def test_a_running_write_is_finished_after_its_caller_has_gone(
    store: LocalBlockStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Its bytes are counted until then; the other writes of its transaction are acknowledged and durable."""
    loop = asyncio.get_running_loop()
    begun, goes_on = asyncio.Event(), asyncio.Event()
    insert = SmallWriter._insert_group

    def slow(writer: SmallWriter, group: Sequence[Row]) -> bool:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(goes_on.wait(), loop).result(30)
        return insert(writer, group)

    monkeypatch.setattr(SmallWriter, "_insert_group", slow)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        with locked_elsewhere(tmp_path):  # so that the thread takes all together
            tasks = [
                group.create_task(store.put(key(number), BODY)) for number in range(1, count + 1)
            ]
            await until_held(store, count)
        await begun.wait()
        taken = len(store._group_writer._taken)
        await cancelled(tasks[:1])
        assert held(store) == (count, count * len(BODY))
        goes_on.set()
    await until_held(store, 0)
    assert taken == count
    for number in range(1, count + 1):
        assert await exists(store, number)
