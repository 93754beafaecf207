"""Group writes: a thread that turns queued writes into transactions.

It takes everything that is queued, up to a bound, and writes it in one transaction, under the lock on which
the writers of all processes queue. A write that fails by itself (a lost compare-and-set) changes nothing and
does not affect the rest of its batch. A sqlite error fails the whole batch: it is rolled back, or its
outcome is unknown if COMMIT itself failed (see failures.py).

After a COMMIT of unknown outcome, its frames may lie in the log, invisible, until the next transaction
overwrites them. So the writer *fences*: it writes a counter in their place. Until the fence has succeeded,
`unsettled` is true, nothing else is written, and no read may claim to settle the outcome.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from tarn.core.errors import TarnError
from tarn.kv.embedded import failures, sql
from tarn.kv.embedded.actions import Action
from tarn.kv.embedded.database import Database
from tarn.kv.embedded.partitions import PartitionIds
from tarn.kv.embedded.transaction import KnownVersions, Places, Transaction, Versions
from tarn.kv.port import OutcomeUnknownError
from tarn.telemetry.calls import CallMeter

__all__ = ["TransactionWriter", "EmbeddedLimits", "Ticket"]

_LOG_WAIT_MS = 200  # wait for readers when the log must be emptied; they finish within a few ms
_LOG_CHECKS = 8  # how often the log's size is checked while `log_bytes_max` bytes are written
_TRANSACTION_LOG_BYTES = 64 << 10  # the pages that a small transaction adds to the log


@dataclass(frozen=True, slots=True)
class EmbeddedLimits:
    """Bounds of one process's store, in bytes.

    Attributes:
        queue_bytes_max: writes that wait; further writes are refused as OVERLOADED.
        transaction_bytes_max: one transaction; other processes wait while it is written.
        log_bytes_max: the write-ahead log. When it grows larger, the writer waits for readers and empties it.
    """

    queue_bytes_max: int = 32 << 20
    transaction_bytes_max: int = 2 << 20
    log_bytes_max: int = 64 << 20


class Ticket:
    """A queued write and its answer. The thread fills in the answer before the loop reads it.

    Attributes:
        meter: measures it; None: nothing does.
        began: when it was queued, by the clock of `meter`.
    """

    __slots__ = ("action", "began", "error", "future", "meter", "result", "size_bytes")

    def __init__(
        self, action: Action[object], future: asyncio.Future[Any], meter: CallMeter | None = None
    ) -> None:
        self.action = action
        self.meter = meter
        self.began = 0.0
        self.future = future
        self.size_bytes = action.size_bytes
        self.result: object = None
        self.error: TarnError | None = None


class TransactionWriter:
    """Writes tickets until the queue ends. `run` is the body of a thread.

    Args:
        database: this object uses and closes its writer connection and lock.
        limits: see `EmbeddedLimits`.
        turns: lists of tickets to write, in order; None ends the queue.
        answer: called with each ticket exactly once, after its `result` or `error` is set.

    Attributes:
        unsettled: a failed COMMIT may still take effect. Only the thread writes it.
    """

    def __init__(
        self,
        database: Database,
        limits: EmbeddedLimits,
        turns: SimpleQueue[list[Ticket] | None],
        answer: Callable[[list[Ticket]], None],
    ) -> None:
        self.unsettled = False
        self._limits = limits
        self._turns = turns
        self._answer = answer
        self._lock = database.lock
        self._connection = database.writer
        self._partitions = PartitionIds(database.writer)
        self._versions = Versions(database.opening)
        self._places = Places(database.writer)
        self._known = KnownVersions()
        self._log_path = Path(f"{database.path}-wal")
        self._log_bytes_bound = limits.log_bytes_max
        self._unchecked_bytes = 0
        self._ended = False
        self._backlog: deque[Ticket] = deque()
        self._batch: list[Ticket] = []

    def run(self) -> None:
        """Writes until the end of the queue, then closes the connection."""
        try:
            while self._fill_backlog():
                self._take_batch()
                if self._write(self._batch):
                    self._empty_log()
                self._answer(self._batch)
                self._batch = []
                self._bound_log()
        finally:
            self._abandon()
            with self._lock:  # the last connection that closes empties the log
                self._connection.close()
            self._lock.close()

    def _fill_backlog(self) -> bool:
        """Takes everything that is queued; waits if there is nothing. False at the end of the queue."""
        while not self._ended:
            try:
                turn = self._turns.get(block=not self._backlog)
            except Empty:
                break
            if turn is None:
                self._ended = True
            else:
                self._backlog.extend(turn)
        return bool(self._backlog)

    def _take_batch(self) -> None:
        size_bytes = 0
        while self._backlog:
            size_bytes += self._backlog[0].size_bytes
            if self._batch and size_bytes > self._limits.transaction_bytes_max:
                break
            self._batch.append(self._backlog.popleft())
        self._unchecked_bytes += size_bytes + _TRANSACTION_LOG_BYTES

    def _write(self, batch: list[Ticket]) -> bool:
        """Writes one transaction and sets the answer of each ticket. True if the log is to be emptied."""
        with self._lock:
            try:
                if self.unsettled:
                    self._fence()
                self._connection.execute(sql.BEGIN_WRITE)
                transaction = Transaction(
                    self._connection,
                    self._partitions,
                    self._versions,
                    self._places,
                    self._known,
                )
                for ticket in batch:
                    try:
                        ticket.result = ticket.action.apply(transaction)
                    except TarnError as error:
                        ticket.error = error
                transaction.flush()
            except sqlite3.Error as error:
                self._roll_back()
                for ticket in batch:
                    ticket.error = failures.rolled_back_error(error)
                return False
            try:
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                self._roll_back()
                self._fail_commit(batch, error)
                return False
        return transaction.log_trim_due

    def _fail_commit(self, batch: list[Ticket], error: sqlite3.Error) -> None:
        for ticket in batch:
            # A ticket that had failed wrote nothing, but it may have seen the write of another ticket of the
            # batch, so its answer is no longer valid either.
            applied = ticket.error is None
            ticket.error = (
                failures.commit_error(error) if applied else failures.rolled_back_error(error)
            )
            self.unsettled |= isinstance(ticket.error, OutcomeUnknownError)
        if self.unsettled:
            with suppress(sqlite3.Error):  # retried before the next transaction
                self._fence()

    def _fence(self) -> None:
        self._connection.execute(sql.FENCE)
        self.unsettled = False

    def _roll_back(self) -> None:
        self._partitions.forget()
        self._places.forget()
        self._known.forget()
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # if this fails, the next BEGIN fails and reports it
                self._connection.execute("ROLLBACK")

    def _bound_log(self) -> None:
        """Empties the write-ahead log if it has grown too long.

        sqlite's own checkpoints run inside COMMIT and do not wait for readers. A reader at the wrong moment
        makes the next transaction append to the log instead of starting it over, and with many readers the
        log may keep growing.
        """
        if self._unchecked_bytes >= self._limits.log_bytes_max // _LOG_CHECKS:
            self._unchecked_bytes = 0
            if self._log_bytes() > self._log_bytes_bound:
                self._empty_log()

    def _empty_log(self) -> None:
        with self._lock, suppress(sqlite3.Error):
            for statement in sql.empty_log(_LOG_WAIT_MS):
                self._connection.execute(statement).fetchall()
        # An old snapshot may stay open for long (a shell, a backup): do not retry constantly.
        self._log_bytes_bound = max(self._limits.log_bytes_max, self._log_bytes() * 5 // 4)

    def _log_bytes(self) -> int:
        try:
            return self._log_path.stat().st_size
        except OSError:
            return 0

    def _abandon(self) -> None:
        """Answers the remaining tickets if the thread has failed; after an orderly end there are none."""
        for ticket in self._batch:
            ticket.error = OutcomeUnknownError("the writer thread failed; restart the process")
        for ticket in self._backlog:
            ticket.error = failures.not_begun_error("the writer thread failed; restart the process")
        self._answer([*self._batch, *self._backlog])
