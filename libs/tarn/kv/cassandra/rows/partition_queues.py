"""Conditional writes, sent one at a time to each Cassandra partition.

Paxos serialises the writes of a partition anyway; proposals that race each other cost round trips and end as
time-outs of unknown outcome (docs/design/kv.md, "Compare-and-set"). So a process sends one at a time, and
later writes wait:

- Unconditional sets that are next to each other in the queue are sent as one request.
- A compare-and-set may wait while another one of the same row is answered. If that answer shows a version
  other than its predicate, it has lost already, because versions never recur. It is answered without a
  request of its own, so n tasks that increment one row cost n requests instead of n².

Writes of other processes still race; the server resolves them.

Not a `tarn.aio.batcher`: a batch here is closed when the answer before it has come, not at the next tick.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.cassandra.cluster.session import CassandraSession, Profile, Rows, Statement
from tarn.kv.cassandra.rows.request_batches import CassandraPartition, as_one
from tarn.kv.cassandra.settings import CassandraLimits
from tarn.telemetry.meters import Histogram

__all__ = ["Answer", "Comparison", "PartitionQueues", "Stored"]


@dataclass(frozen=True, slots=True)
class Stored:
    """The value and the nonce of a row."""

    cell: bytes
    nonce: bytes


@dataclass(frozen=True, slots=True)
class Comparison:
    """One conditional statement.

    Attributes:
        predicate: the version that the row must have; None: the row must be absent.
        then: the row after the statement was applied; None: no row.
    """

    bound: Statement
    key: bytes
    predicate: bytes | None
    then: Stored | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a comparison.

    Attributes:
        applied: whether this attempt was applied; `Registers` handles earlier attempts.
        stored: the row as it was after the decision.
    """

    applied: bool
    stored: Stored | None


@dataclass(frozen=True, slots=True)
class _Sets:
    """Statements whose conditions always hold."""

    bound: Sequence[Statement]
    keys: frozenset[bytes]
    size_bytes: int


class _Item:
    """An entry of a queue."""

    __slots__ = ("future", "until", "work")

    def __init__(
        self, work: Comparison | _Sets, future: asyncio.Future[Answer], until: float
    ) -> None:
        self.work = work
        self.future = future
        self.until = until

    def answer(self, answer: Answer) -> None:
        if not self.future.done():  # its task was cancelled; the write stays
            self.future.set_result(answer)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


_Queue = deque[_Item]
"""Invariant: a queue is in the table while it has items or a request under way."""


class PartitionQueues:
    """One queue per Cassandra partition that has work. Belongs to the running event loop.

    Attributes:
        sizes: gets the number of rows of each unconditional request; None: they are not measured.
    """

    def __init__(self, session: CassandraSession, clock: Clock, limits: CassandraLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._now = clock.monotonic
        self._limits = limits
        self._queues: dict[CassandraPartition, _Queue] = {}
        self.sizes: Histogram | None = None

    def compare(
        self, partition: CassandraPartition, comparison: Comparison
    ) -> asyncio.Future[Answer]:
        """Queues a conditional statement and sends it when its turn comes."""
        return self._enqueue(partition, comparison)

    def set(
        self,
        partition: CassandraPartition,
        bound: Sequence[Statement],
        keys: frozenset[bytes],
        size_bytes: int,
    ) -> asyncio.Future[Answer]:
        """Sends statements whose conditions always hold as one request, perhaps with those of other callers.

        Statements of one key never share a request: both would have the same timestamp, and the row could end
        up with cells of both.
        """
        return self._enqueue(partition, _Sets(bound, keys, size_bytes))

    def _enqueue(
        self, partition: CassandraPartition, work: Comparison | _Sets
    ) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = self._loop.create_future()
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = deque()
            # Runs after all tasks that are ready now, so that their sets share one request.
            self._loop.call_soon(self._send, partition, queue)
        if len(queue) >= self._limits.queued_max:
            text = f"{len(queue)} conditional writes are already waiting in one bucket; try again later"
            future.set_exception(TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text))
            return future
        queue.append(_Item(work, future, self._now() + self._limits.request_seconds))
        return future

    def _send(self, partition: CassandraPartition, queue: _Queue) -> None:
        """Sends the next item of an idle queue; removes an empty queue."""
        while queue and self._now() > queue[0].until:
            text = "the write waited too long for other writes and was not sent; try again later"
            queue.popleft().fail(TarnError(Kind.UNAVAILABLE, Reason.OVERLOADED, text))
        if not queue:
            del self._queues[partition]
            return
        work = queue[0].work
        if isinstance(work, Comparison):
            item = queue.popleft()
            answered = partial(self._compared, partition, queue, item, work, len(queue))
            self._session.submit(work.bound, Profile.CAS, answered)
            return
        items, bound = self._take_sets(queue)
        if self.sizes is not None:
            self.sizes.record(len(bound))
        self._session.submit(
            as_one(bound), Profile.CAS, partial(self._set, partition, queue, items)
        )

    def _take_sets(self, queue: _Queue) -> tuple[list[_Item], list[Statement]]:
        """Removes and returns the sets at the head of the queue that may share a request."""
        items: list[_Item] = []
        bound: list[Statement] = []
        keys: set[bytes] = set()
        size_bytes = 0
        while queue and isinstance(work := queue[0].work, _Sets):
            size_bytes += work.size_bytes
            if items and (
                not keys.isdisjoint(work.keys)
                or size_bytes > self._limits.batch_bytes_max
                or len(bound) + len(work.bound) > self._limits.batch_rows_max
            ):
                break
            keys |= work.keys
            bound += work.bound
            items.append(queue.popleft())
        return items, bound

    def _set(
        self,
        partition: CassandraPartition,
        queue: _Queue,
        items: list[_Item],
        rows: Rows | None,
        error: Exception | None,
    ) -> None:
        del rows
        for item in items:
            if error is not None:
                item.fail(error)
            else:
                item.answer(Answer(applied=True, stored=None))
        self._next(partition, queue)

    def _compared(
        self,
        partition: CassandraPartition,
        queue: _Queue,
        item: _Item,
        comparison: Comparison,
        waited: int,
        rows: Rows | None,
        error: Exception | None,
    ) -> None:
        if error is not None or not rows:
            item.fail(error or RuntimeError("a conditional statement returned no row"))
        else:
            answer = _answer(comparison, rows)
            item.answer(answer)
            self._answer_losers(queue, comparison.key, answer.stored, waited)
        self._next(partition, queue)

    @staticmethod
    def _answer_losers(queue: _Queue, key: bytes, stored: Stored | None, waited: int) -> None:
        """Answers comparisons of a row whose version is not the one that they expect.

        Considers only the first `waited` items. They had their predicates before the row was read, so their
        predicate cannot be a version that was written since.
        """
        nonce = stored.nonce if stored is not None else None
        head = [queue.popleft() for _ in range(min(waited, len(queue)))]
        for item in reversed(head):
            work = item.work
            if isinstance(work, Comparison) and work.key == key and work.predicate != nonce:
                item.answer(Answer(applied=False, stored=stored))
            else:
                queue.appendleft(item)

    def _next(self, partition: CassandraPartition, queue: _Queue) -> None:
        # Not called directly: an answer that arrives inside `submit` would cause a recursion.
        self._loop.call_soon(self._send, partition, queue)


def _answer(comparison: Comparison, rows: Rows) -> Answer:
    row = rows[0]
    if row["[applied]"]:
        return Answer(applied=True, stored=comparison.then)
    if row.get("n") is None:
        return Answer(applied=False, stored=None)
    return Answer(applied=False, stored=Stored(row["v"], row["n"]))
