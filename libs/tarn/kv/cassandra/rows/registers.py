"""Rows of register partitions: every write is a compare-and-set that carries the nonce of its operation.

An operation's nonce is fresh, the same in all of its attempts, and stored with the row. So if the answer
"not applied" shows our own nonce, an earlier attempt was applied. After an unknown outcome, a SERIAL read
decides (docs/design/kv.md, "Unknown outcomes"):

- The row has our nonce: the write was applied.
- The row still has the predicate's nonce: the write was not applied. The read finished or voided every attempt under
  way, so the write may be repeated.
- Anything else: unknown, because another write may have replaced ours.

An attempt that no node answered may also be applied after that read. The repeated attempt then finds our
nonce, or else the operation ends as unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tarn.aio.futures import ignore_outcome
from tarn.core.clock import IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.cassandra.cluster.outcomes import (
    Fate,
    fate_of,
    is_answered,
    is_transient,
    read_error,
    write_error,
)
from tarn.kv.cassandra.cluster.retry import Retry
from tarn.kv.cassandra.cluster.session import Statement
from tarn.kv.cassandra.cluster.statements import Statements, open_value, seal_value
from tarn.kv.cassandra.rows.partition_queues import Answer, Comparison, PartitionQueues, Stored
from tarn.kv.cassandra.rows.request_batches import CassandraPartition, Found, Reads, as_one
from tarn.kv.port import OutcomeUnknownError, Predicate, PredicateFailedError, Row, Versioned

__all__ = ["RegisterSet", "Registers"]

_SETTLE_SECONDS = 10.0
"""How long to keep settling an unknown outcome: enough time for the driver to reconnect."""


@dataclass(frozen=True, slots=True)
class RegisterSet:
    """Rows of one bucket to set together and unconditionally. No key occurs twice."""

    place: CassandraPartition
    rows: tuple[Row, ...]
    size_bytes: int


class Registers:
    """Does conditional writes and settles their outcomes. Belongs to the running event loop."""

    def __init__(
        self,
        queues: PartitionQueues,
        reads: Reads,
        statements: Statements,
        ids: IdSource,
        retry: Retry,
    ) -> None:
        self._queues = queues
        self._reads = reads
        self._statements = statements
        self._ids = ids
        self._retry = retry
        self._patience = retry.longer(_SETTLE_SECONDS)

    async def set_if(
        self,
        place: CassandraPartition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        """See `Kv.set_if`."""
        nonce = Predicate(self._ids.nonce())
        cell = seal_value(value)
        if predicate is None:
            bound = self._statements.cas_insert.bind((*place, key, cell, nonce))
        else:
            bound = self._statements.cas_update.bind((cell, nonce, *place, key, predicate))
        together = self._accompanied(place, bound, companions, nonce)
        comparison = Comparison(together, key, predicate, Stored(cell, nonce))
        answer = await self._compare(place, comparison)
        if answer.applied or (answer.stored is not None and answer.stored.nonce == nonce):
            return nonce
        raise PredicateFailedError(key, _versioned(answer.stored))

    def _accompanied(
        self,
        place: CassandraPartition,
        bound: Statement,
        companions: Sequence[Row],
        nonce: Predicate | None = None,
    ) -> Statement:
        """One request that applies a conditional statement and, if its condition holds, the companions."""
        if not companions:
            return bound
        nonce = nonce or Predicate(self._ids.nonce())
        insert = self._statements.cas_companion
        rows = [insert.bind((*place, k, seal_value(v), nonce)) for k, v in companions]
        return as_one([bound, *rows])

    async def delete_if(
        self,
        place: CassandraPartition,
        key: bytes,
        predicate: Predicate,
        companions: Sequence[Row] = (),
    ) -> None:
        """See `Kv.delete_if`. If the row is absent after an unknown outcome, another process may have removed
        it, so the outcome stays unknown: two callers must never both believe that they removed it."""
        bound = self._statements.cas_delete_if.bind((*place, key, predicate))
        together = self._accompanied(place, bound, companions)
        answer = await self._compare(place, Comparison(together, key, predicate, None))
        if not answer.applied:
            raise PredicateFailedError(key, _versioned(answer.stored))

    async def set_rows(self, sets: Sequence[RegisterSet]) -> list[TarnError | None]:
        """Sets rows, each of the `sets` whole or not at all. Returns one outcome per set, in order.

        Sets of one bucket are sent one after the other. They would wait for each other in the bucket's queue
        anyway, and the last ones of a large call would time out there. If one fails, the later ones are not
        sent, because each would wait as long for the same answer.
        """
        outcomes: list[TarnError | None] = [None] * len(sets)
        by_place: dict[CassandraPartition, list[int]] = {}
        for index, item in enumerate(sets):
            by_place.setdefault(item.place, []).append(index)
        async with asyncio.TaskGroup() as group:
            for indexes in by_place.values():
                group.create_task(self._set_in_turn(sets, indexes, outcomes))
        return outcomes

    async def _set_in_turn(
        self, sets: Sequence[RegisterSet], indexes: Sequence[int], outcomes: list[TarnError | None]
    ) -> None:
        failed: TarnError | None = None
        for index in indexes:
            if failed is None:
                nonce = Predicate(self._ids.nonce())
                future = self._submit(sets[index], nonce)
                failed = outcomes[index] = await self._set_outcome(sets[index], nonce, future)
            else:
                text = (
                    f"not sent, because rows of the same call and bucket failed: {failed.message}"
                )
                outcomes[index] = TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)

    async def delete_rows(self, place: CassandraPartition, keys: frozenset[bytes]) -> None:
        """Removes rows; absent keys are no error.

        Raises:
            TarnError: UNAVAILABLE: nothing was removed. `OutcomeUnknownError`: rows may have been removed,
                or may be removed later.
        """
        bound = [self._statements.cas_delete.bind((*place, key)) for key in keys]
        attempts = self._retry.begin()
        while True:
            try:
                await self._queues.set(place, bound, keys, 0)
                return
            except TarnError:
                raise  # a bound of this process refused the request, so it was not sent
            except Exception as error:
                if fate_of(error) is Fate.UNKNOWN:
                    if await self._settle(place, keys, error):
                        raise OutcomeUnknownError(f"rows may be removed later: {error}") from error
                    return
                if not is_transient(error) or not await attempts.again():
                    raise read_error(error) from error

    async def _compare(self, place: CassandraPartition, comparison: Comparison) -> Answer:
        """Sends a comparison until its outcome is known.

        Raises:
            TarnError: UNAVAILABLE: the write was not applied. `OutcomeUnknownError`: it cannot be settled.
        """
        attempts = self._retry.begin()
        # An attempt that a node did not answer may still wait in its queue, where no read can void it.
        doubt: Exception | None = None
        while True:
            try:
                answer = await self._queues.compare(place, comparison)
            except Exception as error:
                if fate_of(error) is Fate.UNKNOWN:
                    if await self._settle_one(place, comparison, error):
                        return Answer(applied=True, stored=comparison.then)
                    doubt = doubt if is_answered(error) else error
                if not is_transient(error) or not await attempts.again():
                    raise (read_error(error) if doubt is None else write_error(doubt)) from error
            else:
                ours = comparison.then is not None and answer.stored == comparison.then
                if doubt is not None and not answer.applied and not ours:
                    # It may have been applied after the settling read, and replaced since.
                    raise write_error(doubt) from doubt
                return answer

    async def _settle_one(
        self, place: CassandraPartition, comparison: Comparison, error: Exception
    ) -> bool:
        """Whether an attempt of unknown outcome was applied. False: it was not, and may be repeated.

        Raises:
            OutcomeUnknownError: the row does not show the outcome.
        """
        key, then = comparison.key, comparison.then
        row = (await self._settle(place, (key,), error)).get(key)
        if row is not None and then is not None and row[2] == then.nonce:
            return True
        if row is not None and row[2] == comparison.predicate:
            return False
        text = f"{error}; since then, key {key!r} has been changed or removed"
        raise OutcomeUnknownError(text) from error

    def _submit(self, item: RegisterSet, nonce: Predicate) -> asyncio.Future[Answer]:
        upsert = self._statements.cas_upsert
        bound = [upsert.bind((seal_value(v), nonce, *item.place, k)) for k, v in item.rows]
        keys = frozenset(key for key, _ in item.rows)
        future = self._queues.set(item.place, bound, keys, item.size_bytes)
        # A cancelled caller leaves some of them alone.
        ignore_outcome(future)
        return future

    async def _set_outcome(
        self, item: RegisterSet, nonce: Predicate, future: asyncio.Future[Answer]
    ) -> TarnError | None:
        attempts = self._retry.begin()
        while True:
            try:
                await future
                return None
            except Exception as error:  # noqa: BLE001 - the driver has no base class
                if fate_of(error) is Fate.UNKNOWN:
                    return await self._settled_set(item, nonce, error)
                if not is_transient(error) or not await attempts.again():
                    return read_error(error)
                future = self._submit(item, nonce)

    async def _settled_set(
        self, item: RegisterSet, nonce: Predicate, error: Exception
    ) -> TarnError | None:
        try:
            found = await self._settle(item.place, [key for key, _ in item.rows], error)
        except TarnError as unknown:
            return unknown
        # The rows of a set land together, so our nonce in one row proves that all of them landed. Without
        # it the outcome stays unknown: every row may have been replaced since.
        applied = any(row[2] == nonce for row in found.values())
        return None if applied else OutcomeUnknownError(str(error))

    async def _settle(
        self, place: CassandraPartition, keys: Sequence[bytes] | frozenset[bytes], error: Exception
    ) -> Found:
        """Reads rows with SERIAL consistency, which decides all older attempts. Returns the rows by key."""
        try:
            found = await self._reads.read(
                self._reads.settle, place.p, {place.b: keys}, self._patience
            )
        except Exception as unsettled:
            text = f"{error}; the outcome could not be settled: {unsettled}"
            raise OutcomeUnknownError(text) from unsettled
        # Several callers may share the answer, so keep only our own rows.
        return {key: row for key in keys if (row := found[place.b].get(key))}


def _versioned(stored: Stored | None) -> Versioned | None:
    return None if stored is None else Versioned(open_value(stored.cell), Predicate(stored.nonce))
