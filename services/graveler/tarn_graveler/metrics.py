"""Metrics of a replica that its parts keep themselves: the cleaner, the cache of ranges, the heavy process."""

from __future__ import annotations

from functools import partial

from tarn.block.committed import Committed
from tarn.core.clock import Clock
from tarn.telemetry.meters import Meters
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.building import Builder
from tarn_graveler.branch.private_rows import ReplacedRows
from tarn_graveler.collection.online_deletion import OUTCOMES
from tarn_graveler.heavy.builder import ProcessBuilder
from tarn_graveler.journal.draining import DrainProgress
from tarn_graveler.journal.pressure import Pressure
from tarn_graveler.reads.journal import OUTCOMES as READ_OUTCOMES
from tarn_graveler.reads.journal import ReadJournal

__all__ = ["register_replica"]


def register_replica(
    meters: Meters,
    clock: Clock,
    graveler: Graveler,
    committed: Committed,
    builder: Builder | None,
) -> None:
    """Registers the gauges and counters of a replica; see `tarn.telemetry.metric_table`."""
    progress, cache = graveler.cleaner.progress, committed.cache

    def lag() -> float:
        done_us = progress.done_before_us
        return (clock.now_us() - done_us) / 1_000_000 if done_us else 0.0

    meters.sample("cleanup.lag", lag)
    meters.sample("cleanup.drops", lambda: progress.drops)
    meters.sample("cleanup.failed", lambda: progress.failed_passes)
    meters.sample("range.lookups", lambda: cache.hits, outcome="hit")
    meters.sample("range.lookups", lambda: cache.loads, outcome="load")
    meters.sample("range.lookups", lambda: cache.fetches, outcome="fetch")
    counts = graveler.expiring.progress
    meters.sample("branches.expired", lambda: counts.deleted, outcome="deleted")
    meters.sample("branches.expired", lambda: counts.kept, outcome="kept")
    meters.sample("uploads.abandoned", lambda: graveler.uploads.abandoned_count)
    records = graveler.repositories
    meters.sample("cache.lookups", lambda: records.hits, cache="record", outcome="hit")
    meters.sample("cache.lookups", lambda: records.misses, cache="record", outcome="miss")
    drained = DrainProgress() if graveler.drain is None else graveler.drain.progress
    meters.sample("journal.lag", lambda: drained.greatest_lag_us(clock.now_us()) / 1_000_000)
    meters.sample("journal.failed", lambda: drained.failed_passes)
    pressure = Pressure(clock, 0) if graveler.drain is None else graveler.drain.pressure
    meters.sample("journal.undrained", lambda: pressure.total)
    meters.sample("journal.undrained.limit", lambda: pressure.size_max)
    meters.sample("journal.damaged", lambda: sum(drained.damaged.values()))
    queue = None if graveler.online is None else graveler.online.queue
    meters.sample("online.waiting", lambda: 0 if queue is None else len(queue))
    for outcome in OUTCOMES:
        meters.sample("online.rows", partial(_count, queue, outcome), outcome=outcome)
    journal = graveler.journal
    meters.sample("reads.waiting", lambda: 0 if journal is None else journal.waiting)
    for outcome in READ_OUTCOMES:
        meters.sample("reads.objects", partial(_count, journal, outcome), outcome=outcome)
    if isinstance(builder, ProcessBuilder):
        meters.sample("heavy.running", lambda: builder.processes)
        meters.sample("heavy.builds", lambda: builder.running, state="running")
        meters.sample("heavy.builds", lambda: builder.waiting, state="waiting")
        meters.sample("heavy.starts", lambda: builder.starts)
        meters.sample("heavy.deaths", lambda: builder.deaths)


def _count(part: ReplacedRows | ReadJournal | None, outcome: str) -> int:
    return 0 if part is None else part.outcomes[outcome]
