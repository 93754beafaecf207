"""Sweep: reads the roots again, and deletes the candidates that are still unreferenced and still old.

Blocks are deleted in batches. Before each one the run makes sure that it still has its lease. A batch of ranges or
metaranges is announced to graveler (`Lease.begin_batch`), so that builders look again at those on which they rely.
If the outcome of its deletion is unknown, its end is never announced: a late deletion could meet a builder.
Metaranges are deleted before the ranges that they name, so that an interruption leaves none without its ranges.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from tarn.aio.backoff import backoff_seconds
from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.core.collection import BATCH_IDS_MAX
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.listing.run import Bools
from tarn.lifecycle.block_names import BlockKind, Listed, paths_of
from tarn.lifecycle.canary import present_of, sample_of
from tarn.lifecycle.joining import split
from tarn.lifecycle.limits import DEFAULT_LIMITS, Limits, check_limits
from tarn.lifecycle.marking import Lake, Run
from tarn.lifecycle.outcomes import Outcome, OutcomeLog, Report, read_report, write_report
from tarn.lifecycle.progress import Progress
from tarn.lifecycle.quarantine import Manifest, read_parts
from tarn.lifecycle.references import References, Roots, collect_references
from tarn.lifecycle.spill import PARTITIONS, Spill

__all__ = ["Lease", "SweepOptions", "sweep"]

_METADATA_DELETE_S: Final = 60.0
_SEND_S: Final = 120.0
"""Deletions of a batch are sent within this time of its begin. With the 15 minutes for which S3 takes a signed request
that is well below the time for which graveler keeps the batch open (`CollectionLimits.batch_us`)."""
_ATTEMPTS: Final = 4
_PAUSE_MAX_S: Final = 10.0
_AT_ONCE: Final = 16


class Lease(Protocol):
    """The right of this run to delete blocks of a repository (docs/design/collection.md)."""

    async def confirm(self) -> None:
        """Returns if the lease was confirmed a short time ago, if necessary by a new call.

        Raises:
            TarnError: COLLECTION_LOST, COLLECTION_HELD, or graveler gives no answer: nothing may be deleted.
        """
        ...

    async def begin_batch(self, block_ids: Sequence[str]) -> None:
        """Announces that these ranges or metaranges, at most `BATCH_IDS_MAX`, may be deleted now.

        Raises:
            TarnError: as `confirm`.
        """
        ...

    async def end_batch(self) -> None:
        """Announces that no deletion of the batch is under way any more."""
        ...


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """How a sweep goes on.

    Attributes:
        batch_blocks: blocks of data in a batch.
        deletes_per_second: the most blocks that are deleted in a second; 0: no limit.
        limits: what may be deleted without a confirmation.
        is_confirmed: whether a person confirmed this run.
        sample: number of live blocks that the canary looks at.
    """

    limits: Limits = DEFAULT_LIMITS
    is_confirmed: bool = False
    batch_blocks: int = 1000
    deletes_per_second: float = 0.0
    sample: int = 200


async def sweep(
    lake: Lake,
    run: Run,
    manifest: Manifest,
    roots: Roots,
    lease: Lease,
    progress: Progress,
    rng: random.Random,
    options: SweepOptions,
) -> Report:
    """Deletes what is unreferenced twice; returns the report, which it also writes.

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
        check_limits(manifest, options.limits)
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
        await log.resume(done)
        progress.begin("read what is in use")
        references = await collect_references(
            roots, lake.blocks, lake.namespace, folder / "references", progress
        )
        sample = await present_of(
            lake.blocks, lake.namespace, sample_of(references, options.sample, rng)
        )
        sweeper = _Sweeper(lake, run, lease, log, progress, rng, options)
        try:
            await sweeper.delete_all(candidates, done, references)
        finally:
            await log.flush()
        progress.begin("look at live blocks", len(sample))
        present = await present_of(lake.blocks, lake.namespace, sample)
        report = Report(
            manifest.run_id,
            run.run_id,
            lake.repository,
            run.cutoff_us,
            lake.clock.now_us(),
            manifest.listed,
            log.tallies,
            len(sample),
            tuple(sorted(set(sample) - set(present))),
        )
        await write_report(lake.blocks, lake.namespace, report)
    return report


@dataclass(frozen=True, slots=True)
class _Sweeper:
    """Deletes in batches."""

    lake: Lake
    run: Run
    lease: Lease
    log: OutcomeLog
    progress: Progress
    rng: random.Random
    options: SweepOptions

    async def delete_all(
        self,
        candidates: dict[BlockKind, Spill],
        done: dict[BlockKind, Spill],
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
                self.log.add(kind, referenced, Outcome.REFERENCED)
                self.progress.done += len(deleted) + len(referenced)
                held = np.concatenate([held, doomed])
                while len(held) >= size:
                    await self._paced(kind, held[:size])
                    held = held[size:]
            if len(held):
                await self._paced(kind, held)

    async def _paced(self, kind: BlockKind, rows: Listed) -> None:
        """Deletes a batch, and then waits so that the rate is kept."""
        began = self.lake.clock.monotonic()
        if kind is BlockKind.DATA:
            await self._delete_data(rows)
        else:
            await self._delete_metadata(kind, rows)
        self.progress.done += len(rows)
        await self.log.flush(always=False)
        if self.options.deletes_per_second:
            due = began + len(rows) / self.options.deletes_per_second
            await self.lake.clock.sleep(max(0.0, due - self.lake.clock.monotonic()))

    async def _delete_metadata(self, kind: BlockKind, rows: Listed) -> None:
        begun = self._times()
        await self.lease.begin_batch([key.tobytes().hex() for key in rows["key"]])
        is_young, is_gone = await self._looked_at(kind, rows)
        doomed = rows[~(is_young | is_gone)]
        # No attempt may outlive this call, and no failure ends the batch: graveler keeps it open for a while.
        async with _deadline(self.lake):
            self._require_recent(begun)  # nothing waits between this look and the request
            await self.lake.blocks.delete_many(
                self.lake.namespace, paths_of(kind, doomed["key"]).to_pylist()
            )
        await self.lease.end_batch()
        self.log.add(kind, rows[is_young], Outcome.RENEWED)
        self.log.add(kind, rows[~is_young], Outcome.DELETED)

    def _times(self) -> tuple[float, float]:
        """Returns two times in seconds: a monotonic clock may stand still while a machine sleeps, and a wall clock may
        be set back."""
        return self.lake.clock.now_us() / 1_000_000, self.lake.clock.monotonic()

    def _require_recent(self, begun: tuple[float, float]) -> None:
        """Refuses to delete by looks that are too old: graveler may keep the batch open no longer.

        Raises:
            TarnError: UNAVAILABLE.
        """
        passed_s = max(now - then for now, then in zip(self._times(), begun, strict=True))
        if passed_s > _SEND_S:
            text = (
                f"this process stood still for {passed_s:.0f} s in a batch of deletions of {self.lake.repository}; "
                "nothing of the batch was deleted. The run ends here and can be resumed"
            )
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)

    async def _delete_data(self, rows: Listed) -> None:
        paths = paths_of(BlockKind.DATA, rows["key"]).to_pylist()
        is_deleted, error = await self._delete(paths)
        self.log.add(BlockKind.DATA, rows[is_deleted], Outcome.DELETED)
        self.log.add(BlockKind.DATA, rows[~is_deleted], Outcome.FAILED)
        if error is not None and len(rows) > 1 and not is_deleted.any():
            raise error  # not one stuck block, but a store that deletes nothing

    async def _looked_at(self, kind: BlockKind, rows: Listed) -> tuple[Bools, Bools]:
        """Returns which blocks a builder has made young since the mark, and which are gone."""
        is_young, is_gone = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        paths = paths_of(kind, rows["key"]).to_pylist()

        async def look(at: int) -> None:
            try:
                info = await self.lake.blocks.stat(BlockKey(self.lake.namespace, paths[at]))
            except BlockNotFoundError:
                is_gone[at] = True
            else:
                is_young[at] = info.mtime_us >= self.run.cutoff_us

        await for_each(range(len(rows)), look, _AT_ONCE)
        return is_young, is_gone

    async def _delete(self, paths: list[str]) -> tuple[Bools, TarnError | None]:
        """Returns which blocks were deleted, and the last error of the others."""
        is_deleted = np.zeros(len(paths), np.bool_)
        error: TarnError | None = None
        for attempt in range(_ATTEMPTS):
            await self.lease.confirm()
            try:
                await self.lake.blocks.delete_many(self.lake.namespace, paths)
            except TarnError as failed:
                error = failed
                await self.lake.clock.sleep(backoff_seconds(self.rng, attempt, most_s=_PAUSE_MAX_S))
            else:
                return ~is_deleted, None

        async def delete_one(at: int) -> None:
            nonlocal error
            await self.lease.confirm()
            try:
                await self.lake.blocks.delete_many(self.lake.namespace, [paths[at]])
                is_deleted[at] = True
            except TarnError as failed:
                error = failed

        # One block that cannot be deleted must not keep the others.
        await for_each(range(len(paths)), delete_one, _AT_ONCE)
        return is_deleted, error


@asynccontextmanager
async def _deadline(lake: Lake) -> AsyncIterator[None]:
    """Ends a deletion that takes too long, as one of unknown outcome."""
    try:
        async with asyncio.timeout(_METADATA_DELETE_S):
            yield
    except TimeoutError as error:
        text = (
            f"the block store of {lake.repository} did not answer a deletion within {_METADATA_DELETE_S:.0f} s; "
            "the run ends here and can be resumed"
        )
        raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, text) from error
