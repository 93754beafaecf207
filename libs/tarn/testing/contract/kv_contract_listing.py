"""The KV contract, listing of partitions: for tools that copy a whole store."""

from __future__ import annotations

from typing import cast

import pytest

from tarn.aio.parallel import for_each
from tarn.core.errors import Kind, TarnError
from tarn.kv.port import Kv, ListingKv, Partition, PartitionInfo, PartitionKind
from tarn.testing.contract.kv_fixtures import KvFixtures, put

__all__ = ["ListingContract"]


async def listed(kv: Kv, prefix: str) -> dict[str, PartitionInfo]:
    """Returns the listed partitions by name; checks that each is listed only once."""
    found = [each async for each in cast("ListingKv", kv).partitions(prefix)]
    assert len({each.name for each in found}) == len(found)
    return {each.name: each for each in found}


class ListingContract(KvFixtures):
    """`ListingKv`."""

    async def test_partitions_with_rows_are_listed_with_their_kinds(
        self, kv: Kv, plain: Partition, register: Partition
    ) -> None:
        """Only partitions with the prefix are listed."""
        prefix = plain.name.removesuffix("plain")
        await put(kv, plain, (b"k", b"v"))
        await kv.set_if(register, b"k", b"v", None)
        await put(kv, Partition(prefix[:-1] + "0", PartitionKind.PLAIN), (b"k", b"v"))
        found = await listed(kv, prefix)
        assert {name: each.kind for name, each in found.items()} == {
            plain.name: PartitionKind.PLAIN,
            register.name: PartitionKind.REGISTER,
        }
        assert all(each.buckets in {None, 1} for each in found.values())

    async def test_many_partitions_are_listed(self, kv: Kv, plain: Partition) -> None:
        """More than one page of any driver."""
        names = {f"{plain.name}/{n}" for n in range(1_100)}

        async def make(name: str) -> None:
            await put(kv, Partition(name, PartitionKind.PLAIN), (b"k", b"v"))

        await for_each(sorted(names), make, 32)  # all at once, a slow cluster refuses some
        assert set(await listed(kv, f"{plain.name}/")) == names

    async def test_a_dropped_partition_is_not_listed_until_it_is_written_again(
        self, kv: Kv, either: Partition
    ) -> None:
        """It has no rows that a tool could copy."""
        await put(kv, either, (b"k", b"v"))
        await kv.drop_partition(either)
        assert either.name not in await listed(kv, either.name)
        await put(kv, either, (b"k", b"v"))
        assert either.name in await listed(kv, either.name)

    async def test_a_prefix_is_no_pattern(self, kv: Kv, plain: Partition) -> None:
        """A prefix is compared character by character."""
        await put(kv, plain, (b"k", b"v"))
        assert await listed(kv, plain.name.replace("plain", "%")) == {}
        assert await listed(kv, plain.name.replace("plain", "p_ain")) == {}
        assert await listed(kv, plain.name.upper()) == {}

    async def test_a_closed_store_lists_nothing(self, kv: Kv) -> None:
        """A closed store fails instead of returning an empty list."""
        await kv.close()
        with pytest.raises(TarnError) as caught:
            await listed(kv, "")
        assert caught.value.kind is Kind.UNAVAILABLE
