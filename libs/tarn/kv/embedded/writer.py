"""The event loop's side of writing: a bounded queue that is handed to the writer thread once per tick.

All writes of one tick of the loop are handed over as one list (`TickBatch`) and answered with one call into the
loop. Under load the batches grow by themselves; when idle, no write waits. There is no timer.
"""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue
from typing import TypeVar

from tarn.aio.batcher import TickBatch
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.embedded.actions import Action
from tarn.kv.embedded.database import Database
from tarn.kv.embedded.transaction_writer import EmbeddedLimits, Ticket, TransactionWriter
from tarn.kv.limits import closed_error
from tarn.telemetry.calls import COUNTED_TOGETHER, CallMeter
from tarn.telemetry.meters import Histogram

__all__ = ["Writer"]

ResultT = TypeVar("ResultT")


class Writer:
    """Queues writes and answers them. Belongs to the thread of the running event loop.

    Attributes:
        sizes: gets the number of writes of each transaction; None: nothing does.

    Args:
        database: its writer connection and lock are given to the `TransactionWriter`.
        limits: see `EmbeddedLimits`.
    """

    def __init__(self, database: Database, limits: EmbeddedLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        # Invariant: the sum of `size_bytes` over all tickets that have no answer yet.
        self._queued_bytes = 0
        self._closing = False
        self.sizes: Histogram | None = None
        self._exited = asyncio.Event()
        self._ticks: SimpleQueue[list[Ticket] | None] = SimpleQueue()
        self._batch = TickBatch[Ticket](self._ticks.put)
        self._transaction_writer = TransactionWriter(
            database, limits, self._ticks, self._answer_soon
        )
        # A daemon thread: an interpreter that ends without close() is like a crash, which loses nothing.
        self._thread = threading.Thread(target=self._run, name="tarn-kv-committer", daemon=True)
        self._thread.start()

    @property
    def unsettled(self) -> bool:
        """Whether a failed transaction may still take effect. While it is true, no read may settle it."""
        return self._transaction_writer.unsettled

    def submit(
        self, action: Action[ResultT], meter: CallMeter | None = None
    ) -> asyncio.Future[ResultT]:
        """Queues a write. The future returns when the write is durable, or raises why it is not.

        `meter`: measures it, unless it is refused here.

        Raises:
            TarnError: EXHAUSTED (OVERLOADED): the queue is full. UNAVAILABLE: the store is closed.
        """
        if self._closing:
            raise closed_error()
        future: asyncio.Future[ResultT] = self._loop.create_future()
        ticket = Ticket(action, future, meter)
        queued_bytes = self._queued_bytes + ticket.size_bytes
        if queued_bytes > self._limits.queue_bytes_max and self._queued_bytes:
            text = f"writes of {self._queued_bytes} bytes are already waiting; try again later"
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
        self._queued_bytes = queued_bytes
        if meter is not None:
            meter.begun += 1
            ticket.began = meter.now()
        self._batch.add(ticket)
        return future

    async def close(self) -> None:
        """Writes the queued actions, then ends the thread and closes its connection. Idempotent."""
        if not self._closing:
            self._closing = True
            self._batch.flush()
            self._ticks.put(None)
        await self._exited.wait()
        self._thread.join()

    def _answer(self, tickets: list[Ticket]) -> None:
        if self.sizes is not None and tickets:
            self.sizes.record(len(tickets))
        now = 0.0
        for ticket in tickets:
            self._queued_bytes -= ticket.size_bytes
            meter, future = ticket.meter, ticket.future
            if meter is not None:
                now = now or meter.now()
                meter.ended.append(now - ticket.began)
                if ticket.error is not None:
                    meter.fail(ticket.error)
                if len(meter.ended) >= COUNTED_TOGETHER:
                    meter.duration.count_waiting()
            if future.done():
                continue  # its task was cancelled; the write stays
            if ticket.error is None:
                future.set_result(ticket.result)
            else:
                future.set_exception(ticket.error)

    def _exit(self) -> None:
        self._closing = True  # also when the thread has failed
        self._batch.flush()
        # Handed over after a failed thread looked for the last time.
        while not self._ticks.empty():
            if tickets := self._ticks.get_nowait():
                for ticket in tickets:
                    ticket.error = closed_error()
                self._answer(tickets)
        self._exited.set()

    # The methods below run in the writer thread.

    def _run(self) -> None:
        try:
            self._transaction_writer.run()
        finally:
            self._loop.call_soon_threadsafe(self._exit)

    def _answer_soon(self, tickets: list[Ticket]) -> None:
        self._loop.call_soon_threadsafe(self._answer, tickets)
