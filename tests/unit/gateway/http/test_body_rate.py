"""The rate at which a client must send a body; the time of the handler does not count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest

from tarn_gateway.http.body import (
    RATE_WINDOW_S,
    BodyReader,
    BodySlowError,
    BodyStalledError,
    BufferPool,
)
from tarn_gateway.http.chunked import EVENTS_MAX

STALL_S = 30.0
RATE = 100


class Wire:
    """The connection of a body, on a clock of its own."""

    def __init__(self, length: int | None = 1_000_000, rate: int = RATE) -> None:
        self.now = 1000.0
        self.last_received = self.now
        self.is_paused = True
        self.body = BodyReader(length, b"", self, BufferPool(64 * 1024, 4, 4), rate_min_bytes=rate)

    def send_continue(self) -> None:
        raise AssertionError("not expected")

    def time(self) -> float:
        return self.now

    def pause_body(self) -> None:
        self.is_paused = True

    def resume_body(self) -> None:
        self.is_paused = False
        self.last_received = self.now

    def end_body(self, rest: bytes) -> None:
        assert rest == b""

    def lend_socket(self) -> None:
        return None

    def receive(self, count: int) -> None:
        assert not self.is_paused
        self.body.get_buffer()[:count] = bytes(count)
        self.last_received = self.now
        self.body.commit(count)

    def pass_time(self, seconds: float) -> None:
        """Sweeps once a second, as the server does."""
        for _ in range(int(seconds)):
            self.now += 1
            self.body.sweep(self.now, self.last_received, STALL_S)


@asynccontextmanager
async def reading(wire: Wire) -> AsyncIterator[asyncio.Task[int]]:
    """Reads the body in a task, which returns its bytes."""

    async def read() -> int:
        count = 0
        async for piece in wire.body:
            count += len(piece)
        return count

    async with asyncio.TaskGroup() as group:
        task = group.create_task(guarded(read()))
        await asyncio.sleep(0)
        try:
            yield task
        finally:
            task.cancel()


async def guarded(work: object) -> int:
    """Keeps errors of a reader away from the task group."""
    try:
        return await work  # type: ignore[no-any-return, misc]
    except (BodySlowError, BodyStalledError) as error:
        failures.append(error)
        return -1


failures: list[Exception] = []


@pytest.fixture(autouse=True)
def _no_failures() -> None:
    failures.clear()


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_one_byte_in_25_seconds_ends_after_the_grace() -> None:
    wire = Wire()
    async with reading(wire) as task:
        wire.pass_time(25)
        wire.receive(1)
        await settle()
        assert not task.done()
        wire.pass_time(5)
        assert await task == -1
    (error,) = failures
    assert isinstance(error, BodySlowError)
    assert "at 0 bytes/s after 1 bytes; at least 100" in str(error)


async def test_a_silent_client_is_stalled_whatever_the_rate() -> None:
    wire = Wire(rate=0)
    async with reading(wire) as task:
        wire.pass_time(30)
        await settle()
        assert not task.done()
        wire.pass_time(1)
        assert await task == -1
    assert isinstance(failures[0], BodyStalledError)


async def test_the_rate_holds_in_every_window_and_not_over_the_whole_body() -> None:
    """Bytes that were sent quickly at the beginning buy no time."""
    wire = Wire()
    async with reading(wire) as task:
        wire.receive(50_000)
        await settle()
        wire.pass_time(29)
        wire.receive(1)
        await settle()
        wire.pass_time(RATE_WINDOW_S / 2)
        assert not task.done()
        wire.receive(1)
        await settle()
        wire.pass_time(RATE_WINDOW_S / 2 + 1)
        assert await task == -1
    assert isinstance(failures[0], BodySlowError)


async def test_a_client_at_the_rate_may_take_for_ever() -> None:
    wire = Wire(length=None)
    wire.body = BodyReader(500 * RATE, b"", wire, BufferPool(64 * 1024, 4, 4), rate_min_bytes=RATE)
    async with reading(wire) as task:
        for _ in range(500):
            wire.receive(RATE)
            await settle()
            wire.pass_time(1)
        assert await task == 500 * RATE
    assert failures == []


async def test_the_time_in_which_the_handler_does_not_read_is_not_the_client_s() -> None:
    """A store that takes an hour for a piece ends no upload."""
    wire = Wire()
    go = asyncio.Event()

    async def slow_store() -> int:
        count = 0
        async for piece in wire.body:
            count += len(piece)
            await go.wait()
        return count

    async with asyncio.TaskGroup() as group:
        task = group.create_task(guarded(slow_store()))
        await settle()
        wire.receive(10)
        await settle()
        wire.pass_time(3600)
        go.set()
        await settle()
        # It waits for the client again, whose time begins now.
        wire.resume_body()
        wire.pass_time(RATE_WINDOW_S - 1)
        await settle()
        assert not task.done()
        wire.pass_time(2)
        await settle()
        assert task.done()
    assert isinstance(failures[0], BodyStalledError | BodySlowError)


async def test_a_body_is_received_only_once_it_is_read() -> None:
    wire = Wire()
    assert wire.is_paused
    wire.pass_time(3600)
    async with reading(wire):
        assert not wire.is_paused
    assert failures == []


def test_buffers_beyond_the_bound_are_small_and_come_back() -> None:
    pool = BufferPool(512 * 1024, idle_max=1, used_max=2)
    large = [pool.take(), pool.take()]
    assert [len(each) for each in large] == [512 * 1024] * 2
    small = pool.take()
    assert len(small) == 16 * 1024
    pool.give(small)
    assert len(pool.take()) == 16 * 1024
    for each in large:
        pool.give(each)
    assert pool.take() is large[0], "one unused buffer is kept"
    assert len(pool.take()) == 512 * 1024


async def test_the_reader_of_an_aborted_body_gives_its_buffers_back() -> None:
    pool = BufferPool(64 * 1024, idle_max=2, used_max=2)
    for _ in range(5):
        wire = Wire()
        wire.body = BodyReader(1_000_000, b"", wire, pool)
        async with reading(wire):
            wire.receive(10)
            await settle()
            wire.receive(10)
        wire.body.release()
    assert len(pool.take()) == 64 * 1024


async def test_time_in_which_the_process_stood_still_ends_no_body() -> None:
    """After a suspension the sweep runs before the socket is read."""
    wire = Wire()
    async with reading(wire) as task:
        wire.pass_time(20)
        wire.now += 3600
        wire.last_received += 3600
        wire.body.excuse(3600)
        wire.pass_time(9)
        await settle()
        assert not task.done()
        wire.pass_time(2)
        assert await task == -1


async def test_silence_before_the_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that was busy for a minute gives a client that was silent meanwhile its whole time."""
    wire = Wire()
    wire.last_received = wire.now
    wire.is_paused = False
    monkeypatch.setattr(wire, "resume_body", lambda: None)
    wire.now += 60
    async with reading(wire) as task:
        wire.pass_time(29)
        await settle()
        assert not task.done()
        wire.pass_time(2)
        assert await task == -1


async def turns_of_a_neighbour(work: Awaitable[object]) -> int:
    """Returns how often another task runs during some work that waits for nothing."""
    turns, done = 0, False

    async def neighbour() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(neighbour())
        await asyncio.sleep(0)
        turns = 0
        await work
        done = True
    return turns


async def test_other_tasks_run_while_tiny_chunks_are_decoded() -> None:
    wire = Wire()
    body = b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n"
    wire.body = BodyReader(None, body, wire, BufferPool(64 * 1024, 4, 4))
    read: list[bytes] = []

    async def whole() -> None:
        read.extend([bytes(piece) async for piece in wire.body])

    assert await turns_of_a_neighbour(whole()) >= 10_000 // EVENTS_MAX
    assert b"".join(read) == b"x" * 5000
    assert wire.body.complete
