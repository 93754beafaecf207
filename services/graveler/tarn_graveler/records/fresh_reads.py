"""Reads of single rows, each sent after it was requested; those of one tick and partition are one read of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tarn.aio.batcher import Batcher
from tarn.aio.task_set import TaskSet
from tarn.gate.permits import Begun
from tarn.kv.port import Kv, Partition, ReadsAtOnce, ReadsTogether, RowName, Versioned

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


class FreshReads:
    """Reads rows of a store together. No request joins a read that was sent before it (`tarn.aio.batcher`).

    Attributes:
        are_at_once: whether the store reads at once, so that sharing a read would cost more than it saves.
    """

    def __init__(self, kv: Kv, tasks: TaskSet) -> None:
        self._kv = kv
        self._together = kv.get_together if isinstance(kv, ReadsTogether) else None
        self._at_once = kv.get_at_once if isinstance(kv, ReadsAtOnce) else None
        self.are_at_once = self._at_once is not None
        # By the name of a partition: hashing the partition itself costs a call.
        self._reads = Batcher[str, RowName, Versioned | None](self._read, tasks)
        self._beside: dict[str, Beside] = {}
        self._sent = 0

    def begin(self, partition: Partition, key: bytes) -> asyncio.Future[Versioned | None]:
        """Requests a row; the future is the row, None if there is none, or the error of the store."""
        return self._reads.submit(partition.name, (partition, key))

    def at_once(self, *rows: RowName) -> list[Versioned | None]:
        """Returns rows as of now, and reads the row that waits beside the first one; only if `are_at_once`.

        Raises:
            TarnError: errors of the store.
        """
        assert self._at_once is not None, "the store reads at once"
        beside = self._beside.pop(rows[0][0].name, None) if self._beside else None
        if beside is None:
            return self._at_once(rows)
        self._sent += 1
        *found, beside.found = self._at_once((*rows, beside.row))
        beside.sent = self._sent
        return found

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
