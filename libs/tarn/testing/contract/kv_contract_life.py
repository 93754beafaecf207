"""The KV contract, the life of a store: delete, drop, limits, misuse, random histories, close."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import (
    KEY_BYTES_MAX,
    SCAN_LIMIT_MAX,
    VALUE_BYTES_MAX,
    Kv,
    Partition,
    PartitionKind,
    Predicate,
)
from tarn.testing.contract.kv_fixtures import (
    KvFixtures,
    arrow_rows,
    get,
    group,
    increment,
    numbered,
    put,
    scan_all,
)
from tarn.testing.contract.kv_history import RandomHistory

__all__ = ["LifeContract"]


class LifeContract(KvFixtures):
    """Removal, limits, random histories and close."""

    # Delete and drop

    async def test_deleted_rows_are_gone(self, kv: Kv, either: Partition) -> None:
        """Deleting absent rows is not an error; neighbours stay."""
        await put(kv, either, *((b"%d" % n, b"") for n in range(5)))
        await kv.delete_many(either, [b"1", b"3", b"absent"])
        await kv.delete_many(either, [])
        assert [key for key, _ in await scan_all(kv, either)] == [b"0", b"2", b"4"]

    async def test_drop_removes_this_partition_only(
        self, kv: Kv, plain: Partition, register: Partition
    ) -> None:
        """A second drop changes nothing."""
        kept = Partition(plain.name + "/kept", PartitionKind.PLAIN)
        rows = numbered(5_000)
        for partition in (plain, register, kept):
            await put(kv, partition, *rows)
        for _ in range(2):
            await kv.drop_partition(plain)
            await kv.drop_partition(register)
        assert await scan_all(kv, plain) == []
        assert await arrow_rows(kv, register) == []
        assert await scan_all(kv, kept) == rows

    async def test_dropped_partition_takes_new_rows(self, kv: Kv, either: Partition) -> None:
        """It holds the rows written after the drop, and another drop removes those, too."""
        await put(kv, either, *numbered(10))
        await kv.drop_partition(either)
        await put(kv, either, (b"late", b"1"))
        assert await scan_all(kv, either) == [(b"late", b"1")]
        await kv.drop_partition(either)
        assert await scan_all(kv, either) == []

    async def test_others_write_while_a_partition_is_dropped(
        self, kv: Kv, plain: Partition, register: Partition
    ) -> None:
        """Writes and drop do not affect each other."""
        await put(kv, plain, *numbered(20_000))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kv.drop_partition(plain))
            await increment(kv, register, b"counter")
        assert await get(kv, register, b"counter") == b"1"
        assert await scan_all(kv, plain) == []

    # Limits and misuse

    async def test_largest_rows_are_kept(self, kv: Kv, either: Partition) -> None:
        """Key and value have exactly the greatest length."""
        row = (b"k" * KEY_BYTES_MAX, random.Random(1).randbytes(VALUE_BYTES_MAX))  # noqa: S311 - bytes to compare, not a secret
        await put(kv, either, row)
        assert await get(kv, either, row[0]) == row[1]
        assert await scan_all(kv, either) == [row]

    async def test_longer_rows_are_refused(
        self, kv: Kv, plain: Partition, register: Partition
    ) -> None:
        """Every operation refuses them as INVALID, a key as KEY_TOO_LONG."""
        long_key, long_value = bytes(KEY_BYTES_MAX + 1), bytes(VALUE_BYTES_MAX + 1)
        outcomes = await kv.set_many(
            plain, [group((long_key, b"")), group((b"k", long_value)), group((b"ok", b""))]
        )
        assert [o and o.kind for o in outcomes] == [Kind.INVALID, Kind.INVALID, None]
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: kv.get_many(plain, [long_key]),
            lambda: kv.set_if(register, long_key, b"", None),
            lambda: kv.delete_many(plain, [long_key]),
            lambda: kv.delete_if(register, long_key, Predicate(b"")),
        ]
        for call in calls:
            with pytest.raises(TarnError) as caught:
                await call()
            assert (caught.value.kind, caught.value.reason) == (Kind.INVALID, Reason.KEY_TOO_LONG)
        with pytest.raises(TarnError) as caught:
            await kv.set_if(register, b"k", long_value, None)
        assert caught.value.kind is Kind.INVALID

    @pytest.mark.parametrize("limit", [-1, 0, SCAN_LIMIT_MAX + 1])
    async def test_page_sizes_are_bounded(self, kv: Kv, plain: Partition, limit: int) -> None:
        """Page sizes are 1 to `SCAN_LIMIT_MAX`."""
        with pytest.raises(TarnError) as caught:
            await kv.scan(plain, b"", None, limit)
        assert caught.value.kind is Kind.INVALID

    async def test_compare_and_set_is_for_registers(self, kv: Kv, plain: Partition) -> None:
        """On a plain partition it would mix both kinds of write on one row."""
        with pytest.raises(TarnError) as caught:
            await kv.set_if(plain, b"k", b"", None)
        assert caught.value.kind is Kind.INVALID
        with pytest.raises(TarnError) as caught:
            await kv.delete_if(plain, b"k", Predicate(b""))
        assert caught.value.kind is Kind.INVALID

    async def test_name_has_one_kind_for_ever(self, kv: Kv, either: Partition) -> None:
        """Every operation refuses the other kind, also after a drop."""
        other_kind = next(kind for kind in PartitionKind if kind is not either.kind)
        other = Partition(either.name, other_kind)
        await put(kv, either, (b"k", b"1"))
        for _ in range(2):
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: kv.get_many(other, [b"k"]),
                lambda: kv.set_many(other, [group((b"k", b"2"))]),
                lambda: kv.delete_many(other, [b"k"]),
                lambda: kv.scan(other, b"", None, 1),
                lambda: arrow_rows(kv, other),
                lambda: kv.drop_partition(other),
            ]
            for call in calls:
                with pytest.raises(TarnError) as caught:
                    await call()
                assert caught.value.kind is Kind.INVALID
            await kv.drop_partition(either)

    # Random histories and close

    @pytest.mark.parametrize("seed", range(4))
    async def test_random_history_agrees_with_a_dict(
        self, kv: Kv, plain: Partition, register: Partition, seed: int
    ) -> None:
        """Random operations on two partitions have the same results as on dicts."""
        await RandomHistory(kv, [plain, register], seed).run(150)

    async def test_closed_store_refuses_everything(self, kv: Kv, register: Partition) -> None:
        """Close completes the running operations, and may be repeated."""
        async with asyncio.TaskGroup() as tasks:
            write = tasks.create_task(kv.set_if(register, b"k", b"1", None))
            await asyncio.sleep(0)
            await kv.close()
        assert write.result()
        await kv.close()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: kv.get_many(register, [b"k"]),
            lambda: kv.set_many(register, [group((b"k", b"2"))]),
            lambda: kv.set_if(register, b"x", b"", None),
            lambda: kv.scan(register, b"", None, 1),
            lambda: arrow_rows(kv, register),
            lambda: kv.drop_partition(register),
        ]
        for call in calls:
            with pytest.raises(TarnError) as caught:
                await call()
            assert caught.value.kind is Kind.UNAVAILABLE
