"""Reads of single rows, each sent after it was requested; those of one tick and partition are one read of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from tarn.aio.batcher import Batcher, TickBatch
from tarn.aio.task_set import TaskSet
from tarn.gate.permits import Begun
from tarn.kv.port import (
    ROWS_AT_ONCE_MAX,
    Kv,
    Partition,
    ReadsAtOnce,
    ReadsTogether,
    RowName,
    Versioned,
)

__all__ = ["Beside", "FreshReads"]

_WAITING_MAX = 1_000
"""Rows that wait for a read of another partition. Beyond it they are read alone: perhaps no request reads there."""


class Beside:
    """A row that callers need together with one of another partition.

    Attributes:
        row: its name.
        sent: the number of the newest read that has found it beside others; 0 for none.
        found: what that read found.
    """

    __slots__ = ("found", "row", "sent")

    def __init__(self, row: RowName) -> None:
        self.row = row
        self.sent = 0
        self.found: Versioned | None = None


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
        self._get_at_once = kv.get_at_once if isinstance(kv, ReadsAtOnce) else None
        self.are_at_once = self._get_at_once is not None
        # By the name of a partition: hashing the partition itself costs a call.
        self._reads = Batcher[str, RowName, Versioned | None](self._read, tasks)
        self._beside: dict[str, Beside] = {}
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
        """Returns a lone caller's rows as of now, and reads the row that waits beside the first one; only if
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
        return self._read_at_once(rows, (rows[0][0].name,))

    async def together(self, *rows: RowName) -> list[Versioned | None]:
        """As `at_once`, by a read that all callers of this tick share; their rows are as of one moment after this
        call."""
        caller = _Caller(rows, self._running_loop().create_future())
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
            partitions = dict.fromkeys(name for name, _ in rows)
            read = self._read_at_once(tuple(rows.values()), partitions)
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

    def _read_at_once(
        self, rows: tuple[RowName, ...], partitions: Iterable[str]
    ) -> list[Versioned | None]:
        """Reads rows, and those that wait beside rows of some partitions, as far as one read takes them."""
        assert self._get_at_once is not None, "the store reads at once"
        if not self._beside:
            return self._get_at_once(rows)
        found = [each for name in partitions if (each := self._beside.pop(name, None)) is not None]
        beside = found[: ROWS_AT_ONCE_MAX - len(rows)]  # the others are read alone
        self._sent = sent = self._sent + 1
        read = self._get_at_once((*rows, *[each.row for each in beside]))
        for each in reversed(beside):
            each.sent, each.found = sent, read.pop()
        return read

    def begin_beside(self, beside: Beside, partition: Partition) -> Begun:
        """Requests a row, for a caller who is about to request one of another partition; both are register partitions.

        If the store reads together, the next read of that partition reads both, without a future: the result tells how
        many such reads were sent before. Otherwise they are two reads, and neither waits for the other. Pass the result
        to `found_beside`.
        """
        if self._together is None:
            return self.begin(*beside.row)
        if len(self._beside) >= _WAITING_MAX:
            self._beside.clear()
        self._beside[partition.name] = beside  # another one that waits there is read alone
        return self._sent

    async def found_beside(self, beside: Beside, begun: Begun) -> Versioned | None:
        """Returns the row that `begin_beside` requested, by a read that was sent after that.

        Raises:
            TarnError: errors of the store.
        """
        if not isinstance(begun, int):
            return await begun
        if beside.sent > begun:
            return beside.found
        return await self.begin(*beside.row)

    async def _read(self, batch: str, rows: Sequence[RowName]) -> Sequence[Versioned | None]:
        partition = rows[0][0]  # of all rows: a batch is of one
        keys = [key for _, key in rows]
        wanted = list(dict.fromkeys(keys))
        beside = self._beside.pop(batch, None)
        if beside is None or self._together is None:
            found = await self._kv.get_many(partition, wanted)
        else:
            self._sent = sent = self._sent + 1
            named = rows if len(wanted) == len(rows) else [(partition, key) for key in wanted]
            found = await self._together([*named, beside.row])
            of_beside = found.pop()
            if sent > beside.sent:  # else a later read has overtaken this one
                beside.sent, beside.found = sent, of_beside
        if len(wanted) == len(keys):
            return found
        of = dict(zip(wanted, found, strict=True))
        return [of[key] for key in keys]
