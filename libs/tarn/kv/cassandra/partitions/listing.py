"""Lists every partition of an installation, from the partitions' descriptors and from their rows.

A compare-and-set creates the descriptor before the partition's first row, and descriptors are never removed,
so the descriptors name every partition. The rows are read as well: a tool that copies everything must not
silently leave out rows whose partition has no descriptor (a partial backup, a manual INSERT).

The tables are read in the order of the token ring, which costs O(partitions of the whole keyspace).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from tarn.aio.first_error import collapse_error_groups
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.cassandra.cluster.retry import Retry
from tarn.kv.cassandra.cluster.session import CassandraSession, Profile
from tarn.kv.cassandra.cluster.statements import Prepared, Statements
from tarn.kv.cassandra.partitions.descriptors import (
    DESCRIPTOR_BUCKET,
    PartitionDescriptor,
    PartitionDescriptors,
)
from tarn.kv.cassandra.rows.request_batches import CassandraPartition
from tarn.kv.port import PartitionInfo

__all__ = ["Listing"]

_PAGE = 1_000
_DESCRIPTORS_AT_ONCE = 64
_FIRST_TOKEN = -(1 << 63)


class Listing:
    """Finds partitions. Belongs to the running event loop."""

    def __init__(
        self,
        session: CassandraSession,
        statements: Statements,
        descriptors: PartitionDescriptors,
        retry: Retry,
    ) -> None:
        self._session = session
        self._statements = statements
        self._descriptors = descriptors
        self._retry = retry

    async def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        """See `ListingKv.partitions`.

        Raises:
            TarnError: CORRUPT: rows have no descriptor. UNAVAILABLE: the nodes do not answer.
            Exception: an error of the driver.
        """
        start = prefix.encode()
        described: set[str] = set()
        with_rows: set[str] = set()
        async for places in self._pages(self._statements.cas_list):
            ours = [place for place in places if place.p.startswith(start)]
            with_rows.update(_name_of(place.p) for place in ours if place.b != DESCRIPTOR_BUCKET)
            names = [place.p.decode() for place in ours if place.b == DESCRIPTOR_BUCKET]
            described.update(names)
            for at in range(0, len(names), _DESCRIPTORS_AT_ONCE):
                for name, descriptor in await self._describe(names[at : at + _DESCRIPTORS_AT_ONCE]):
                    if descriptor is not None and not descriptor.dropped:
                        yield PartitionInfo(name, descriptor.kind, descriptor.buckets)
        async for places in self._pages(self._statements.plain_list):
            with_rows.update(_name_of(place.p) for place in places if place.p.startswith(start))
        for name in sorted(with_rows - described):
            # Perhaps the descriptor was created after its table was read.
            descriptor = await self._descriptors.describe(name)
            if descriptor is None:
                text = f"partition {name!r} has rows, but no descriptor"
                raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, partition=name)
            if not descriptor.dropped:
                yield PartitionInfo(name, descriptor.kind, descriptor.buckets)

    async def _describe(self, names: list[str]) -> list[tuple[str, PartitionDescriptor | None]]:
        with collapse_error_groups():
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._descriptors.describe(name)) for name in names]
        return [(name, task.result()) for name, task in zip(names, tasks, strict=True)]

    async def _pages(self, statement: Prepared) -> AsyncIterator[list[CassandraPartition]]:
        """Yields every Cassandra partition of a table once. Two of them may share a token, so each page
        begins with the token that ended the page before."""
        token = _FIRST_TOKEN
        seen: set[CassandraPartition] = set()
        limit = _PAGE
        while True:
            rows = await self._retry.read(partial(self._ask, statement, token, limit))
            fresh = [CassandraPartition(row[0], row[1]) for row in rows]
            page = [place for place in fresh if place not in seen]
            if page:
                yield page
            if len(rows) < limit:
                return
            last = rows[-1][2]
            if last == token:
                limit *= 2  # the whole page has one token: ask for more of it
            else:
                token, limit, seen = last, _PAGE, set()
            seen |= {place for place, row in zip(fresh, rows, strict=True) if row[2] == last}

    def _ask(
        self, statement: Prepared, token: int, limit: int
    ) -> asyncio.Future[list[tuple[bytes, int, int]]]:
        bound = statement.bind((token, limit))
        bound.fetch_size = None
        return self._session.ask(bound, Profile.READ)


def _name_of(p: bytes) -> str:
    """The name of the partition, from the physical name of its rows."""
    return p.rpartition(b"\0")[0].decode()
