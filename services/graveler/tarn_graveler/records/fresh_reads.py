"""Reads of single rows, each sent after it was requested; those of one tick and partition are one read of the store.

A row may ride beside others, in the next statement that the store is sent for any of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from tarn.aio.batcher import Batcher, TickBatch
from tarn.aio.task_set import TaskSet
from tarn.gate.permits import Begun
from tarn.kv.port import (
    ROWS_AT_ONCE_MAX,
    Kv,
    Partition,
    PartitionKind,
    Predicate,
    ReadsAtOnce,
    ReadsTogether,
    RowName,
    Versioned,
)

__all__ = ["Beside", "FreshReads"]


_WAITING_MAX = 1_000
"""Rows that wait for another read. Beyond it they are read alone: perhaps no request reads any more."""


class Beside:
    """A register row that callers need together with one of another partition.

    Attributes:
        row: its name.
        sent: the number of the newest read that has found it beside others; 0 for none.
        version: what that read found, None if the row is absent.
        known: what a read of the row found.
    """

    __slots__ = ("known", "row", "sent", "version")

    def __init__(self, row: RowName) -> None:
        self.row = row
        self.sent = 0
        self.version: Predicate | None = None
        self.known: Versioned | None = None

    def find(self, sent: int, found: Versioned | None) -> None:
        """Takes what the read of a number has found."""
        self.sent, self.version = sent, None if found is None else found.predicate
        self.known = found or self.known


class _Caller:
    """A caller that shares a read: the rows that it wants as of one moment, and its answer."""

    __slots__ = ("answer", "rows")

    def __init__(
        self, rows: tuple[RowName, ...], answer: asyncio.Future[list[Versioned | None]]
    ) -> None:
        self.rows = rows
        self.answer = answer


class FreshReads:
    """Reads rows of a store together. No request joins a read that was sent before it (`tarn.aio.batcher`).

    Attributes:
        are_at_once: whether the store reads at once, so that `at_once` may be called.
    """

    def __init__(self, kv: Kv, tasks: TaskSet) -> None:
        self._kv = kv
        self._together = kv.get_together if isinstance(kv, ReadsTogether) else None
        self.are_at_once = isinstance(kv, ReadsAtOnce)
        if isinstance(kv, ReadsAtOnce):
            self._get_at_once = kv.get_at_once
            self._get_at_once_beside = kv.get_at_once_beside
        # By the name of a partition: hashing the partition itself costs a call.
        self._reads = Batcher[str, RowName, Versioned | None](self._read, tasks)
        # In the order of requests.
        self._beside: dict[Beside, None] = {}
        self._sent = 0
        # The loop of the first caller is that of all; getting the running loop costs a system call.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._in_tick = 0
        self._shares = False
        self._waiting = TickBatch[_Caller](self._answer_together)

    def begin(self, partition: Partition, key: bytes) -> asyncio.Future[Versioned | None]:
        """Requests a row; the future is the row, None if there is none, or the error of the store."""
        return self._reads.submit(partition.name, (partition, key))

    def at_once(self, *rows: RowName) -> list[Versioned | None] | None:
        """Returns a lone caller's rows as of now, and reads the newest row that waits beside others; only if
        `are_at_once`.

        None if the last tick with callers had several: then the caller asks `together`. Each statement takes and gives
        back locks of the file, which costs as much as four rows.

        Args:
            rows: 1 to `ROWS_AT_ONCE_MAX` - 1.

        Raises:
            TarnError: errors of the store.
        """
        if self._shares:
            return None
        if not self._in_tick:
            self._running_loop().call_soon(self._end_tick)
        self._in_tick += 1
        if not self._beside:
            return self._get_at_once(rows)
        beside, _ = self._beside.popitem()
        read, beside.version = self._get_at_once_beside(rows, beside.row)
        beside.sent = self._sent = self._sent + 1
        return read

    async def together(self, *rows: RowName) -> list[Versioned | None]:
        """As `at_once`, by a read that all callers of this tick share; their rows are as of one moment after this
        call."""
        caller = _Caller(rows, self._running_loop().create_future())
        caller.answer.ends_with_tick = True  # type: ignore[attr-defined]  # see `tarn.rpc.server.inflight`
        self._waiting.add(caller)
        return await caller.answer

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def _end_tick(self) -> None:
        self._shares = self._in_tick > 1
        self._in_tick = 0

    def _answer_together(self, callers: list[_Caller]) -> None:
        self._shares = len(callers) > 1
        self._answer(callers)

    def _answer(self, callers: list[_Caller]) -> None:
        """Answers callers by one read; if it is too large or fails, by one for each half of them."""
        rows = {(row[0].name, row[1]): row for each in callers for row in each.rows}
        if len(rows) >= ROWS_AT_ONCE_MAX and len(callers) > 1:
            self._answer_halves(callers)
            return
        try:
            read = self._read_together(rows.values())
        except Exception as error:  # noqa: BLE001 - it is the answer of whoever wanted these rows
            if len(callers) > 1:  # it may be of one caller's rows
                self._answer_halves(callers)
            elif not callers[0].answer.done():
                callers[0].answer.set_exception(error)
            return
        found = dict(zip(rows, read, strict=True))
        for each in callers:
            if not each.answer.done():
                each.answer.set_result([found[row[0].name, row[1]] for row in each.rows])

    def _answer_halves(self, callers: list[_Caller]) -> None:
        half = len(callers) // 2
        self._answer(callers[:half])
        self._answer(callers[half:])

    def _read_together(self, rows: Collection[RowName]) -> list[Versioned | None]:
        """Reads rows, and those that wait beside others, as far as one read takes them."""
        room = ROWS_AT_ONCE_MAX - len(rows)
        beside = [self._beside.popitem()[0] for _ in range(min(room, len(self._beside)))]
        read = self._get_at_once((*rows, *[each.row for each in beside]))
        self._sent += 1
        for each in reversed(beside):
            each.find(self._sent, read.pop())
        return read

    def begin_beside(self, beside: Beside) -> Begun:
        """Requests a register row, for a caller who is about to request one of another partition.

        If the store reads together, the next read takes both, without a future: the result tells how many such reads
        were sent before. Otherwise they are two reads, and neither waits for the other. Pass the result to
        `found_beside`.
        """
        if self._together is not None:
            if len(self._beside) >= _WAITING_MAX:
                self._beside.clear()
            self._beside[beside] = None
            return self._sent
        return self.begin(*beside.row)

    async def found_beside(self, beside: Beside, begun: Begun) -> Versioned | None:
        """Returns the row that `begin_beside` requested, by a read that was sent after that.

        Raises:
            TarnError: errors of the store.
        """
        if not isinstance(begun, int):
            return await begun
        if beside.sent > begun:
            if beside.version is None:
                return None
            if (known := beside.known) is not None and known.predicate == beside.version:
                return known
        self._beside.pop(beside, None)
        found = await self.begin(*beside.row)
        beside.known = found or beside.known
        return found

    async def _read(self, _batch: str, rows: Sequence[RowName]) -> Sequence[Versioned | None]:
        partition = rows[0][0]  # of all rows: a batch is of one
        keys = [key for _, key in rows]
        wanted = list(dict.fromkeys(keys))
        is_register = partition.kind is PartitionKind.REGISTER
        if not self._beside or self._together is None or not is_register:
            found = await self._kv.get_many(partition, wanted)
        else:
            beside, _ = self._beside.popitem()
            self._sent = sent = self._sent + 1
            named = rows if len(wanted) == len(rows) else [(partition, key) for key in wanted]
            found = await self._together([*named, beside.row])
            of_beside = found.pop()
            if sent > beside.sent:  # else a later read has overtaken this one
                beside.find(sent, of_beside)
        if len(wanted) == len(keys):
            return found
        of = dict(zip(wanted, found, strict=True))
        return [of[key] for key in keys]
