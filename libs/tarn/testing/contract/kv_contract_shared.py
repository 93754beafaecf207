"""The KV contract, shared: several processes on one store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.kv.port import (
    Kv,
    Partition,
    PartitionKind,
)
from tarn.testing.contract.kv_fixtures import (
    KvFixtures,
    get,
    increment,
    put,
)

__all__ = ["Opener", "SharedKvContract"]

Opener = Callable[[], Awaitable[Kv]]
"""Opens the store under test again; it is pickled, so use a `functools.partial` of a public function."""


class SharedKvContract(KvFixtures):
    """The suite for a store that several processes share; the driver provides the fixture `opener`."""

    PROCESSES = 3

    @pytest.fixture
    def opener(self) -> Opener:
        """A function that opens the store under test in any process."""
        raise NotImplementedError

    @pytest.fixture
    async def kv(self, opener: Opener) -> AsyncIterator[Kv]:
        """The store under test."""
        store = await opener()
        yield store
        await store.close()

    @pytest.fixture
    def processes(self) -> Iterator[ProcessPoolExecutor]:
        """A pool of fresh interpreters."""
        with ProcessPoolExecutor(self.PROCESSES, mp_context=get_context("spawn")) as pool:
            yield pool

    async def test_increments_by_processes_add_up(
        self, kv: Kv, opener: Opener, processes: ProcessPoolExecutor, register: Partition
    ) -> None:
        """No update of concurrent processes, each with several tasks, is lost."""
        loop = asyncio.get_running_loop()
        each = 40
        async with asyncio.TaskGroup() as tasks:

            async def work() -> None:
                await loop.run_in_executor(processes, _run_increments, opener, register, each)

            for _ in range(self.PROCESSES):
                tasks.create_task(work())
            for _ in range(each):
                tasks.create_task(increment(kv, register, b"counter"))
        expected = b"%d" % (each * (self.PROCESSES + 1))
        assert await get(kv, register, b"counter") == expected

    async def test_acknowledged_writes_are_read_in_another_process(
        self, kv: Kv, opener: Opener, processes: ProcessPoolExecutor, register: Partition
    ) -> None:
        """Two processes alternate writes to one row; each read is issued after the other's write."""
        rounds = 30
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:

            async def answer() -> None:
                await loop.run_in_executor(processes, _run_answers, opener, register, rounds)

            tasks.create_task(answer())
            await _converse(kv, register, first=0, rounds=rounds)
        assert await get(kv, register, b"said") == b"%d" % (2 * rounds - 1)

    async def test_kinds_are_known_to_all_processes(
        self, kv: Kv, opener: Opener, plain: Partition
    ) -> None:
        """A second handle that used the name before it existed learns its kind."""
        other = await opener()
        wrong = Partition(plain.name, PartitionKind.REGISTER)
        try:
            assert await other.get_many(wrong, [b"k"]) == [None]
            await put(kv, plain, (b"k", b"1"))
            with pytest.raises(TarnError) as caught:
                await other.set_if(wrong, b"k", b"2", None)
            assert caught.value.kind is Kind.INVALID
            assert await get(other, plain, b"k") == b"1"
        finally:
            await other.close()

    async def test_store_is_created_by_all_processes_at_once(
        self, opener: Opener, processes: ProcessPoolExecutor, register: Partition
    ) -> None:
        """Several processes open a new store concurrently; all succeed and share it."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:

            async def work() -> None:
                await loop.run_in_executor(processes, _run_increments, opener, register, 3)

            for _ in range(self.PROCESSES):
                tasks.create_task(work())
        kv = await opener()
        try:
            assert await get(kv, register, b"counter") == b"%d" % (3 * self.PROCESSES)
        finally:
            await kv.close()


def _run_increments(opener: Opener, partition: Partition, count: int) -> None:
    async def work() -> None:
        kv = await opener()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(count):
                tasks.create_task(increment(kv, partition, b"counter"))
        await kv.close()

    asyncio.run(work())


def _run_answers(opener: Opener, partition: Partition, rounds: int) -> None:
    async def work() -> None:
        kv = await opener()
        await _converse(kv, partition, first=1, rounds=rounds)
        await kv.close()

    asyncio.run(work())


async def _converse(kv: Kv, partition: Partition, *, first: int, rounds: int) -> None:
    """Writes every second number, each after it read the number before."""
    for number in range(first, first + 2 * rounds, 2):
        while True:
            (found,) = await kv.get_many(partition, [b"said"])
            if (int(found.value) if found else -1) == number - 1:
                break
            await asyncio.sleep(0.0005)
        await kv.set_if(partition, b"said", b"%d" % number, found.predicate if found else None)
        # Its own write is always visible: the row may hold the other's answer, but never an older number.
        (found,) = await kv.get_many(partition, [b"said"])
        assert found is not None
        assert int(found.value) >= number
