"""Contracts of stores that read rows of several partitions together (`ReadsTogether`) or at once (`ReadsAtOnce`)."""

from __future__ import annotations

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.kv.port import (
    KEY_BYTES_MAX,
    Kv,
    Partition,
    PartitionKind,
    ReadsAtOnce,
    ReadsTogether,
    RowName,
)
from tarn.testing.contract.kv_fixtures import KvFixtures, group

__all__ = ["AtOnceContract", "TogetherContract"]


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
