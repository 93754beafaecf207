"""Batches requests by ticks of the event loop: what tasks request in one tick is sent together (`tarn.aio.batcher`).

The driver and the node need CPU per request, not per row: 125 µs for a single row, 8 µs for a row in a batch
(docs/design/kv.md, "Measured"). So small parts of several buckets share one request (see cross_bucket.py),
and large parts are sent as one request per bucket, to that bucket's replicas. (We tried to hold requests
back while a bucket was busy: batches became no larger and nothing faster.) A read joins only a request that
is still to be sent, so it sees every write that was acknowledged before the read began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from cassandra import InvalidRequest, Unavailable
from cassandra.query import BatchStatement, BatchType

from tarn.aio.batcher import TickBatch
from tarn.kv.cassandra.cluster.outcomes import Fate, PartlyAppliedError, fate_of, is_transient
from tarn.kv.cassandra.cluster.retry import Retry
from tarn.kv.cassandra.cluster.session import CassandraSession, Profile, Rows, Statement
from tarn.kv.cassandra.cluster.statements import Statements
from tarn.kv.cassandra.rows.cross_bucket import (
    CrossBucketBatch,
    cross_bucket_size,
    may_cross_buckets,
)
from tarn.kv.cassandra.settings import CassandraLimits
from tarn.telemetry.meters import Histogram

__all__ = ["Found", "CassandraPartition", "PlainWrite", "PlainWrites", "Query", "Reads", "as_one"]


class CassandraPartition(NamedTuple):
    """One Cassandra partition, the unit of atomic requests: `p` is the physical name, `b` the bucket."""

    p: bytes
    b: int


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A prepared `SELECT … k IN ?` whose first column is the key. Compared by identity.

    Attributes:
        statement: reads one bucket.
        cross_bucket: reads several, `… b IN ? AND k IN ?`, with the bucket as the last column. None for a serial
            read, which is limited to one Cassandra partition.
    """

    statement: Statement
    profile: Profile
    cross_bucket: Statement | None = None


Found = dict[bytes, Any]
"""Rows (tuples) by key; absent keys are missing."""


class _ReadAsk:
    """The pending read of one caller, over several buckets."""

    __slots__ = ("found", "future", "left")

    def __init__(self, future: asyncio.Future[dict[int, Found]], left: int) -> None:
        self.future = future
        self.left = left
        self.found: dict[int, Found] = {}


class _ReadWanted(NamedTuple):
    """The query of one caller."""

    query: Query
    p: bytes
    keys_of: Mapping[int, Iterable[bytes]]
    ask: _ReadAsk


class _BucketRead:
    """The keys that one tick reads from one bucket."""

    __slots__ = ("asks", "error", "found", "keys", "left")

    def __init__(self) -> None:
        self.keys: dict[bytes, None] = {}
        self.asks: list[_ReadAsk] = []
        self.found: Found = {}
        self.left = 0
        self.error: Exception | None = None


class Reads:
    """Reads single rows. Belongs to the running event loop."""

    def __init__(
        self,
        session: CassandraSession,
        statements: Statements,
        limits: CassandraLimits,
        retry: Retry,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._keys_max = limits.keys_per_read
        self._retry = retry
        self._wanted = TickBatch[_ReadWanted](self._send)
        self._may_cross = True
        self.cas = Query(statements.cas_get, Profile.READ)
        self.settle = Query(statements.cas_get, Profile.SETTLE)
        self.plain = Query(statements.plain_get, Profile.READ, statements.plain_get_cross_bucket)
        self.stamps = Query(
            statements.plain_stamps, Profile.READ, statements.plain_stamps_cross_bucket
        )

    async def read(
        self,
        query: Query,
        p: bytes,
        keys_of: Mapping[int, Iterable[bytes]],
        retry: Retry | None = None,
    ) -> dict[int, Found]:
        """Returns the rows of keys, by bucket. Repeats requests that fail temporarily, as `retry` says.

        Raises:
            Exception: the driver's error of the last attempt.
        """
        return await (retry or self._retry).read(partial(self._ask, query, p, keys_of))

    def _ask(
        self, query: Query, p: bytes, keys_of: Mapping[int, Iterable[bytes]]
    ) -> asyncio.Future[dict[int, Found]]:
        assert keys_of
        ask = _ReadAsk(self._loop.create_future(), len(keys_of))
        self._wanted.add(_ReadWanted(query, p, keys_of, ask))
        return ask.future

    def _send(self, wanted: Sequence[_ReadWanted]) -> None:
        by_partition: dict[tuple[Query, bytes], dict[int, _BucketRead]] = {}
        for query, p, keys_of, ask in wanted:
            read_of = by_partition.setdefault((query, p), {})
            for bucket, keys in keys_of.items():
                read = read_of.get(bucket)
                if read is None:
                    read = read_of[bucket] = _BucketRead()
                read.keys.update(dict.fromkeys(keys))
                read.asks.append(ask)
        for (query, p), read_of in by_partition.items():
            count = sum(len(read.keys) for read in read_of.values())
            if (
                self._may_cross
                and query.cross_bucket is not None
                and may_cross_buckets(len(read_of), count)
            ):
                self._send_cross_bucket(query, query.cross_bucket, p, read_of)
                continue
            for bucket, read in read_of.items():
                self._send_one(query, CassandraPartition(p, bucket), read)

    def _send_one(self, query: Query, place: CassandraPartition, read: _BucketRead) -> None:
        keys = list(read.keys)
        parts = [keys[at : at + self._keys_max] for at in range(0, len(keys), self._keys_max)]
        read.left = len(parts)
        answered = partial(self._answered, place.b, read)
        for part in parts:
            statement = query.statement.bind((place.p, place.b, part))
            self._session.submit(statement, query.profile, answered)

    def _send_cross_bucket(
        self, query: Query, statement: Statement, p: bytes, read_of: dict[int, _BucketRead]
    ) -> None:
        """Sends one request for all keys in all buckets; ignores rows that were not requested."""
        keys = list(dict.fromkeys(key for read in read_of.values() for key in read.keys))
        for read in read_of.values():
            read.left = 1

        def answered(rows: Rows | None, error: Exception | None) -> None:
            if isinstance(error, InvalidRequest):
                self._may_cross = False  # a guardrail of the nodes'
                for bucket, read in read_of.items():
                    self._send_one(query, CassandraPartition(p, bucket), read)
                return
            rows_of: dict[int, Rows] = {bucket: [] for bucket in read_of}
            for *row, bucket in rows or ():
                if row[0] in read_of[bucket].keys:
                    rows_of[bucket].append(tuple(row))
            for bucket, read in read_of.items():
                self._answered(bucket, read, rows_of[bucket], error)

        self._session.submit(statement.bind((p, list(read_of), keys)), query.profile, answered)

    @staticmethod
    def _answered(
        bucket: int, read: _BucketRead, rows: Rows | None, error: Exception | None
    ) -> None:
        read.error = read.error or error
        for row in rows or ():
            read.found[row[0]] = row
        read.left -= 1
        if read.left:
            return
        for ask in read.asks:
            if ask.future.done():
                continue  # cancelled, or failed in another bucket
            if read.error is not None:
                ask.future.set_exception(read.error)
                continue
            ask.found[bucket] = read.found
            ask.left -= 1
            if not ask.left:
                ask.future.set_result(ask.found)


@dataclass(frozen=True, slots=True)
class PlainWrite:
    """Rows of one bucket that are written atomically.

    Attributes:
        rows: keys and cells; None deletes the row.
        timestamp_us: the same in all attempts, so that they are a single write.
    """

    bucket: int
    rows: tuple[tuple[bytes, bytes | None], ...]
    timestamp_us: int
    size_bytes: int


class _WriteAsk:
    """The pending writes of one caller: an error or None for each of them."""

    __slots__ = ("errors", "future", "left")

    def __init__(self, future: asyncio.Future[list[Exception | None]], count: int) -> None:
        self.future = future
        self.left = count
        self.errors: list[Exception | None] = [None] * count


_Waiting = tuple[PlainWrite, _WriteAsk, int]


class _WritesWanted(NamedTuple):
    """The writes of one caller.

    Attributes:
        may_cross: whether they may share a request with other buckets; False for repetitions.
    """

    p: bytes
    writes: Sequence[PlainWrite]
    ask: _WriteAsk
    may_cross: bool


class PlainWrites:
    """Writes to plain partitions. Belongs to the running event loop.

    Attributes:
        sizes: gets the number of rows of each request; None: they are not measured.
    """

    def __init__(
        self,
        session: CassandraSession,
        statements: Statements,
        limits: CassandraLimits,
        retry: Retry,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._statements = statements
        self._limits = limits
        self._retry = retry
        self._wanted = TickBatch[_WritesWanted](self._send)
        self.sizes: Histogram | None = None
        self._may_cross = True

    async def write(self, p: bytes, writes: Sequence[PlainWrite]) -> list[Exception | None]:
        """Writes, each whole or not at all. Repeats writes that fail temporarily.

        Returns:
            For each write, in order, None or the driver's error. If any attempt may have been applied, the
            error is that attempt's.
        """
        errors: list[Exception | None] = [None] * len(writes)
        pending = list(range(len(writes)))
        attempts = self._retry.begin()
        may_cross = True
        while True:
            answers = await self._ask(p, [writes[index] for index in pending], may_cross=may_cross)
            may_cross = False
            again: list[int] = []
            for index, error in zip(pending, answers, strict=True):
                before = errors[index]
                if error is None or before is None or fate_of(before) is Fate.NOT_APPLIED:
                    errors[index] = error
                if error is not None and is_transient(error):
                    again.append(index)
            pending = again
            if not pending or not await attempts.again():
                return errors

    def _ask(
        self, p: bytes, writes: Sequence[PlainWrite], *, may_cross: bool
    ) -> asyncio.Future[list[Exception | None]]:
        ask = _WriteAsk(self._loop.create_future(), len(writes))
        self._wanted.add(_WritesWanted(p, writes, ask, may_cross))
        return ask.future

    def _send(self, wanted: Sequence[_WritesWanted]) -> None:
        together: dict[CassandraPartition, list[_Waiting]] = {}
        for p, writes, ask, may_cross in wanted:
            waiting_at = together if may_cross and self._may_cross else {}
            for index, write in enumerate(writes):
                waiting_at.setdefault(CassandraPartition(p, write.bucket), []).append(
                    (write, ask, index)
                )
            if waiting_at is not together:
                for place, waiting in waiting_at.items():
                    for part in self._parts(waiting):
                        self._submit({place: part})
        self._send_cross_bucket(together)

    def _send_cross_bucket(self, together: Mapping[CassandraPartition, list[_Waiting]]) -> None:
        batches: dict[bytes, CrossBucketBatch[list[_Waiting]]] = {}
        for place, waiting in together.items():
            for part in self._parts(waiting):
                batch = batches.setdefault(place.p, CrossBucketBatch())
                size_bytes = sum(
                    cross_bucket_size(item[0].rows, item[0].size_bytes) for item in part
                )
                for full in batch.add(place.b, part, size_bytes):
                    self._submit(
                        {CassandraPartition(place.p, bucket): each for bucket, each in full.items()}
                    )
        for p, batch in batches.items():
            if batch.parts:
                self._submit(
                    {CassandraPartition(p, bucket): each for bucket, each in batch.parts.items()}
                )

    def _submit(self, parts: Mapping[CassandraPartition, list[_Waiting]]) -> None:
        """Sends parts of one or several buckets as one request."""
        bound = [
            self._bind(place, write, row)
            for place, part in parts.items()
            for write, _, _ in part
            for row in write.rows
        ]
        waiting = [item for part in parts.values() for item in part]
        if self.sizes is not None:
            self.sizes.record(len(bound))

        def answered(rows: Rows | None, error: Exception | None) -> None:
            if len(parts) > 1 and isinstance(error, InvalidRequest):
                self._may_cross = False  # the nodes accept only smaller batches
                for place, part in parts.items():
                    self._submit({place: part})
            elif len(parts) > 1 and isinstance(error, Unavailable):
                self._answered(waiting, rows, PartlyAppliedError(str(error)))
            else:
                self._answered(waiting, rows, error)

        self._session.submit(as_one(bound), Profile.WRITE, answered)

    def _parts(self, waiting: list[_Waiting]) -> Iterator[list[_Waiting]]:
        """Splits writes into parts within the bounds of a batch; each has at least one write."""
        part: list[_Waiting] = []
        rows = size_bytes = 0
        for item in waiting:
            write = item[0]
            rows += len(write.rows)
            size_bytes += write.size_bytes
            limits = self._limits
            if part and (rows > limits.batch_rows_max or size_bytes > limits.batch_bytes_max):
                yield part
                part, rows, size_bytes = [], len(write.rows), write.size_bytes
            part.append(item)
        yield part

    def _bind(
        self, place: CassandraPartition, write: PlainWrite, row: tuple[bytes, bytes | None]
    ) -> Statement:
        key, cell = row
        if cell is None:
            return self._statements.plain_delete.bind((write.timestamp_us, *place, key))
        return self._statements.plain_set.bind((*place, key, cell, write.timestamp_us))

    @staticmethod
    def _answered(part: list[_Waiting], rows: Rows | None, error: Exception | None) -> None:
        del rows
        for _, ask, index in part:
            ask.errors[index] = error
            ask.left -= 1
            if not ask.left and not ask.future.done():
                ask.future.set_result(ask.errors)


def as_one(bound: Sequence[Statement]) -> Statement:
    """Combines statements into one request; those of one Cassandra partition are one mutation in it.

    A mutation is applied and seen as a whole; mutations of different partitions are independent.
    """
    if len(bound) == 1:
        return bound[0]
    batch = BatchStatement(BatchType.UNLOGGED)
    batch.add_all(bound, [None] * len(bound))
    return batch
