"""The requests of one tick of the loop, and the meaning of their failures, on a fake cluster of plain rows."""

from __future__ import annotations

import ast
import asyncio
import random
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from cassandra import InvalidRequest, OperationTimedOut, Unavailable
from cassandra.query import BatchStatement, SimpleStatement
from tests.support.clock import RestlessClock

from tarn.kv.cassandra.cluster.outcomes import Fate, fate_of
from tarn.kv.cassandra.cluster.retry import Retry
from tarn.kv.cassandra.cluster.session import Answered, Profile
from tarn.kv.cassandra.rows.request_batches import PlainWrite, PlainWrites, Reads
from tarn.kv.cassandra.settings import CassandraLimits
from tarn.telemetry.meters import Meters

P = b"p"
NAMES = (
    *(
        "cas_get",
        "plain_get",
        "plain_get_cross_bucket",
        "plain_stamps",
        "plain_stamps_cross_bucket",
    ),
    *("plain_set", "plain_delete"),
)


class Cluster:
    """The buckets of one partition, with the session's `submit`.

    Attributes:
        rows: cell and timestamp by bucket and key.
        sent: the statements of each request.
        faults: an error for each of the next requests, None for none; a failing request is not applied.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[int, bytes], tuple[bytes, int]] = {}
        self.sent: list[list[str]] = []
        self.faults: deque[Exception | None] = deque()

    def statements(self) -> Any:
        """Returns statements that bind to texts, which the driver's batches accept."""

        def bind(name: str, args: tuple[Any, ...]) -> SimpleStatement:
            return SimpleStatement(repr((name, args)))

        made = {
            name: SimpleNamespace(bind=lambda args, name=name: bind(name, args)) for name in NAMES
        }
        return SimpleNamespace(**made)

    def submit(self, statement: Any, profile: Profile, answered: Answered) -> None:
        del profile
        if isinstance(statement, BatchStatement):
            texts = [text for _, text, _ in statement._statements_and_parameters]
        else:
            texts = [statement.query_string]
        bound = [ast.literal_eval(text) for text in texts]
        self.sent.append([name for name, _ in bound])
        error = self.faults.popleft() if self.faults else None
        rows = [row for name, args in bound for row in self._do(name, args)] if not error else None
        asyncio.get_running_loop().call_soon(answered, rows, error)

    def _do(self, name: str, args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if name == "plain_set":
            _, bucket, key, cell, timestamp_us = args
            self.rows[bucket, key] = (cell, timestamp_us)
            return []
        _, b, keys = args
        buckets = b if name.endswith("_cross_bucket") else [b]
        found = [(bucket, k) for bucket in buckets for k in keys if (bucket, k) in self.rows]
        if name.endswith("_cross_bucket"):
            return [(key, *self.rows[bucket, key], bucket) for bucket, key in found]
        return [(key, *self.rows[bucket, key]) for bucket, key in found]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def writes(cluster: Cluster) -> PlainWrites:
    return PlainWrites(cluster, cluster.statements(), CassandraLimits(), _retry())  # type: ignore[arg-type]  # a fake


@pytest.fixture
async def reads(cluster: Cluster) -> Reads:
    return Reads(cluster, cluster.statements(), CassandraLimits(), _retry())  # type: ignore[arg-type]  # a fake


def _retry() -> Retry:
    return Retry(RestlessClock(), random.Random(1), 2)


def _write(bucket: int, key: bytes, cell: bytes = b"\0cell") -> PlainWrite:
    return PlainWrite(bucket, ((key, cell),), 7, len(key) + len(cell))


class TestCrossBucketWrites:
    async def test_a_few_rows_of_several_buckets_are_one_request(
        self, writes: PlainWrites, cluster: Cluster
    ) -> None:
        some = [_write(0, b"a"), _write(1, b"b"), _write(2, b"c")]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(writes.write(P, [each])) for each in some]
        assert [task.result() for task in tasks] == [[None], [None], [None]]
        assert cluster.sent == [["plain_set"] * 3]
        assert set(cluster.rows) == {(0, b"a"), (1, b"b"), (2, b"c")}

    async def test_the_rows_of_each_request_are_measured(self, writes: PlainWrites) -> None:
        meters = Meters()
        writes.sizes = meters.histogram("kv.batch")
        assert await writes.write(P, [_write(bucket, b"a") for bucket in range(3)]) == [None] * 3
        assert await writes.write(P, [_write(0, b"b")]) == [None]
        assert [*meters.samples("kv.batch.count")] == [({}, 2)]
        assert [*meters.samples("kv.batch.sum")] == [({}, 4)]

    async def test_many_rows_are_one_request_per_bucket(
        self, writes: PlainWrites, cluster: Cluster
    ) -> None:
        large = [_write(bucket, b"%d" % n, bytes(2000)) for bucket in (0, 1) for n in range(3)]
        assert await writes.write(P, large) == [None] * 6
        assert cluster.sent == [["plain_set"] * 3] * 2

    async def test_cross_bucket_batches_stay_below_the_size_that_nodes_warn_of(
        self, writes: PlainWrites, cluster: Cluster
    ) -> None:
        small = [_write(bucket, b"%d" % n, bytes(500)) for bucket in range(4) for n in range(2)]
        assert await writes.write(P, small) == [None] * 8
        assert [len(names) for names in cluster.sent] == [6, 2]

    async def test_unavailable_is_an_unknown_outcome_of_each_bucket(
        self, writes: PlainWrites, cluster: Cluster
    ) -> None:
        cluster.faults.extend([Unavailable("few"), Unavailable("few"), Unavailable("few")])
        first, second = await writes.write(P, [_write(0, b"a"), _write(1, b"b")])
        assert first is not None
        assert second is not None
        assert fate_of(first) is fate_of(second) is Fate.UNKNOWN

    async def test_unavailable_of_one_bucket_is_surely_not_applied(
        self, writes: PlainWrites, cluster: Cluster
    ) -> None:
        cluster.faults.extend([Unavailable("few"), Unavailable("few")])
        (error,) = await writes.write(P, [_write(0, b"a")])
        assert error is not None
        assert fate_of(error) is Fate.NOT_APPLIED

    async def test_a_failed_cross_bucket_batch_is_repeated_by_bucket(
        self, writes: PlainWrites, cluster: Cluster
    ) -> None:
        cluster.faults.extend([OperationTimedOut(), None, OperationTimedOut()])
        first, second = await writes.write(P, [_write(0, b"a"), _write(1, b"b")])
        assert cluster.sent == [["plain_set"] * 2, ["plain_set"], ["plain_set"]]
        assert first is None
        assert second is not None

    async def test_nodes_that_refuse_cross_bucket_batches_get_no_more(
        self, writes: PlainWrites, cluster: Cluster
    ) -> None:
        cluster.faults.append(InvalidRequest("Batch too large"))
        for key in (b"a", b"b"):
            assert await writes.write(P, [_write(0, key), _write(1, key)]) == [None, None]
        assert [len(names) for names in cluster.sent] == [2, 1, 1, 1, 1]
        assert len(cluster.rows) == 4


class TestCrossBucketReads:
    async def test_a_few_rows_of_several_buckets_are_one_request(
        self, reads: Reads, cluster: Cluster
    ) -> None:
        cluster.rows = {(0, b"a"): (b"0a", 1), (1, b"b"): (b"1b", 2)}
        found = await reads.read(reads.plain, P, {0: [b"a", b"x"], 1: [b"b"]})
        assert found == {0: {b"a": (b"a", b"0a", 1)}, 1: {b"b": (b"b", b"1b", 2)}}
        assert cluster.sent == [["plain_get_cross_bucket"]]

    async def test_a_row_is_only_found_in_the_bucket_that_it_was_looked_for(
        self, reads: Reads, cluster: Cluster
    ) -> None:
        cluster.rows = {(1, b"a"): (b"1a", 1)}
        assert await reads.read(reads.stamps, P, {0: [b"a"], 1: [b"b"]}) == {0: {}, 1: {}}

    async def test_many_keys_are_one_request_per_bucket(
        self, reads: Reads, cluster: Cluster
    ) -> None:
        keys = [b"%d" % n for n in range(40)]
        await reads.read(reads.plain, P, {0: keys[:20], 1: keys[20:]})
        assert cluster.sent == [["plain_get"]] * 2

    async def test_serial_reads_are_of_one_bucket(self, reads: Reads, cluster: Cluster) -> None:
        await reads.read(reads.settle, P, {0: [b"a"], 1: [b"b"]})
        assert cluster.sent == [["cas_get"]] * 2

    async def test_nodes_that_refuse_cross_bucket_reads_are_read_by_bucket(
        self, reads: Reads, cluster: Cluster
    ) -> None:
        cluster.rows = {(1, b"b"): (b"1b", 2)}
        cluster.faults.append(InvalidRequest("a guardrail"))
        for _ in range(2):
            found = await reads.read(reads.plain, P, {0: [b"a"], 1: [b"b"]})
            assert found == {0: {}, 1: {b"b": (b"b", b"1b", 2)}}
        assert cluster.sent == [["plain_get_cross_bucket"], *[["plain_get"]] * 4]

    async def test_a_failure_reaches_every_caller(self, reads: Reads, cluster: Cluster) -> None:
        cluster.faults.extend([OperationTimedOut(), OperationTimedOut()])
        with pytest.raises(OperationTimedOut):
            await reads.read(reads.plain, P, {0: [b"a"], 1: [b"b"]})
