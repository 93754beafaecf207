"""The KV contract, companions: rows that are applied if and only if the rows beside them are."""

from __future__ import annotations

import asyncio

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.kv.port import (
    COMPANION_BYTES_MAX,
    COMPANION_KEYS,
    COMPANIONS_MAX,
    VALUE_BYTES_MAX,
    Companion,
    Group,
    Kv,
    Partition,
    PredicateFailedError,
    Row,
    RowFilter,
)
from tarn.testing.contract.kv_fixtures import (
    KvFixtures,
    arrow_rows,
    get,
    predicate_of,
    put,
    scan_all,
)

__all__ = ["CompanionsContract"]


def _event(name: bytes, value: bytes = b"") -> Row:
    return COMPANION_KEYS + name, value


async def _companions(kv: Kv, partition: Partition) -> dict[bytes, Companion]:
    found = await kv.scan_companions(partition, b"", None, 1_000)
    return {each.key.removeprefix(COMPANION_KEYS): each for each in found}


class CompanionsContract(KvFixtures):
    """Only `scan_companions` finds a companion, with the order of its write."""

    async def test_a_group_lands_with_its_companions(self, kv: Kv, either: Partition) -> None:
        """They are read in the order of their keys, page by page; no other read finds them."""
        groups = [
            Group(b"k%d" % n, ((b"k%d" % n, b"v"),), (_event(b"%03d" % n, b"e%d" % n),))
            for n in reversed(range(25))
        ]
        assert await kv.set_many(either, groups) == [None] * 25
        found: list[Companion] = []
        start = b""
        while page := await kv.scan_companions(either, start, None, 10):
            found += page
            start = page[-1].key + b"\0"
        expected = [_event(b"%03d" % n, b"e%d" % n) for n in range(25)]
        assert [(each.key, each.value) for each in found] == expected
        inside = await kv.scan_companions(either, expected[3][0], expected[5][0], 10)
        assert [each.key for each in inside] == [expected[3][0], expected[4][0]]
        rows = sorted((b"k%d" % n, b"v") for n in range(25))
        assert await scan_all(kv, either, 7) == rows
        assert await arrow_rows(kv, either) == rows
        sifted = await kv.scan_without(either, b"", None, 100, RowFilter(b"\1\1"))
        assert sifted.rows == rows
        assert await kv.scan_companions(either, b"", COMPANION_KEYS, 10) == []

    async def test_a_partition_that_was_never_written_has_no_companions(
        self, kv: Kv, either: Partition
    ) -> None:
        """Neither has one whose rows have none."""
        assert await kv.scan_companions(either, b"", None, 10) == []
        await put(kv, either, (b"a", b"1"), (b"f", b"2"))
        assert await kv.scan_companions(either, b"", None, 10) == []

    async def test_a_condition_that_fails_leaves_no_companion(
        self, kv: Kv, register: Partition
    ) -> None:
        """Of creations, replacements and removals; those whose condition holds have each one."""
        first = await kv.set_if(register, b"k", b"1", None, companions=[_event(b"a", b"1")])
        with pytest.raises(PredicateFailedError) as caught:
            await kv.set_if(register, b"k", b"x", None, companions=[_event(b"b")])
        assert caught.value.current is not None
        assert (caught.value.current.value, caught.value.current.predicate) == (b"1", first)
        second = await kv.set_if(register, b"k", b"2", first, companions=[_event(b"c", b"2")])
        with pytest.raises(PredicateFailedError) as caught:
            await kv.set_if(register, b"k", b"x", first, companions=[_event(b"d")])
        assert caught.value.current is not None
        assert (caught.value.current.value, caught.value.current.predicate) == (b"2", second)
        with pytest.raises(PredicateFailedError):
            await kv.delete_if(register, b"k", first, companions=[_event(b"e")])
        assert await get(kv, register, b"k") == b"2"
        await kv.delete_if(register, b"k", second, companions=[_event(b"f", b"gone")])
        assert await get(kv, register, b"k") is None
        with pytest.raises(PredicateFailedError) as caught:
            await kv.delete_if(register, b"k", second, companions=[_event(b"g")])
        assert caught.value.current is None
        with pytest.raises(PredicateFailedError) as caught:
            await kv.set_if(register, b"k", b"x", second, companions=[_event(b"h")])
        assert caught.value.current is None
        found = await _companions(kv, register)
        assert {name: each.value for name, each in found.items()} == {
            b"a": b"1",
            b"c": b"2",
            b"f": b"gone",
        }

    async def test_the_greatest_order_is_that_of_the_row(self, kv: Kv, either: Partition) -> None:
        """Over many writes of one row, of several writers at once; equal orders are decided by the value."""
        for turn in range(12):

            async def write(value: bytes) -> None:
                group = Group(b"k", ((b"k", value),), (_event(value, value),))
                outcomes = await kv.set_many(either, [group])
                assert outcomes == [None]

            async with asyncio.TaskGroup() as writes:
                for writer in range(3):
                    writes.create_task(write(b"%02d/%d" % (turn, writer)))
        found = (await _companions(kv, either)).values()
        assert len(found) == 36
        last = max(found, key=lambda each: (each.order, each.value))
        assert last.value == await get(kv, either, b"k")
        assert last.value.startswith(b"11/")

    async def test_orders_increase_over_the_lives_of_a_record(
        self, kv: Kv, register: Partition
    ) -> None:
        """Also over a removal, and over unconditional writes."""
        for life in range(3):
            version = await kv.set_if(
                register, b"k", b"new", None, companions=[_event(b"%d0" % life)]
            )
            version = await kv.set_if(
                register, b"k", b"changed", version, companions=[_event(b"%d1" % life)]
            )
            group = Group(b"k", ((b"k", b"set"),), (_event(b"%d2" % life),))
            assert await kv.set_many(register, [group]) == [None]
            version = await predicate_of(kv, register, b"k")
            await kv.delete_if(register, b"k", version, companions=[_event(b"%d3" % life)])
        found = await _companions(kv, register)
        orders = [found[name].order for name in sorted(found)]
        assert len(orders) == 12
        assert orders == sorted(set(orders))

    async def test_companions_go_with_their_partition(self, kv: Kv, either: Partition) -> None:
        """With more of them than one step of a drop removes."""
        for at in range(0, 2_600, 200):
            groups = [
                Group(b"k%d" % n, ((b"k%d" % n, b""),), (_event(b"%d" % n),))
                for n in range(at, at + 200)
            ]
            assert await kv.set_many(either, groups) == [None] * 200
        await kv.drop_partition(either)
        assert await kv.scan_companions(either, b"", None, 10) == []
        assert await scan_all(kv, either) == []

    async def test_a_companion_is_removed_alone(self, kv: Kv, either: Partition) -> None:
        """By its anchor and its key, with none beside it and no row; an absent one is no error."""
        await kv.delete_companions(either, [(b"k", COMPANION_KEYS + b"a")])
        groups = [
            Group(b"k%d" % n, ((b"k%d" % n, b"v"),), (_event(b"%d/a" % n), _event(b"%d/b" % n)))
            for n in range(9)
        ]
        assert await kv.set_many(either, groups) == [None] * 9
        names = [(b"k%d" % n, COMPANION_KEYS + b"%d/a" % n) for n in range(1, 9)]
        await kv.delete_companions(either, names)
        expected = [b"0/a", *(b"%d/b" % n for n in range(9))]
        assert sorted(await _companions(kv, either)) == expected
        await kv.delete_companions(either, names)
        await kv.delete_companions(either, [(b"k0", COMPANION_KEYS + b"0")])
        assert sorted(await _companions(kv, either)) == expected
        assert await scan_all(kv, either) == sorted((b"k%d" % n, b"v") for n in range(9))
        for name in ((b"k0", b"k0"), (b"k0", b""), (b"x" * 5_000, COMPANION_KEYS + b"0/a")):
            with pytest.raises(TarnError) as caught:
                await kv.delete_companions(either, [name])
            assert caught.value.kind is Kind.INVALID
        assert await scan_all(kv, either) == sorted((b"k%d" % n, b"v") for n in range(9))

    async def test_many_companions_are_removed_in_one_call(self, kv: Kv, either: Partition) -> None:
        """More than one transaction or request takes. Scans pass over the place where they were."""
        names = []
        for at in range(0, 1_200, 200):
            groups = [
                Group(b"k", ((b"k", b""),), (_event(b"%d" % n),)) for n in range(at, at + 200)
            ]
            assert await kv.set_many(either, groups) == [None] * 200
            names += [(b"k", group.companions[0][0]) for group in groups]
        await put(kv, either, (b"z", b"1"))
        await kv.delete_companions(either, names[:-1])
        assert [*await _companions(kv, either)] == [b"1199"]
        assert await scan_all(kv, either, 1) == [(b"k", b""), (b"z", b"1")]
        assert await arrow_rows(kv, either) == [(b"k", b""), (b"z", b"1")]
        assert await kv.scan(either, b"", COMPANION_KEYS, 5) == []
        assert await kv.scan(either, b"k\0", None, 5) == [(b"z", b"1")]

    async def test_orders_go_on_after_a_removal(self, kv: Kv, either: Partition) -> None:
        """An event that is written later is the later one, although the events before it are gone."""
        orders = []
        for turn in range(3):
            group = Group(b"k", ((b"k", b"%d" % turn),), (_event(b"%d" % turn),))
            assert await kv.set_many(either, [group]) == [None]
            (found,) = (await _companions(kv, either)).values()
            orders.append(found.order)
            await kv.delete_companions(either, [(b"k", found.key)])
        assert orders == sorted(set(orders))
        assert await get(kv, either, b"k") == b"2"

    async def test_companions_are_bounded(self, kv: Kv, register: Partition) -> None:
        """A row of the longest value has its companion; more, larger, and those of other keys are refused whole."""
        longest = b"\0" * VALUE_BYTES_MAX
        whole = (_event(b"whole", longest + b"\0" * (COMPANION_BYTES_MAX - VALUE_BYTES_MAX)),)
        await kv.set_if(register, b"large", longest, None, companions=whole)
        assert [*await _companions(kv, register)] == [b"whole"]
        for refused in (
            [_event(b"%d" % n) for n in range(COMPANIONS_MAX + 1)],
            [_event(b"long", b"\0" * (COMPANION_BYTES_MAX + 1))],
            [(b"other", b"")],
            [_event(b"x" * 5_000)],
        ):
            (outcome,) = await kv.set_many(register, [Group(b"a", ((b"a", b""),), tuple(refused))])
            assert outcome is not None
            assert outcome.kind is Kind.INVALID
            with pytest.raises(TarnError) as caught:
                await kv.set_if(register, b"a", b"", None, companions=refused)
            assert caught.value.kind is Kind.INVALID
        (outcome,) = await kv.set_many(register, [Group(b"a", (_event(b"a"),))])
        assert outcome is not None
        assert outcome.kind is Kind.INVALID
        assert [*await _companions(kv, register)] == [b"whole"]
        assert await get(kv, register, b"a") is None
