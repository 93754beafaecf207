"""The KV contract, registers: compare-and-set."""

from __future__ import annotations

import asyncio

import pytest

from tarn.core.errors import Kind, Reason
from tarn.kv.port import (
    Kv,
    Partition,
    PartitionKind,
    PredicateFailedError,
)
from tarn.testing.contract.kv_fixtures import (
    KvFixtures,
    get,
    increment,
    predicate_of,
    put,
)

__all__ = ["RegistersContract"]


class RegistersContract(KvFixtures):
    """One winner per version, and no version is reused."""

    # Compare-and-set

    async def test_set_if_absent_wins_once(self, kv: Kv, register: Partition) -> None:
        """The loser gets the existing value."""
        first = await kv.set_if(register, b"k", b"1", None)
        with pytest.raises(PredicateFailedError) as caught:
            await kv.set_if(register, b"k", b"2", None)
        assert caught.value.current is not None
        assert caught.value.current.value == b"1"
        assert caught.value.current.predicate == first
        assert (caught.value.kind, caught.value.reason) == (Kind.CONFLICT, Reason.REF_MOVED)
        assert caught.value.metadata["key"] == repr(b"k")

    async def test_set_if_takes_the_current_version_only(self, kv: Kv, register: Partition) -> None:
        """A stale predicate fails and changes nothing; the returned one fits the next write."""
        first = await kv.set_if(register, b"k", b"1", None)
        second = await kv.set_if(register, b"k", b"2", first)
        assert await predicate_of(kv, register, b"k") == second
        with pytest.raises(PredicateFailedError) as caught:
            await kv.set_if(register, b"k", b"3", first)
        assert caught.value.current is not None
        assert caught.value.current.predicate == second
        assert await get(kv, register, b"k") == b"2"
        await kv.set_if(register, b"k", b"3", caught.value.current.predicate)

    async def test_set_if_of_an_absent_key_fails(self, kv: Kv, register: Partition) -> None:
        """A predicate requires an existing value, also in a partition that was never written."""
        other = Partition(register.name + "/other", PartitionKind.REGISTER)
        version = await kv.set_if(register, b"k", b"1", None)
        for partition, key in ((register, b"x"), (other, b"k")):
            with pytest.raises(PredicateFailedError) as caught:
                await kv.set_if(partition, key, b"2", version)
            assert caught.value.current is None
            assert await get(kv, partition, key) is None

    async def test_same_value_written_again_is_another_version(
        self, kv: Kv, register: Partition
    ) -> None:
        """No ABA: set_if, set_many, delete and re-creation, and drop each make a new version."""
        versions = [await kv.set_if(register, b"k", b"same", None)]
        versions.append(await kv.set_if(register, b"k", b"same", versions[-1]))
        await put(kv, register, (b"k", b"same"))
        versions.append(await predicate_of(kv, register, b"k"))
        await kv.delete_if(register, b"k", versions[-1])
        versions.append(await kv.set_if(register, b"k", b"same", None))
        await kv.delete_many(register, [b"k"])
        versions.append(await kv.set_if(register, b"k", b"same", None))
        await kv.drop_partition(register)
        versions.append(await kv.set_if(register, b"k", b"same", None))
        assert len(set(versions)) == len(versions)
        for stale in versions[:-1]:
            with pytest.raises(PredicateFailedError):
                await kv.set_if(register, b"k", b"other", stale)
            with pytest.raises(PredicateFailedError):
                await kv.delete_if(register, b"k", stale)
        assert await get(kv, register, b"k") == b"same"

    async def test_delete_if_takes_the_current_version_only(
        self, kv: Kv, register: Partition
    ) -> None:
        """A stale one fails with the current value; an absent key fails with None."""
        first = await kv.set_if(register, b"k", b"1", None)
        second = await kv.set_if(register, b"k", b"2", first)
        with pytest.raises(PredicateFailedError) as caught:
            await kv.delete_if(register, b"k", first)
        assert caught.value.current is not None
        assert caught.value.current.value == b"2"
        await kv.delete_if(register, b"k", second)
        assert await get(kv, register, b"k") is None
        with pytest.raises(PredicateFailedError) as caught:
            await kv.delete_if(register, b"k", second)
        assert caught.value.current is None

    async def test_races_for_one_key_have_one_winner(self, kv: Kv, register: Partition) -> None:
        """Several tasks create one key concurrently; the losers see the winner's value."""

        async def create(task: int) -> bytes | None:
            try:
                await kv.set_if(register, b"k", b"%d" % task, None)
            except PredicateFailedError as error:
                return error.current.value if error.current else b"nothing"
            return None

        async with asyncio.TaskGroup() as tasks:
            racers = [tasks.create_task(create(task)) for task in range(20)]
        winners = [task for task, racer in enumerate(racers) if racer.result() is None]
        assert len(winners) == 1
        assert {racer.result() for racer in racers} - {None} == {b"%d" % winners[0]}

    async def test_increments_by_tasks_add_up(self, kv: Kv, register: Partition) -> None:
        """No update of concurrent tasks of one process is lost."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(60):
                tasks.create_task(increment(kv, register, b"counter"))
        assert await get(kv, register, b"counter") == b"60"

    async def test_settling_read_sees_the_decided_value(self, kv: Kv, register: Partition) -> None:
        """If no outcome is undecided, it equals a plain read."""
        version = await kv.set_if(register, b"k", b"1", None)
        (found,) = await kv.get_many(register, [b"k"], settle=True)
        assert found is not None
        assert (found.value, found.predicate) == (b"1", version)
