"""Rows of register partitions: every write a compare-and-set that names its operation.

The nonce of an operation is fresh, the same over its attempts, and stored with the row. So an answer
"not applied" that shows our own nonce means that an earlier attempt was; and after an unknown outcome
a SERIAL read decides: our nonce, applied; the predicate's, not applied (the read finished or voided
what was under way), so it may be tried again; anything else cannot be told from the row, because
somebody may have written over us (docs/design/kv.md, "Unknown outcomes"). An attempt that no node
answered may also come after that read; the repetition then meets our nonce, or else says "unknown".
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
from tarn.kv.cassandra.cluster.statements import Statements, open_value, seal_value
from tarn.kv.cassandra.rows.partition_queues import Answer, Comparison, PartitionQueues, Stored
from tarn.kv.cassandra.rows.request_batches import CassandraPartition, Found, Reads
from tarn.kv.port import OutcomeUnknownError, Predicate, PredicateFailedError, Row, Versioned

__all__ = ["RegisterSet", "Registers"]

_SETTLE_SECONDS = 10.0
"""An unknown outcome is worth waiting for: long enough for the driver to connect again."""


@dataclass(frozen=True, slots=True)
class RegisterSet:
    """Rows of one bucket that are set together, whatever was there. No key twice."""

    place: CassandraPartition
    rows: tuple[Row, ...]
    size_bytes: int


class Registers:
    """Conditional writes and their settling. Belongs to the running event loop."""

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
        self, place: CassandraPartition, key: bytes, value: bytes, predicate: Predicate | None
    ) -> Predicate:
        """See `Kv.set_if`."""
        nonce = Predicate(self._ids.nonce())
        cell = seal_value(value)
        if predicate is None:
            bound = self._statements.cas_insert.bind((*place, key, cell, nonce))
        else:
            bound = self._statements.cas_update.bind((cell, nonce, *place, key, predicate))
        comparison = Comparison(bound, key, predicate, Stored(cell, nonce))
        answer = await self._compare(place, comparison)
        if answer.applied or (answer.stored is not None and answer.stored.nonce == nonce):
            return nonce
        raise PredicateFailedError(key, _versioned(answer.stored))

    async def delete_if(self, place: CassandraPartition, key: bytes, predicate: Predicate) -> None:
        """See `Kv.delete_if`. A row that is gone after an unknown outcome may have been removed by
        another, so that is unknown too: two callers must never both believe that they took it."""
        bound = self._statements.cas_delete_if.bind((*place, key, predicate))
        answer = await self._compare(place, Comparison(bound, key, predicate, None))
        if not answer.applied:
            raise PredicateFailedError(key, _versioned(answer.stored))

    async def set_rows(self, sets: Sequence[RegisterSet]) -> list[TarnError | None]:
        """Sets rows, each of the `sets` whole or not at all; one outcome for each.

        Sets of one place go one after the other: they would wait for each other in its queue anyway, and
        the last of a large call would expire there behind its own neighbours. If one fails, those behind
        it are not sent, as each would wait as long for the same answer.
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
        """Removes rows, absent ones too.

        Raises:
            TarnError: UNAVAILABLE; `OutcomeUnknownError`: some may be removed.
        """
        bound = [self._statements.cas_delete.bind((*place, key)) for key in keys]
        attempts = self._retry.begin()
        while True:
            try:
                await self._queues.set(place, bound, keys, 0)
                return
            except TarnError:
                raise  # our own bounds: not sent
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
            TarnError: UNAVAILABLE; `OutcomeUnknownError`.
        """
        attempts = self._retry.begin()
        # What a node did not answer may still wait in its queue, where no read can void it.
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
                    # It may have come after the settling read, and been written over since.
                    raise write_error(doubt) from doubt
                return answer

    async def _settle_one(
        self, place: CassandraPartition, comparison: Comparison, error: Exception
    ) -> bool:
        """Whether an attempt of unknown outcome was applied; False: it may be repeated.

        Raises:
            OutcomeUnknownError: the row does not tell.
        """
        key, then = comparison.key, comparison.then
        row = (await self._settle(place, (key,), error)).get(key)
        if row is not None and then is not None and row[2] == then.nonce:
            return True
        if row is not None and row[2] == comparison.predicate:
            return False
        text = f"{error}; key {key!r} has another version or none since"
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
        # They landed together: one of them is enough. None may still be: all written over since.
        applied = any(row[2] == nonce for row in found.values())
        return None if applied else OutcomeUnknownError(str(error))

    async def _settle(
        self, place: CassandraPartition, keys: Sequence[bytes] | frozenset[bytes], error: Exception
    ) -> Found:
        """Rows by key, after which nothing older is decided any more."""
        try:
            found = await self._reads.read(
                self._reads.settle, place.p, {place.b: keys}, self._patience
            )
        except Exception as unsettled:
            text = f"{error}; and it cannot be settled: {unsettled}"
            raise OutcomeUnknownError(text) from unsettled
        # Several callers may share the answer: only our own rows.
        return {key: row for key in keys if (row := found[place.b].get(key))}


def _versioned(stored: Stored | None) -> Versioned | None:
    return None if stored is None else Versioned(open_value(stored.cell), Predicate(stored.nonce))
