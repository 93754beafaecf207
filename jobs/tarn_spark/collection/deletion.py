"""Deletes blocks of data on executors, in rounds of some seconds.

Before each round the driver makes sure that it has its lease. A round tells the executors until when they may send
deletions; the blocks that they did not reach come into the next round. So executors need no connection to graveler, and
one that the driver has lost stops by itself. The keys pass through the driver, some 40 bytes for each.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tarn.block.port import BlockStore
from tarn.collection.block_names import BlockKind, Listed
from tarn.collection.deleting import Deleter, Lease
from tarn.collection.outcomes import OutcomeLog
from tarn.collection.progress import CollectionProgress
from tarn.collection.quarantine import Tally
from tarn.collection.sweeping import SweepOptions
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.process.system import SystemClock
from tarn_spark.collection.actions import SparkActions
from tarn_spark.collection.executor import StorePlace, call_with_store
from tarn_spark.collection.tasks import new_attempt

__all__ = ["ChunkResult", "DeleteChunk", "Rounds"]

_TARGET_S: Final = 15.0
"""Length of a round."""
_LIMIT_S: Final = 40.0
"""Executors begin no deletion later than this after the round began. The lease was confirmed at most 60 s before, and
lasts 300 s, so clocks may differ by minutes."""
_ANSWER_S: Final = 300.0
"""Most time after that for the last deletions, and for Spark to repeat the tasks of a lost executor."""
_FIRST_BATCHES: Final = 8
"""Batches of each executor's core in the first round. Blocks that take too long come into the next one."""
_IDLE_MAX: Final = 3
_GROWTH_MAX: Final = 2.0


class _RoundOverError(Exception):
    """No deletion may begin any more."""


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """The outcome of a chunk.

    Attributes:
        done: rows from its begin whose outcome is written; the others may or may not be deleted.
        tallies: of them, by outcome.
        error: kind, reason and text of the error that ended it; None: there was none.
    """

    done: int
    tallies: dict[str, Tally]
    error: tuple[Kind, Reason, str] | None


@dataclass(frozen=True, slots=True)
class DeleteChunk:
    """Deletes blocks of data on an executor. Can be pickled.

    Attributes:
        place: of the block store.
        namespace: of the repository.
        mark_run_id: whose outcomes are written.
        batch_blocks: blocks of one request.
        deletes_per_second: most of this chunk; 0: no limit.
        until_us: no request begins after it, microseconds since the epoch.
    """

    place: StorePlace
    namespace: str
    mark_run_id: str
    batch_blocks: int
    deletes_per_second: float
    until_us: int

    def __call__(self, chunk: bytes) -> ChunkResult:
        """Deletes the blocks of a chunk: the bytes of rows of `BlockKind.DATA.listed_dtype`."""
        rows = np.frombuffer(chunk, BlockKind.DATA.listed_dtype)
        return call_with_store(self.place, lambda blocks: self.delete(blocks, SystemClock(), rows))

    async def delete(self, blocks: BlockStore, clock: Clock, rows: Listed) -> ChunkResult:
        """Deletes some blocks, batch by batch, until the time is over or an error ends it."""
        from random import SystemRandom

        async def confirm() -> None:
            if clock.now_us() >= self.until_us:
                raise _RoundOverError

        log = OutcomeLog(blocks, self.namespace, self.mark_run_id, new_attempt())
        deleter = Deleter(blocks, self.namespace, log, clock, SystemRandom())
        done, error = 0, None
        try:
            while done < len(rows):
                began = clock.monotonic()
                batch = rows[done : done + self.batch_blocks]
                await deleter.delete_data(batch, confirm)
                done += len(batch)
                if self.deletes_per_second:
                    due = began + len(batch) / self.deletes_per_second
                    await clock.sleep(max(0.0, due - clock.monotonic()))
        except _RoundOverError:
            pass
        except TarnError as failed:
            error = (failed.kind, failed.reason, failed.message)
        await log.flush()
        return ChunkResult(done, log.tallies[BlockKind.DATA.value], error)


@dataclass(slots=True)
class Rounds:
    """The rounds of one sweep.

    Attributes:
        actions: runs jobs.
        context: the SparkContext.
        place: of the block store.
        namespace: of the repository.
        mark_run_id: the mark.
        options: batch and rate.
        clock: the clock of this machine, as the executors have theirs.
        lease: of the run.
        log: counts the outcomes, which executors write.
        progress: counts the blocks.
        rows: of the next round.
        idle: rounds in which nothing was done, one after the other.
    """

    actions: SparkActions
    context: Any
    place: StorePlace
    namespace: str
    mark_run_id: str
    options: SweepOptions
    clock: Clock
    lease: Lease
    log: OutcomeLog
    progress: CollectionProgress
    rows: int = 0
    idle: int = 0

    def __post_init__(self) -> None:
        self.rows = self._within_rate(_FIRST_BATCHES * self._slots * self.options.batch_blocks)

    @property
    def _slots(self) -> int:
        return int(self.context.defaultParallelism)

    def _within_rate(self, rows: float) -> int:
        rate = self.options.deletes_per_second
        return max(1, int(min(rows, rate * _TARGET_S) if rate else rows))

    async def delete(self, rows: Listed) -> Listed:
        """Deletes the first `self.rows` of the blocks; returns those that are left.

        Raises:
            TarnError: as `Lease.confirm`; the error of an executor; UNAVAILABLE if executors do nothing.
        """
        taken, left = rows[: self.rows], rows[self.rows :]
        chunks = self._chunks(taken)
        await self.lease.confirm()
        began = self.clock.monotonic()
        work = DeleteChunk(
            self.place,
            self.namespace,
            self.mark_run_id,
            self.options.batch_blocks,
            self.options.deletes_per_second / len(chunks),
            self.clock.now_us() + int(_LIMIT_S * 1e6),
        )
        rdd = self.context.parallelize([chunk.tobytes() for chunk in chunks], len(chunks))
        results = await self._answered(lambda: rdd.map(work).collect())
        done = 0
        for chunk, result in zip(chunks, results, strict=True):
            done += result.done
            left = np.concatenate([left, chunk[result.done :]])
            for outcome, tally in result.tallies.items():
                own = self.log.tallies[BlockKind.DATA.value][outcome]
                own.add(tally.count, tally.size_bytes)
        self.progress.done += done
        for result in results:
            if result.error is not None:
                raise TarnError(*result.error)
        self._adapt(done, self.clock.monotonic() - began)
        return left

    def _chunks(self, rows: Listed) -> list[Listed]:
        """Returns the rows in as many chunks as run at the same time; none has less than a batch, but the last."""
        batches = math.ceil(len(rows) / self.options.batch_blocks)
        count = min(self._slots, batches)
        size = math.ceil(batches / count) * self.options.batch_blocks
        return [rows[start : start + size] for start in range(0, len(rows), size)]

    async def _answered(self, action: Any) -> list[ChunkResult]:  # noqa: ANN401 - Spark has no types
        try:
            async with asyncio.timeout(_LIMIT_S + _ANSWER_S):
                return await self.actions.run_silently("delete", action)
        except TimeoutError as error:
            text = (
                f"the executors of Spark did not end a round of deletions of {self.namespace} within "
                f"{_LIMIT_S + _ANSWER_S:.0f} s; the run ends here and can be resumed; see the log of Spark"
            )
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error

    def _adapt(self, done: int, seconds: float) -> None:
        """Chooses the size of the next round from the result of this one."""
        self.idle = 0 if done else self.idle + 1
        if self.idle >= _IDLE_MAX:
            text = (
                f"the executors of Spark deleted nothing of {self.namespace} in {_IDLE_MAX} rounds of "
                f"{_LIMIT_S:.0f} s: check that they have free cores, and that their clocks are right; the run ends "
                "here and can be resumed"
            )
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
        fitting = done / max(seconds, 1e-3) * _TARGET_S
        least = self._slots * self.options.batch_blocks
        self.rows = self._within_rate(min(max(fitting, least), self.rows * _GROWTH_MAX))
