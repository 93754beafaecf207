"""The compactor: measures branches that seem to be worth a compaction, and has graveler compact them.

It decides by `policy`. The counts of the sensor choose which branches to look at; a measurement, made immediately
before, decides. Graveler itself throttles: the branch record says that a compaction runs, by compare-and-set. So
several compactors may watch one installation. Each waits a random moment before it acts on a branch; the changes that
the first one made reach the others as events, and one that is late gets the answer "another compaction runs" or
"nothing to do". A pause of all compactors is read immediately before each compaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from math import inf

import structlog

from tarn.aio.single_flight import SingleFlight
from tarn.aio.task_set import TaskSet
from tarn.client.compactions import CompactionClient
from tarn.client.staging_events import StagingEventClient
from tarn.core.clock import Clock
from tarn.core.errors import Reason, TarnError
from tarn.gate.service_calls import ServiceCalls
from tarn.telemetry.meters import Meters
from tarn_compactor.counts import BranchKey, Counts
from tarn_compactor.pauses import Pauses
from tarn_compactor.policy import History, Thresholds, excess, pause_after_failures, wait
from tarn_compactor.sensor import Sensor
from tarn_proto.graveler.v1 import compaction_service_pb2 as pb
from tarn_proto.graveler.v1 import staging_event_service_pb2 as event_pb

__all__ = ["Compactor", "Totals", "Work"]

_TICK_SECONDS = 1.0
_SPREAD_SECONDS = 1.0
"""The longest random moment before a compactor acts on a branch that has become due."""
_AGE_SECONDS = 30.0
"""How often all branches are looked at, because they grow older."""
_MEASURE_PAUSE_SECONDS = 0.02
_MEASURE_PAUSE_MOST_SECONDS = 30.0
_MEASURE_TIMEOUT_SECONDS = 60.0
_MEASURED_LATELY_SECONDS = 5.0
"""A measurement up to this old decides, too: a start would otherwise read a branch that is due twice."""
_COMPACT_TIMEOUT_SECONDS = 1800.0
_ROWS_MAX = 100_000
_WORK_MAX = 20_000
_TOLD_MAX = 16
"""Running branches of a report."""

_OUTCOMES = {
    pb.COMPACTION_OUTCOME_COMPACTED: "compacted",
    pb.COMPACTION_OUTCOME_NOTHING_TO_DO: "nothing_to_do",
    pb.COMPACTION_OUTCOME_SUPERSEDED: "superseded",
    pb.COMPACTION_OUTCOME_RUNNING: "running",
}

_GONE = (Reason.REPOSITORY_NOT_FOUND, Reason.BRANCH_NOT_FOUND)
"""A lost file of a listing is "not found", too; but the branch is there, and its compactions fail."""

_log = structlog.get_logger()


@dataclass(slots=True)
class Work:
    """The work of the compactor on a branch.

    Attributes:
        reason: the threshold that the branch exceeds; empty if none.
        due_at: when the compactor may act, on the monotonic clock.
        waits_for: why it is left alone for now; empty if it is not.
        is_running: it is being measured or compacted.
        ended_at: when the last attempt ended.
        last_seconds: how long that took.
        failures: attempts in a row that failed.
        error: of the last attempt; empty if it succeeded.
    """

    reason: str = ""
    due_at: float = 0.0
    waits_for: str = ""
    is_running: bool = False
    ended_at: float = -inf
    last_seconds: float = 0.0
    failures: int = 0
    error: str = ""

    def may_start(self, now: float) -> bool:
        """Returns whether it is time to look at the branch."""
        return not self.is_running and now >= self.due_at


@dataclass(slots=True)
class Totals:
    """The work of this process since its start."""

    compactions: int = 0
    failures: int = 0
    rows_read: int = 0
    rows_written: int = 0
    sealed_tokens: int = 0
    tombstones: int = 0
    seconds: float = 0.0


class Compactor:
    """Compacts branches that exceed a threshold.

    Args:
        counts: the counts of branches.
        sensor: keeps the counts; wakes the compactor.
        compactions: compacts, at any replica of graveler.
        staging: measures, likewise.
        calls: contexts of calls.
        pauses: reads the pause of all compactors.
        limits: when a branch is due.
        concurrency: most compactions at a time.
        clock: time.
        rng: spreads the work of several compactors.
        meters: counts the work.

    Attributes:
        work: branches that are due, or were lately.
        totals: the work so far.
    """

    def __init__(
        self,
        counts: Counts,
        sensor: Sensor,
        compactions: CompactionClient,
        staging: StagingEventClient,
        calls: ServiceCalls,
        pauses: Pauses,
        limits: Thresholds,
        *,
        concurrency: int,
        clock: Clock,
        rng: random.Random,
        meters: Meters,
    ) -> None:
        self._counts = counts
        self._sensor = sensor
        self._compactions = compactions
        self._staging = staging
        self._calls = calls
        self._pauses = pauses
        self._limits = limits
        self._concurrency = concurrency
        self._clock = clock
        self._rng = rng
        self._meters = meters
        # They are shown from the start, so that a rate finds the first change.
        for name in ("rows_read", "rows_written", "sealed_tokens", "tombstones"):
            meters.counter(f"compaction.{name}")
        for outcome in (*_OUTCOMES.values(), "failed"):
            meters.counter("compaction.attempts", outcome=outcome)
        meters.histogram("compaction.duration")
        self._tasks = TaskSet()
        self._measurements: SingleFlight[BranchKey, bool] = SingleFlight()
        self._running = 0
        self._stops = False
        self._looked_at_all = clock.monotonic()
        self._due: dict[BranchKey, None] = {}
        self._listed = (0, 0)
        self.work: dict[BranchKey, Work] = {}
        self.totals = Totals()

    async def run(self) -> None:
        """Works until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._measure_lost())
                group.create_task(self._pauses.run())
                while True:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_TICK_SECONDS):
                            await self._sensor.woken.wait()
                    self._sensor.woken.clear()
                    self.look()
        finally:
            await self._tasks.close()

    def stop(self) -> None:
        """Starts nothing more. It waits for no compaction: graveler finishes one whose caller has left."""
        self._stops = True

    def report(self, compactor_id: str, start_us: int) -> event_pb.CompactorReport:
        """Returns what this compactor does now, for administrators.

        Args:
            compactor_id: names this run of the process.
            start_us: when it started, in Unix microseconds.
        """
        running = [key for key, work in self.work.items() if work.is_running][:_TOLD_MAX]
        report = event_pb.CompactorReport(
            compactor_id=compactor_id,
            branch_count=len(self._counts.known()),
            due_count=len(self._due),
            failing_count=sum(bool(work.failures and work.error) for work in self.work.values()),
            running=[
                event_pb.CompactorWork(repository_id=repository, branch_id=branch)
                for repository, branch in running
            ],
            compactions=self.totals.compactions,
            failures=self.totals.failures,
        )
        report.start_time.FromMicroseconds(start_us)
        return report

    # ---- choosing

    def look(self) -> None:
        """Looks at the branches that changed, and starts what may be started. Without a wait."""
        now = self._clock.monotonic()
        keys = self._counts.take_changed()
        if now - self._looked_at_all >= _AGE_SECONDS:
            self._looked_at_all = now
            self._counts.drop_empty(now)
            self._forget_old_work(now)
            keys = self._counts.known()
        for key in keys:
            self._judge(key, now)
        self._count_listings()
        if self._stops or self._pauses.is_believed or self._running >= self._concurrency:
            return
        ready = [key for key in self._due if self.work[key].may_start(now)]
        ready.sort(key=lambda key: -self._counts.view(key, now).tombstones)
        for key in ready:
            if self._running >= self._concurrency:
                break
            self._start(key, now)

    def _judge(self, key: BranchKey, now: float) -> None:
        """Notes whether a branch is due."""
        reason = excess(self._counts.view(key, now), self._limits)
        work = self.work.get(key)
        if not reason:
            self._due.pop(key, None)
            if work is not None:
                work.reason = work.waits_for = ""
            return
        if work is None:
            if len(self.work) >= _WORK_MAX:
                return  # it is looked at again with all branches
            work = self.work[key] = Work()
        if not work.reason:
            work.due_at = now + self._rng.uniform(0.0, _SPREAD_SECONDS)
        work.reason = reason
        self._due[key] = None

    def _start(self, key: BranchKey, now: float) -> None:
        work = self.work[key]
        history = History(now - work.ended_at, work.last_seconds, work.failures)
        seconds, work.waits_for = wait(self._counts.view(key, now), history, self._limits)
        if seconds:
            work.due_at = now + min(seconds, _AGE_SECONDS)
            return
        work.is_running = True
        self._running += 1
        self._tasks.spawn(self._work(key, work), when_done=lambda _: self._ended(work))

    def _ended(self, work: Work) -> None:
        work.is_running = False
        work.ended_at = self._clock.monotonic()
        self._running -= 1
        self._sensor.woken.set()

    def _forget_old_work(self, now: float) -> None:
        for key, work in list(self.work.items()):
            rest_s = max(self._limits.interval_s, pause_after_failures(work.failures))
            if not work.reason and not work.is_running and now - work.ended_at > rest_s:
                self.work.pop(key)

    def _count_listings(self) -> None:
        """Passes on the counts of listings since the last time."""
        read, returned = self._counts.listed_rows_read, self._counts.listed_rows_returned
        self._meters.counter("listing.rows_read").add(read - self._listed[0])
        self._meters.counter("listing.rows_returned").add(returned - self._listed[1])
        self._listed = (read, returned)

    # ---- working

    async def _work(self, key: BranchKey, work: Work) -> None:
        began = self._clock.monotonic()
        try:
            is_running = await self._is_due(key) and not await self._compact(key)
        except TarnError as error:
            self._calls.failed(error)
            if error.reason in _GONE:
                self._forget(key)
                return
            work.failures += 1
            work.error = error.message
            self.totals.failures += 1
            self._meters.counter("compaction.attempts", outcome="failed").add()
            _log.warning(
                "compaction failed",
                repository=key[0],
                branch=key[1],
                failures=work.failures,
                error=error.message,
            )
        else:
            # Another compactor, or one that died: its mark ends after some minutes. Do not measure again and again.
            work.failures = work.failures + 1 if is_running else 0
            work.error = "another compaction of the branch runs" if is_running else ""
        finally:
            work.last_seconds = self._clock.monotonic() - began

    async def _is_due(self, key: BranchKey) -> bool:
        """Measures a branch; returns whether it exceeds a threshold.

        A measurement that ended at its limit only shows that there are many rows; then the counts decide.
        """
        now = self._clock.monotonic()
        view = self._counts.view(key, now)
        believed, is_truncated = excess(view, self._limits), view.is_truncated
        if not self._counts.is_measured(key, now - _MEASURED_LATELY_SECONDS):
            is_truncated = await self._measure(key)
        self._judge(key, self._clock.monotonic())
        is_due = key in self._due
        return is_due or (is_truncated and bool(believed))

    async def _measure(self, key: BranchKey) -> bool:
        """Measures a branch, one call at a time; returns whether there are more rows than were counted."""
        return await self._measurements.run(key, lambda: self._measure_now(key))

    async def _measure_now(self, key: BranchKey) -> bool:
        call = await self._calls.call(_MEASURE_TIMEOUT_SECONDS)
        self._counts.begin_measurement(key)
        measured = None
        try:
            measured = await self._staging.measure_staging(call, *key, rows_max=_ROWS_MAX)
        finally:
            self._counts.end_measurement(key, measured, self._clock.monotonic())
        self._sensor.measured(key)
        return measured.is_truncated

    async def _compact(self, key: BranchKey) -> bool:
        """Compacts a branch, except in a pause; returns False if another compaction of it runs."""
        if await self._pauses.holds():
            return True
        call = await self._calls.call(_COMPACT_TIMEOUT_SECONDS)
        done = await self._compactions.compact_branch(call, *key, is_background=True)
        outcome = _OUTCOMES.get(done.outcome, "other")
        seconds = done.duration.ToMicroseconds() / 1_000_000
        self._meters.counter("compaction.attempts", outcome=outcome).add()
        if done.outcome != pb.COMPACTION_OUTCOME_COMPACTED:
            _log.info("not compacted", repository=key[0], branch=key[1], outcome=outcome)
            return done.outcome != pb.COMPACTION_OUTCOME_RUNNING
        totals = self.totals
        totals.compactions += 1
        totals.rows_read += done.rows_read
        totals.rows_written += done.rows_written
        totals.sealed_tokens += done.tokens_taken
        totals.tombstones += done.tombstones_removed
        totals.seconds += seconds
        self._meters.histogram("compaction.duration").record(seconds)
        for name, amount in (
            ("compaction.rows_read", done.rows_read),
            ("compaction.rows_written", done.rows_written),
            ("compaction.sealed_tokens", done.tokens_taken),
            ("compaction.tombstones", done.tombstones_removed),
        ):
            self._meters.counter(name).add(amount)
        _log.info(
            "compacted",
            repository=key[0],
            branch=key[1],
            rows_read=done.rows_read,
            rows_written=done.rows_written,
            tombstones=done.tombstones_removed,
            sealed_tokens=done.tokens_taken,
            seconds=round(seconds, 3),
        )
        return True

    def _forget(self, key: BranchKey) -> None:
        """Forgets a branch that does not exist any more."""
        self._counts.forget(key)
        self._due.pop(key, None)
        self.work.pop(key, None)

    async def _measure_lost(self) -> None:
        """Measures branches whose counts were lost, one at a time. One that cannot be measured goes behind all others,
        and the pauses grow while none can.
        """
        failures = 0
        while True:
            key = next(iter(self._counts.unmeasured), None)
            if key is None or self._stops:
                await self._clock.sleep(_TICK_SECONDS / 4)
                continue
            try:
                await self._measure(key)
            except TarnError as error:
                self._calls.failed(error)
                if error.reason in _GONE:
                    self._forget(key)
                    continue
                if not failures:
                    _log.info(
                        "cannot measure", repository=key[0], branch=key[1], error=error.message
                    )
                self._counts.measure_last(key)
                await self._clock.sleep(
                    min(_TICK_SECONDS * 2.0**failures, _MEASURE_PAUSE_MOST_SECONDS)
                )
                failures = min(failures + 1, 10)
            else:
                failures = 0
                self._sensor.woken.set()
            await self._clock.sleep(_MEASURE_PAUSE_SECONDS)
