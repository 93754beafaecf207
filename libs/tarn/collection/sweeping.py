"""Sweep: reads the roots again, and deletes the candidates that are still unreferenced and still old.

Blocks are deleted in batches (`deleting.py`). Metaranges are deleted before the ranges that they name, so that an
interruption leaves none without its ranges.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tarn.collection.block_names import BlockKind, Listed
from tarn.collection.canary import Sample, lost_of, sample_of, taken
from tarn.collection.deleting import Deleter, Lease
from tarn.collection.joining import split
from tarn.collection.limits import DEFAULT_LIMITS, Limits, check_limits
from tarn.collection.marking import CollectionRun, Lake
from tarn.collection.outcomes import Outcome, OutcomeLog, Report, read_report, write_report
from tarn.collection.progress import CollectionProgress
from tarn.collection.quarantine import Manifest, Tally, read_parts
from tarn.collection.references import References, Roots, collect_references
from tarn.collection.spill import PARTITIONS, Spill
from tarn.core.collection import BATCH_IDS_MAX
from tarn.core.errors import Reason, TarnError

__all__ = ["SweepOptions", "sweep", "swept_report"]


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """How a sweep goes on.

    Attributes:
        batch_blocks: blocks of data in a batch.
        deletes_per_second: the most blocks that are deleted in a second; 0: no limit.
        limits: the most that may be deleted without a confirmation.
        last: the candidates of the last complete sweep, to which limits compare; None: there was none.
        is_confirmed: whether a person confirmed this run.
        sample: number of live blocks of data that the canary reads.
    """

    limits: Limits = DEFAULT_LIMITS
    last: Tally | None = None
    is_confirmed: bool = False
    batch_blocks: int = 1000
    deletes_per_second: float = 0.0
    sample: int = 200


async def sweep(
    lake: Lake,
    run: CollectionRun,
    manifest: Manifest,
    roots: Roots,
    lease: Lease,
    progress: CollectionProgress,
    rng: random.Random,
    options: SweepOptions,
) -> Report:
    """Deletes the candidates that are still unreferenced; returns the report, which it also writes.

    An interrupted sweep is resumed by another call. Blocks that are gone already count as deleted. The caller looks at
    `Report.missing`.

    Raises:
        TarnError: FAILED_PRECONDITION if the run exceeds the limits and was not confirmed. CORRUPT if a file of
            the run or a listing is missing or damaged. The errors
            of `Lease`. The error of the block store if it deletes nothing of a whole batch of data, or not all of a
            batch of metadata.
    """
    ended = await read_report(lake.blocks, lake.namespace, manifest.run_id)
    if ended is not None:  # the sweep ended, and only its last answer was lost
        return ended
    if not options.is_confirmed:
        check_limits(manifest, options.limits, options.last)
    with tempfile.TemporaryDirectory(prefix="tarn-gc-", dir=lake.folder) as name:
        folder = Path(name)
        progress.begin("read the quarantine")
        candidates = {
            kind: Spill(folder / f"candidates-{kind.value}", kind.listed_dtype)
            for kind in BlockKind
        }
        for kind in BlockKind:
            async for rows in read_parts(lake.blocks, lake.namespace, manifest, kind):
                candidates[kind].add(rows)
        log = OutcomeLog(lake.blocks, lake.namespace, manifest.run_id, run.attempt)
        done = {kind: Spill(folder / f"done-{kind.value}", kind.listed_dtype) for kind in BlockKind}
        noted = {
            kind: Spill(folder / f"noted-{kind.value}", kind.listed_dtype) for kind in BlockKind
        }
        await log.resume(done, noted)
        progress.begin("read the roots")
        references = await collect_references(
            roots, lake.blocks, lake.namespace, folder / "references", progress
        )
        sample = await taken(
            lake.blocks, lake.namespace, sample_of(references, options.sample, rng)
        )
        sweeper = _Sweeper(lake, run, lease, log, progress, rng, options)
        try:
            await sweeper.delete_all(candidates, done, noted, references)
        finally:
            await log.flush()
        progress.begin("read live blocks again", len(sample))
        return await swept_report(lake, run, lease, manifest, log, sample)


async def swept_report(
    lake: Lake,
    run: CollectionRun,
    lease: Lease,
    manifest: Manifest,
    log: OutcomeLog,
    sample: Sample,
) -> Report:
    """Reads the canary's live blocks again, and returns the report of an ended sweep, which it also writes.

    Raises:
        TarnError: COLLECTION_LOST: blocks of the canary are gone, but the lease has ended. Since then others may have
            deleted them rightly. The errors of the block store.
    """
    missing = await lost_of(lake.blocks, lake.namespace, sample)
    if missing:
        await _require_lease(lease)
    report = Report(
        manifest.run_id,
        run.run_id,
        lake.repository,
        run.cutoff_us,
        lake.clock.now_us(),
        manifest.listed,
        log.tallies,
        len(sample),
        missing,
    )
    await write_report(lake.blocks, lake.namespace, report)
    return report


async def _require_lease(lease: Lease) -> None:
    """Raises if the lease has certainly ended. With a hold, or without an answer, a loss is told."""
    try:
        await lease.renew()
    except TarnError as error:
        if error.reason is Reason.COLLECTION_LOST:
            raise


@dataclass(frozen=True, slots=True)
class _Sweeper:
    """Deletes in batches."""

    lake: Lake
    run: CollectionRun
    lease: Lease
    log: OutcomeLog
    progress: CollectionProgress
    rng: random.Random
    options: SweepOptions

    async def delete_all(
        self,
        candidates: dict[BlockKind, Spill],
        done: dict[BlockKind, Spill],
        noted: dict[BlockKind, Spill],
        references: References,
    ) -> None:
        self.progress.begin("delete", sum(spill.count for spill in candidates.values()))
        for kind in BlockKind:
            size = self.options.batch_blocks if kind is BlockKind.DATA else BATCH_IDS_MAX
            held: Listed = np.zeros(0, kind.listed_dtype)
            for number in range(PARTITIONS):
                rows = candidates[kind].partition(number)
                left, deleted = split(kind, rows, done[kind].partition(number)["key"])
                doomed, referenced = split(kind, left, references.partition(kind, number))
                self.log.count(kind, deleted, Outcome.DELETED)
                told, again = split(kind, referenced, noted[kind].partition(number)["key"])
                self.log.count(kind, again, Outcome.REFERENCED)
                self.log.add(kind, told, Outcome.REFERENCED)
                self.progress.done += len(deleted) + len(referenced)
                held = np.concatenate([held, doomed])
                while len(held) >= size:
                    await self._paced(kind, held[:size])
                    held = held[size:]
            if len(held):
                await self._paced(kind, held)

    async def _paced(self, kind: BlockKind, rows: Listed) -> None:
        """Deletes a batch, and then waits so that the rate is kept."""
        lake, clock = self.lake, self.lake.clock
        deleter = Deleter(lake.blocks, lake.namespace, self.log, clock, self.rng)
        began = clock.monotonic()
        if kind is BlockKind.DATA:
            await deleter.delete_data(rows, self.lease.confirm)
        else:
            await deleter.delete_metadata(kind, rows, self.lease, self.run.cutoff_us)
        self.progress.done += len(rows)
        await self.log.flush(always=False)
        if self.options.deletes_per_second:
            due = began + len(rows) / self.options.deletes_per_second
            await clock.sleep(max(0.0, due - clock.monotonic()))
