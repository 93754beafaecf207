"""Contracts of stores that read rows of several partitions together (`ReadsTogether`) or at once (`ReadsAtOnce`), or
tell of a row beside a write (`SetsBeside`)."""

from __future__ import annotations

import asyncio

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.kv.port import (
    COMPANION_KEYS,
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    Group,
    Kv,
    Partition,
    PartitionKind,
    Predicate,
    ReadsAtOnce,
    ReadsTogether,
    RowName,
    SetsBeside,
)
from tarn.testing.contract.kv_contract_shared import Opener
from tarn.testing.contract.kv_fixtures import KvFixtures, group

__all__ = ["AtOnceContract", "BesideContract", "TogetherContract"]


class TogetherContract(KvFixtures):
    """One read has rows of several register partitions, each as `get_many` returns it."""

    @staticmethod
    async def _is_as_one_by_one(kv: Kv, rows: list[RowName]) -> None:
        assert isinstance(kv, ReadsTogether)
        alone = [(await kv.get_many(partition, [key]))[0] for partition, key in rows]
        assert await kv.get_together(rows) == alone

    async def test_rows_read_together_are_those_read_alone(
        self, kv: Kv, register: Partition
    ) -> None:
        """In every combination: present, absent, repeated, and of partitions that were never written."""
        other, third, never = (
            Partition(f"{register.name}/{name}", PartitionKind.REGISTER)
            for name in ("other", "third", "never")
        )
        for partition in (register, other, third):
            await kv.set_if(partition, b"k", partition.name.encode(), None)
        await kv.set_if(other, b"empty", b"", None)
        keys = (b"k", b"empty", b"absent")
        rows = [(each, key) for each in (register, other, third, never) for key in keys]
        for one in rows:
            for another in rows:
                await self._is_as_one_by_one(kv, [one, another])
        await self._is_as_one_by_one(kv, [])
        await self._is_as_one_by_one(kv, rows[:1])
        await self._is_as_one_by_one(kv, [*rows, *reversed(rows)])

    async def test_a_read_together_sees_every_acknowledged_write(
        self, kv: Kv, register: Partition
    ) -> None:
        """Of each partition, from the moment of its acknowledgement on."""
        assert isinstance(kv, ReadsTogether)
        other = Partition(f"{register.name}/other", PartitionKind.REGISTER)
        first = await kv.set_if(register, b"k", b"1", None)
        second = await kv.set_if(other, b"k", b"1", None)
        for value in (b"2", b"3"):
            first = await kv.set_if(register, b"k", value, first)
            second = await kv.set_if(other, b"k", value, second)
            found = await kv.get_together([(register, b"k"), (other, b"k")])
            assert [each and (each.value, each.predicate) for each in found] == [
                (value, first),
                (value, second),
            ]
        await kv.delete_if(register, b"k", first)
        found = await kv.get_together([(register, b"k"), (other, b"k")])
        assert [each and each.value for each in found] == [None, b"3"]

    @pytest.mark.parametrize("count", [2, 3])
    async def test_plain_rows_are_not_read_together(
        self, kv: Kv, register: Partition, plain: Partition, count: int
    ) -> None:
        """Also not under a name that was written as plain."""
        assert isinstance(kv, ReadsTogether)
        await kv.set_if(register, b"k", b"1", None)
        await kv.delete_many(plain, [b"k"])
        mistaken = Partition(f"{plain.name}/written", PartitionKind.PLAIN)
        await kv.set_many(mistaken, [group((b"k", b"1"))])
        rows = [(register, b"k")] * (count - 1)
        for wrong in (plain, mistaken, Partition(mistaken.name, PartitionKind.REGISTER)):
            for together in ([*rows, (wrong, b"k")], [(wrong, b"k"), *rows]):
                with pytest.raises(TarnError) as refused:
                    await kv.get_together(together)
                assert refused.value.kind is Kind.INVALID

    @pytest.mark.parametrize("count", [2, 3])
    async def test_a_closed_store_reads_nothing_together(
        self, kv: Kv, register: Partition, count: int
    ) -> None:
        """As `get_many`."""
        assert isinstance(kv, ReadsTogether)
        await kv.set_if(register, b"k", b"1", None)
        await kv.close()
        with pytest.raises(TarnError) as refused:
            await kv.get_together([(register, b"k")] * count)
        assert refused.value.kind is Kind.UNAVAILABLE


class AtOnceContract(KvFixtures):
    """One read has rows of several partitions of any kind, each as `get_many` returns it, without waiting."""

    async def test_rows_read_at_once_are_those_read_alone(
        self, kv: Kv, register: Partition, plain: Partition
    ) -> None:
        """In every combination: present, absent, empty, repeated, and of partitions that were never written."""
        assert isinstance(kv, ReadsAtOnce)
        never = Partition(f"{plain.name}/never", PartitionKind.PLAIN)
        await kv.set_if(register, b"k", b"1", None)
        await kv.set_many(plain, [group((b"k", b"2")), group((b"empty", b""))])
        keys = (b"k", b"empty", b"absent")
        rows = [(each, key) for each in (register, plain, never) for key in keys]
        for one in rows:
            for another in rows:
                for names in ([one], [one, another], [one, another, one]):
                    alone = [(await kv.get_many(partition, [key]))[0] for partition, key in names]
                    assert kv.get_at_once(names) == alone

    async def test_a_version_read_beside_rows_is_that_of_the_row(
        self, kv: Kv, register: Partition, plain: Partition
    ) -> None:
        """Another after each change, none while the row is absent; the rows are those of a read without it."""
        assert isinstance(kv, ReadsAtOnce)
        names = (register, b"name")
        rows = [(plain, b"k"), (register, b"k"), (plain, b"absent"), (register, b"name")]
        await kv.set_many(plain, [group((b"k", b"2"))])
        await kv.set_if(register, b"k", b"1", None)
        version = None
        for value in (b"1", b"2", b"1"):
            for count in range(1, len(rows) + 1):
                read, found = kv.get_at_once_beside(rows[:count], names)
                assert read == kv.get_at_once(rows[:count])
                assert found == version
            version = await kv.set_if(*names, value, version)
        assert version is not None
        assert kv.get_at_once_beside(rows[:1], names)[1] == version
        await kv.delete_if(*names, version)
        assert kv.get_at_once_beside(rows[:1], names)[1] is None

    async def test_a_read_at_once_sees_every_acknowledged_write(
        self, kv: Kv, register: Partition, plain: Partition
    ) -> None:
        """Of both kinds, from the moment of its acknowledgement on."""
        assert isinstance(kv, ReadsAtOnce)
        predicate = None
        for value in (b"1", b"2", b"3"):
            predicate = await kv.set_if(register, b"k", value, predicate)
            await kv.set_many(plain, [group((b"k", value))])
            found = kv.get_at_once([(register, b"k"), (plain, b"k")])
            assert [each and each.value for each in found] == [value, value]

    async def test_a_read_at_once_refuses_what_every_read_refuses(
        self, kv: Kv, register: Partition, plain: Partition
    ) -> None:
        """A partition of the other kind, a key that is too long, a closed store."""
        assert isinstance(kv, ReadsAtOnce)
        await kv.set_if(register, b"k", b"1", None)
        mistaken = Partition(register.name, PartitionKind.PLAIN)
        for wrong in ((mistaken, b"k"), (register, bytes(KEY_BYTES_MAX + 1))):
            with pytest.raises(TarnError) as refused:
                kv.get_at_once([(plain, b"k"), wrong])
            assert refused.value.kind is Kind.INVALID
        await kv.close()
        with pytest.raises(TarnError) as refused:
            kv.get_at_once([(register, b"k")])
        assert refused.value.kind is Kind.UNAVAILABLE


class BesideContract(KvFixtures):
    """A write tells the version of another row as of its own atomic step."""

    async def test_a_write_tells_the_version_of_the_row_beside_it(
        self, kv: Kv, register: Partition, plain: Partition
    ) -> None:
        """Another after each change, none while the row is absent; the rows and companions are those of `set_many`."""
        assert isinstance(kv, SetsBeside)
        names = (register, b"name")
        other = Partition(f"{register.name}/other", PartitionKind.REGISTER)
        version, number = None, 0
        for value in (b"1", b"2", b"1", None, b"3"):
            for place in (plain, other, plain):
                number += 1
                row = (b"k%d" % number, b"v%d" % number)
                companion = (COMPANION_KEYS + row[0], row[1])
                told = await kv.set_beside(place, Group(row[0], (row,), (companion,)), names)
                assert told == version
                (found,) = await kv.get_many(place, [row[0]])
                assert found is not None
                assert found.value == row[1]
                (seen,) = await kv.scan_companions(place, companion[0], companion[0] + b"\0", 2)
                assert (seen.key, seen.value) == companion
            if value is None:
                assert version is not None
                await kv.delete_if(*names, version)
                version = None
            else:
                version = await kv.set_if(*names, value, version)

    async def test_whoever_changes_the_row_finds_each_write_that_did_not_see_it(
        self, kv: Kv, opener: Opener, register: Partition, plain: Partition
    ) -> None:
        """Writers beside changes of the row, by two openings of the store, all at once."""
        other = await opener()
        names = (register, b"name")
        version = await kv.set_if(*names, b"0", None)
        versions = [version]
        told: dict[bytes, Predicate] = {}
        stores = (kv, other)

        async def write(number: int) -> None:
            await asyncio.sleep(0.001 * (number % 17))
            key = b"%04d" % number
            store = stores[number % 2]
            assert isinstance(store, SetsBeside)
            version = await store.set_beside(plain, group((key, b"v")), names)
            assert version is not None
            told[key] = version

        seen: dict[Predicate, set[bytes]] = {version: set()}
        async with asyncio.TaskGroup() as tasks:
            for number in range(200):
                tasks.create_task(write(number))
            for number in range(20):
                await asyncio.sleep(0.001)
                version = await stores[number // 3 % 2].set_if(*names, b"%d" % number, version)
                versions.append(version)
                seen[version] = {key for key, _ in await kv.scan(plain, b"", None, 1000)}
        for key, before in told.items():
            later = versions[versions.index(before) + 1 :]
            assert all(key in seen[each] for each in later), "its row is there after the change"
        await other.close()

    async def test_a_write_beside_a_row_refuses_what_every_write_refuses(
        self, kv: Kv, register: Partition, plain: Partition
    ) -> None:
        """A partition of the other kind, a row beside it that is no register, a value that is too long, no rows, a
        closed store; the store takes the next write."""
        assert isinstance(kv, SetsBeside)
        names = (register, b"name")
        await kv.set_if(register, b"k", b"1", None)
        mistaken = Partition(register.name, PartitionKind.PLAIN)
        row = group((b"k", b"v"))
        for place, wrong, beside in (
            (mistaken, row, names),
            (plain, row, (plain, b"k")),
            (plain, group((b"k", bytes(VALUE_BYTES_MAX + 1))), names),
            (plain, Group(b"k", ()), names),
        ):
            with pytest.raises(TarnError) as refused:
                await kv.set_beside(place, wrong, beside)
            assert refused.value.kind is Kind.INVALID
        assert await kv.set_beside(plain, row, names) is None
        await kv.close()
        with pytest.raises(TarnError) as refused:
            await kv.set_beside(plain, row, names)
        assert refused.value.kind is Kind.UNAVAILABLE
