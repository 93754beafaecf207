"""`CassandraKv`: the KV port on a Cassandra cluster, shared by any number of processes.

Guarantees: an acknowledged write is on a quorum of the local data centre's replicas, and every read that
begins after it, in any process, sees it. Compare-and-sets in one data centre are linearized.
Non-guarantees: the pages of a scan are separate reads, and so are the buckets of one page. A page shows a
group whole only if one request read the group's part of its bucket. In a partition with several buckets,
only scans find rows that were written beside their anchor: `get_many` looks for a key in the bucket of which
the key would be the anchor. descriptors.py has the rules for partitions that are dropped and written again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import cast

import pyarrow as pa
from cassandra.cluster import Cluster

from tarn.aio.close_guard import CloseGuard
from tarn.aio.task_set import TaskSet
from tarn.core.errors import TarnError
from tarn.kv.cassandra.cluster.connection import change_certificates, change_login
from tarn.kv.cassandra.cluster.outcomes import read_error, write_error
from tarn.kv.cassandra.cluster.rediscovery import Rediscovery
from tarn.kv.cassandra.cluster.session import Profile
from tarn.kv.cassandra.cluster.statements import open_value, seal_value
from tarn.kv.cassandra.components import Components
from tarn.kv.cassandra.partitions.buckets import bucket_of
from tarn.kv.cassandra.rows.groups import (
    PlacedGroup,
    keys_by_bucket,
    pack_sets,
    place_groups,
    steps,
)
from tarn.kv.cassandra.rows.request_batches import CassandraPartition, PlainWrite, Query
from tarn.kv.cassandra.settings import CassandraLimits, CassandraTls
from tarn.kv.limits import (
    check_companion_names,
    check_companions,
    check_keys,
    check_register,
    check_row,
    check_scan_limit,
    check_scan_without,
    closed_error,
)
from tarn.kv.paging import without_hidden
from tarn.kv.port import (
    COMPANION_KEYS,
    PAST_COMPANIONS,
    Companion,
    CompanionName,
    Group,
    Partition,
    PartitionInfo,
    PartitionKind,
    Predicate,
    Row,
    RowFilter,
    SiftedPage,
    Versioned,
)
from tarn.telemetry.meters import Histogram

__all__ = ["CassandraKv"]

_DELETE_KEYS = 500
_STAMP_BYTES = 8


class CassandraKv:
    """`Kv` on a cluster; made by `open_cassandra`.

    Args:
        cluster: connected; closing the store shuts it down.
        parts: the components, made on the running event loop.
        limits: see `CassandraLimits`.
        rediscovery: runs until the store is closed; None if another store of this cluster runs it.

    Attributes:
        advice: recommended changes of the cluster's settings, for the log at start.
    """

    def __init__(
        self,
        cluster: Cluster,
        parts: Components,
        limits: CassandraLimits,
        advice: Sequence[str],
        rediscovery: Rediscovery | None = None,
    ) -> None:
        self.advice = tuple(advice)
        self._cluster = cluster
        self._parts = parts
        self._limits = limits
        self._guard = CloseGuard(closed_error)
        self._shut = asyncio.Lock()
        self._tasks = TaskSet()
        if rediscovery is not None:
            self._tasks.spawn(rediscovery.run())

    def measure_batches(self, sizes: Histogram) -> None:
        """See `tarn.kv.metered.MeasuresBatches`."""
        self._parts.measure_batches(sizes)

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`. The predicate of a plain row is its timestamp."""
        check_keys(keys)
        with self._guard:
            p = await self._parts.descriptors.find(partition)
            if p is None or not keys:
                return [None] * len(keys)
            reads = self._parts.reads
            register = reads.settle if settle else reads.cas
            query = reads.plain if partition.kind is PartitionKind.PLAIN else register
            found = await self._read(query, p, keys_by_bucket(keys, partition.buckets))
            rows = {key: row for by_key in found.values() for key, row in by_key.items()}
            return [_versioned(rows.get(key)) for key in keys]

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`. A group over a limit fails with INVALID; the other groups are written.

        Raises:
            TarnError: INVALID: the partition is of another kind. UNAVAILABLE: the store is closed, or nothing
                was written.
        """
        with self._guard:
            outcomes: list[TarnError | None] = [None] * len(groups)
            placed = place_groups(groups, partition.buckets, self._limits, outcomes)
            p = await self._parts.descriptors.require(partition)
            write = self._set_plain if partition.kind is PartitionKind.PLAIN else self._set_register
            for part in steps(placed):
                await write(p, part, outcomes)
            return outcomes

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        """See `Kv.set_if`."""
        check_register(partition, "set_if")
        check_row(key, value)
        check_companions(companions)
        with self._guard:
            p = await self._parts.descriptors.require(partition)
            place = CassandraPartition(p, bucket_of(key, partition.buckets))
            return await self._parts.registers.set_if(place, key, value, predicate, companions)

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """See `Kv.delete_many`.

        Raises:
            TarnError: UNAVAILABLE: some rows were certainly not removed; others may have been.
                `OutcomeUnknownError`: some rows may have been removed, or may be removed later.
        """
        check_keys(keys)
        await self._delete(partition, [(key, key) for key in keys])

    async def _delete(self, partition: Partition, names: Sequence[tuple[bytes, bytes]]) -> None:
        """Removes rows, each named by the key that decides its bucket and its own key."""
        with self._guard:
            p = await self._parts.descriptors.find(partition)
            if p is None:
                return
            delete = (
                self._delete_plain
                if partition.kind is PartitionKind.PLAIN
                else self._delete_register
            )
            for at in range(0, len(names), _DELETE_KEYS):
                keys_of: dict[int, list[bytes]] = {}
                for anchor, key in names[at : at + _DELETE_KEYS]:
                    keys_of.setdefault(bucket_of(anchor, partition.buckets), []).append(key)
                await delete(p, keys_of)

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        """See `Kv.delete_if`."""
        check_register(partition, "delete_if")
        check_keys((key,))
        check_companions(companions)
        with self._guard:
            p = await self._parts.descriptors.require(partition)
            place = CassandraPartition(p, bucket_of(key, partition.buckets))
            await self._parts.registers.delete_if(place, key, predicate, companions)

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        check_scan_limit(limit)
        with self._guard:
            p = await self._parts.descriptors.find(partition)
            if p is None or (end is not None and start >= end):
                return []
            try:
                return await self._parts.scans.page(partition, p, start, end, limit)
            except TarnError:
                raise
            except Exception as error:
                raise read_error(error) from error

    async def scan_without(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
    ) -> SiftedPage:
        """See `Kv.scan_without`."""
        check_scan_without(limit, unwanted)
        with self._guard:
            p = await self._parts.descriptors.find(partition)
            if p is None or (end is not None and start >= end):
                return SiftedPage([], None)
            try:
                page = await self._parts.scans.sifted(
                    partition, p, start, end, limit, unwanted.value_begins
                )
            except TarnError:
                raise
            except Exception as error:
                raise read_error(error) from error
        return await without_hidden(self, page, unwanted.hidden_by)

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`. Pages are separate reads; a store that is closed meanwhile says so."""
        with self._guard:
            p = await self._parts.descriptors.find(partition)
        if p is None or (end is not None and start >= end):
            return
        batches = cast(
            "AsyncGenerator[pa.RecordBatch, None]",
            self._parts.scans.batches(partition, p, start, end),
        )
        async with aclosing(batches):
            while True:
                try:
                    # A consumer may hold a batch for long: only fetching one keeps `close` waiting.
                    with self._guard:
                        batch = await anext(batches, None)
                except TarnError:
                    raise
                except Exception as error:
                    raise read_error(error) from error
                if batch is None:
                    return
                yield batch

    async def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        """See `ListingKv.partitions`. Yields those that are not dropped, even if they hold no rows."""
        found = cast("AsyncGenerator[PartitionInfo, None]", self._parts.listing.partitions(prefix))
        async with aclosing(found):
            while True:
                try:
                    with self._guard:
                        listed = await anext(found, None)
                except TarnError:
                    raise
                except Exception as error:
                    raise read_error(error) from error
                if listed is None:
                    return
                yield listed

    async def scan_companions(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Companion]:
        """See `Kv.scan_companions`."""
        check_scan_limit(limit)
        first = max(start, COMPANION_KEYS)
        last = PAST_COMPANIONS if end is None else min(end, PAST_COMPANIONS)
        with self._guard:
            p = await self._parts.descriptors.find(partition)
            if p is None or first >= last:
                return []
            try:
                return await self._parts.scans.companions(partition, p, first, last, limit)
            except TarnError:
                raise
            except Exception as error:
                raise read_error(error) from error

    async def delete_companions(self, partition: Partition, names: Sequence[CompanionName]) -> None:
        """See `Kv.delete_companions`. In a register partition by a compare-and-set, as all its writes."""
        check_companion_names(names)
        await self._delete(partition, names)

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`. One Cassandra tombstone per bucket; later reads see no rows.

        The space is free after `gc_grace_seconds`.
        """
        with self._guard:
            p = await self._parts.descriptors.drop(partition)
            if p is None:
                return
            is_plain = partition.kind is PartitionKind.PLAIN
            statements = self._parts.statements
            prepared = statements.plain_drop if is_plain else statements.cas_drop
            timestamp_us = self._parts.timestamps.drop()
            for bucket in range(partition.buckets):
                bound = prepared.bind((timestamp_us, p, bucket))
                try:
                    await self._parts.retry.read(
                        partial(self._parts.session.ask, bound, Profile.WRITE)
                    )
                except TarnError:
                    raise
                except Exception as error:
                    raise write_error(error) from error

    async def use_login(self, username: str, password: str) -> None:
        """Uses another login for all further connections (`change_login`).

        Raises:
            TarnError: UNAUTHENTICATED: the nodes refuse it. UNAVAILABLE: no node answers, or the store is closed.
        """
        with self._guard:
            await asyncio.to_thread(change_login, self._cluster, username, password)

    async def use_certificates(self, tls: CassandraTls) -> None:
        """Reads the certificates again, for all further connections (`change_certificates`).

        Raises:
            TarnError: INVALID, UNAVAILABLE: they cannot be used, or the store is closed; the old ones stay in use.
        """
        with self._guard:
            await asyncio.to_thread(change_certificates, self._cluster, tls)

    async def close(self) -> None:
        """See `Kv.close`. New operations fail; running operations are finished and answered."""
        # Every operation ends by itself: its requests have a time-out and its attempts a bound.
        await self._guard.close()
        await self._tasks.close()
        async with self._shut:
            if not self._cluster.is_shutdown:
                await asyncio.to_thread(self._cluster.shutdown)

    async def _read(
        self, query: Query, p: bytes, keys_of: dict[int, list[bytes]]
    ) -> dict[int, dict[bytes, tuple[bytes, ...]]]:
        try:
            return await self._parts.reads.read(query, p, keys_of)
        except TarnError:
            raise
        except Exception as error:
            raise read_error(error) from error

    async def _set_plain(
        self, p: bytes, groups: list[PlacedGroup], outcomes: list[TarnError | None]
    ) -> None:
        """Writes each group with a timestamp above those that its rows have."""
        keys_of: dict[int, list[bytes]] = {}
        for group in groups:
            keys_of.setdefault(group.bucket, []).extend(key for key, _ in group.rows)
        try:
            stamps = await self._read(self._parts.reads.stamps, p, keys_of)
        except TarnError as error:
            for group in groups:
                outcomes[group.index] = error
            return
        writes: list[PlainWrite] = []
        indexes: list[int] = []
        for group in groups:
            try:
                timestamp_us = self._after(stamps[group.bucket], (key for key, _ in group.rows))
            except TarnError as error:
                outcomes[group.index] = error
                continue
            rows = tuple((key, seal_value(value)) for key, value in group.all_rows)
            writes.append(PlainWrite(group.bucket, rows, timestamp_us, group.size_bytes))
            indexes.append(group.index)
        if not writes:
            return
        errors = await self._parts.plain_writes.write(p, writes)
        for index, failure in zip(indexes, errors, strict=True):
            outcomes[index] = None if failure is None else write_error(failure)

    async def _set_register(
        self, p: bytes, groups: list[PlacedGroup], outcomes: list[TarnError | None]
    ) -> None:
        packed = list(pack_sets(groups, p, self._limits))
        answers = await self._parts.registers.set_rows([item for item, _ in packed])
        for (_, indexes), outcome in zip(packed, answers, strict=True):
            for index in indexes:
                outcomes[index] = outcome

    async def _delete_plain(self, p: bytes, keys_of: dict[int, list[bytes]]) -> None:
        """Deletes only rows that exist: a Cassandra tombstone for an absent row would slow scans down."""
        stamps = await self._read(self._parts.reads.stamps, p, keys_of)
        writes = [
            PlainWrite(bucket, ((key, None),), self._after(stamps[bucket], (key,)), len(key))
            for bucket, keys in keys_of.items()
            for key in dict.fromkeys(keys)
            if key in stamps[bucket]
        ]
        if not writes:
            return
        for failure in await self._parts.plain_writes.write(p, writes):
            if failure is not None:
                raise write_error(failure) from failure

    async def _delete_register(self, p: bytes, keys_of: dict[int, list[bytes]]) -> None:
        for bucket, keys in keys_of.items():
            await self._parts.registers.delete_rows(CassandraPartition(p, bucket), frozenset(keys))

    def _after(self, stamps: dict[bytes, tuple[bytes, ...]], keys: Iterable[bytes]) -> int:
        seen = [int(stamps[key][1]) for key in keys if key in stamps]
        return self._parts.timestamps.after(max(seen, default=None))


def _versioned(row: tuple[bytes, ...] | None) -> Versioned | None:
    if row is None:
        return None
    _, cell, version = row
    # A plain row has a timestamp instead of a nonce.
    named = version.to_bytes(_STAMP_BYTES, "big") if isinstance(version, int) else version
    return Versioned(open_value(cell), Predicate(named))
