"""Partition descriptors are created once, however many callers write to a new partition concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.kv.cassandra.cluster.statements import seal_value
from tarn.kv.cassandra.partitions.descriptors import DESCRIPTOR_BUCKET, PartitionDescriptors
from tarn.kv.cassandra.rows.request_batches import CassandraPartition, Found
from tarn.kv.port import Partition, PartitionKind, Predicate

NEW = Partition("p", PartitionKind.PLAIN, 4)


class Table:
    """The descriptor rows of one keyspace: reads and compare-and-sets that take a few ticks."""

    cas = SimpleNamespace()

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[bytes, bytes | None, bytes]] = {}
        self.reads = self.sets = 0
        self.fails = 0

    async def read(
        self, _query: object, p: bytes, keys_of: Mapping[int, Iterable[bytes]]
    ) -> dict[int, Found]:
        assert list(keys_of) == [DESCRIPTOR_BUCKET]
        self.reads += 1
        for _ in range(3):
            await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            raise TarnError(Kind.UNAVAILABLE, cast("Any", "UNAVAILABLE"), "no quorum")
        return {DESCRIPTOR_BUCKET: {b"": self.rows[p]} if p in self.rows else {}}

    async def set_if(
        self, place: CassandraPartition, _key: bytes, value: bytes, predicate: Predicate | None
    ) -> Predicate:
        self.sets += 1
        await asyncio.sleep(0)
        assert predicate is None
        assert place.p not in self.rows
        version = Predicate(b"v%d" % self.sets)
        self.rows[place.p] = (b"", seal_value(value), version)
        return version


def heads_of(table: Table) -> PartitionDescriptors:
    return PartitionDescriptors(cast("Any", table), cast("Any", table))


async def test_a_new_partition_is_made_once_however_many_write_to_it() -> None:
    table = Table()
    descriptors = heads_of(table)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(descriptors.require(NEW)) for _ in range(20)]
    assert {task.result() for task in tasks} == {b"p\0" + b"0"}
    assert (table.reads, table.sets) == (1, 1)
    assert await descriptors.require(NEW) == b"p\0" + b"0"
    assert table.reads == 1, "a live descriptor is cached"


async def test_the_next_writer_makes_it_if_the_first_is_cancelled_or_fails() -> None:
    table = Table()
    table.fails = 1
    descriptors = heads_of(table)

    async def failing() -> None:
        with pytest.raises(TarnError, match="no quorum"):
            await descriptors.require(NEW)

    async with asyncio.TaskGroup() as group:
        group.create_task(failing())
        second, third = (group.create_task(descriptors.require(NEW)) for _ in range(2))
        for _ in range(7):
            await asyncio.sleep(0)
        assert table.reads == 2
        second.cancel()
    assert third.result() == b"p\0" + b"0"
    assert table.sets == 1


async def test_a_waiter_is_checked_against_the_descriptor_that_another_caller_created() -> None:
    descriptors = heads_of(Table())
    async with asyncio.TaskGroup() as group:
        group.create_task(descriptors.require(NEW))
        await asyncio.sleep(0)
        with pytest.raises(TarnError, match="4 buckets, not 8"):
            await descriptors.require(Partition("p", PartitionKind.PLAIN, 8))
