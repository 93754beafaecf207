"""The partitions of a store, and their numbers of buckets in another store."""

from __future__ import annotations

import pytest
from installation_rows import INSTALLATION, STRAY, sample_installation, write_rows

from tarn.core.errors import Kind, TarnError
from tarn.kv.fence import Fence, FenceState, write_fence
from tarn.kv.keys import InstallationKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import Group, Partition, PartitionKind
from tarn.snapshot.store.layout import is_empty, take_inventory


async def test_buckets_come_from_the_records_that_declare_them() -> None:
    """The store does not know them: refs have 8, and tokens have the number in their branch or drop record."""
    kv = MemKv()
    installation = sample_installation()
    await write_rows(kv, installation)
    found = await take_inventory(kv, INSTALLATION)
    assert found.partitions == {partition.name: partition for partition in installation}
    assert {partition.buckets for partition in installation} == {1, 4, 8, 16}


async def test_partitions_without_a_reference_are_found_and_named() -> None:
    kv = MemKv()
    await write_rows(kv, sample_installation())
    assert (await take_inventory(kv, INSTALLATION)).strays == (STRAY.name,)


async def test_other_installations_and_the_fence_are_left_out() -> None:
    kv = MemKv()
    other = Partition(f"{INSTALLATION}-too/graveler", PartitionKind.REGISTER)
    await kv.set_many(other, [Group(b"k", ((b"k", b""),))])
    await write_fence(kv, INSTALLATION, Fence(FenceState.HELD, "t", "r", "", 1), None)
    assert (await take_inventory(kv, INSTALLATION)).partitions == {}
    assert await is_empty(kv, INSTALLATION)


async def test_a_partition_of_another_kind_than_its_record_says_is_an_error() -> None:
    kv = MemKv()
    installation = sample_installation()
    keys = InstallationKeys(INSTALLATION)
    commits = next(each for each in installation if each.name.endswith("/commits"))
    del installation[commits]
    await write_rows(kv, installation)
    wrong = Partition(commits.name, PartitionKind.REGISTER)
    await kv.set_many(wrong, [Group(b"k", ((b"k", b""),))])
    with pytest.raises(TarnError, match="is register, not plain") as caught:
        await take_inventory(kv, keys.installation_id)
    assert caught.value.kind is Kind.INVALID


async def test_a_row_of_refs_that_names_no_day_is_an_error() -> None:
    """Otherwise the rows of its partition would be put into one bucket."""
    kv = MemKv()
    installation = sample_installation()
    refs = next(each for each, rows in installation.items() if b"upload-days/9" in rows)
    await write_rows(kv, installation)
    await kv.set_many(refs, [Group(b"k", ((b"upload-days/x", b""),))])
    with pytest.raises(TarnError, match=r"b'upload-days/x' names no day") as caught:
        await take_inventory(kv, INSTALLATION)
    assert caught.value.kind is Kind.CORRUPT
