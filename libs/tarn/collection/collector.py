"""Collections of one repository: decides what to do next, does it under a lease, and tells graveler the end."""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tarn.block.port import BlockStore
from tarn.client.collections import CollectionClient
from tarn.collection.block_names import BlockKind
from tarn.collection.engine import Engine
from tarn.collection.expiring import Expired, expire
from tarn.collection.graveler_run import GravelerRun
from tarn.collection.kept_objects import KeptObjects
from tarn.collection.marking import CollectionRun, Lake
from tarn.collection.other_store import in_this_store
from tarn.collection.outcomes import Outcome, Report
from tarn.collection.progress import CollectionProgress
from tarn.collection.quarantine import Manifest, Tally, forget_runs, read_manifest, run_folder
from tarn.collection.sweeping import SweepOptions
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import collection_service_pb2 as pb

__all__ = ["Collector", "Replaced", "Step", "needs_new_mark", "next_step"]

_HOLD_AFTER_LOSS_S: Final = 7 * 86_400
_END_S: Final = 5.0
"""A person who stops a run waits for no longer than this for the answer that it has ended."""
_CONFIRM_US: Final = 7 * 86_400_000_000
"""A mark that exceeds a limit waits this long after its grace time for its confirmation; then it is replaced."""
_KEEP_FILES_US: Final = 365 * 86_400_000_000
"""The files of a run are kept this long, because they prove which blocks were deleted."""


class Step(enum.Enum):
    """A step of a collection."""

    MARK = "mark"
    SWEEP = "sweep"
    PURGE = "purge"
    """Of the data of deleted repositories."""
    WAIT = "wait"
    """The grace time of a mark is not over."""


def next_step(record: pb.Collection, now_us: int) -> Step:
    """Returns the next step: sweep a mark whose grace time is over; mark if there is none to sweep."""
    if not record.mark_run_id:
        return Step.MARK
    if record.sweep_not_before_time.ToMicroseconds() > now_us:
        return Step.WAIT
    return Step.SWEEP


def needs_new_mark(record: pb.Collection, error: TarnError, now_us: int) -> bool:
    """Whether a sweep failed in a way that no later sweep of this mark can mend, so that another mark is due.

    Its files are damaged or missing, or it has waited for a confirmation for a week.
    """
    mark_run_id = record.mark_run_id
    is_about_mark = error.metadata.get("run_id") == mark_run_id
    if error.reason is Reason.PRECONDITION_FAILED:
        waited_us = now_us - record.sweep_not_before_time.ToMicroseconds()
        return is_about_mark and waited_us >= _CONFIRM_US
    is_file = error.metadata.get("path", "").startswith(run_folder(mark_run_id))
    return error.kind is Kind.CORRUPT and (is_about_mark or is_file)


@dataclass(frozen=True, slots=True)
class Replaced:
    """A mark that could not be swept, and the one that was made instead.

    Attributes:
        mark_run_id: the mark that was given up.
        reason: why.
        manifest: of the new mark.
    """

    mark_run_id: str
    reason: str
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Collector:
    """Collects repositories of one installation.

    Attributes:
        engine: finds and deletes.
        client: of graveler's collections.
        call: makes the context of each call.
        blocks: the block store of the installation.
        clock: for leases and reports.
        ids: makes ids of runs.
        rng: for samples and jitter.
        folder: for temporary files.
        progress: updated.
    """

    engine: Engine
    client: CollectionClient
    call: Callable[[], Call]
    blocks: BlockStore
    clock: Clock
    ids: IdSource
    rng: random.Random
    folder: Path
    progress: CollectionProgress

    async def record(self, repository_id: str) -> pb.Collection:
        """Returns the collection record of a repository."""
        return await self.client.get(self.call(), repository_id)

    async def mark(self, repository_id: str, *, dry_run: bool = False) -> Manifest:
        """Finds candidates; returns the manifest. With `dry_run`, writes nothing to the block store.

        First lets commits and tags expire by the retention rules, unless it is a dry run.

        Also deletes the files of runs that are older than a year.

        Raises:
            TarnError: COLLECTION_RUNNING, COLLECTION_HELD; the errors of `marking.mark`.
        """
        async with self.leased(repository_id, pb.COLLECTION_PHASE_MARK, "") as (
            lake,
            run,
            graveler,
        ):
            expired = Expired()
            if not dry_run:
                # Before the roots are read: see rule 14 in docs/design/protocol.md.
                expired = await expire(lake, graveler, self.progress)
            roots = KeptObjects(graveler, lake, self.progress)
            manifest = await self.engine.mark(lake, run, roots, self.progress, dry_run=dry_run)
            if dry_run:
                await self.give_up(lake, run)
            else:
                before_us = self.clock.now_us() - _KEEP_FILES_US
                # Until this mark is complete, the last one can be swept.
                last = (await self.record(repository_id)).mark_run_id
                await forget_runs(lake.blocks, lake.namespace, before_us, keep_run_id=last)
                await self._complete(lake, run, _totals_of_mark(manifest, str(expired)))
        return manifest

    async def sweep(
        self, repository_id: str, options: SweepOptions, confirmed_run: str = ""
    ) -> Report:
        """Deletes the candidates of the last mark that are still unreferenced; returns the report.

        Args:
            repository_id: the repository.
            options: how; its `last` and `is_confirmed` are not used.
            confirmed_run: a mark that a person confirmed: the limits do not apply to it.

        Raises:
            TarnError: COLLECTION_RUNNING, COLLECTION_HELD, COLLECTION_NO_MARK, COLLECTION_TOO_EARLY; the errors of
                `sweeping.sweep`.
        """
        record = await self.record(repository_id)
        mark_run_id = record.mark_run_id
        if not mark_run_id:
            text = (
                f"{repository_id} has no mark to sweep; run tarn gc run --only mark {repository_id}"
            )
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.COLLECTION_NO_MARK, text)
        swept = record.last_sweep
        last = Tally(swept.candidate_count, swept.candidate_bytes)
        options = replace(
            options,
            last=last if record.HasField("last_sweep") else None,
            is_confirmed=confirmed_run == mark_run_id,
        )
        phase = pb.COLLECTION_PHASE_SWEEP
        async with self.leased(repository_id, phase, mark_run_id) as (lake, run, graveler):
            manifest = await self._manifest(lake, run, mark_run_id)
            roots = KeptObjects(graveler, lake, self.progress)
            report = await self.engine.sweep(
                lake, run, manifest, roots, graveler, self.progress, self.rng, options
            )
            if report.missing:
                # Before the run ends: if this process dies in between, the next sweep finds the report, and holds.
                await self.client.hold(self.call(), repository_id, _HOLD_AFTER_LOSS_S)
            await self._complete(lake, run, _totals_of_sweep(manifest, report))
        if report.missing:
            text = (
                f"after a collection of {repository_id}, {len(report.missing)} of {report.sampled} live blocks are "
                f"missing or have other bytes, such as {report.missing[0]}; collections are held for 7 days; run "
                "tarn fsck"
            )
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=report.missing[0])
        return report

    async def sweep_or_replace(
        self, repository_id: str, options: SweepOptions
    ) -> Report | Replaced:
        """Sweeps the last mark; marks again if that mark can never be swept (`needs_new_mark`).

        A new mark is as safe as any: it reads the roots and lists the bucket anew, and waits for its own grace time.

        Raises:
            TarnError: as `sweep` and `mark`.
        """
        record = await self.record(repository_id)
        try:
            return await self.sweep(repository_id, options)
        except TarnError as error:
            if not needs_new_mark(record, error, self.clock.now_us()):
                raise
            reason = error.message
        return Replaced(record.mark_run_id, reason, await self.mark(repository_id))

    async def _manifest(self, lake: Lake, run: CollectionRun, mark_run_id: str) -> Manifest:
        manifest = await read_manifest(lake.blocks, lake.namespace, mark_run_id)
        if manifest is None or manifest.cutoff_us != run.cutoff_us:
            text = (
                f"the mark {mark_run_id} of {lake.repository} has no manifest, or one with another cutoff; "
                "nothing was deleted; mark again"
            )
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, run_id=mark_run_id)
        return manifest

    @asynccontextmanager
    async def leased(
        self,
        repository_id: str,
        phase: pb.CollectionPhase,
        mark_run_id: str,
        *,
        is_erasure: bool = False,
    ) -> AsyncIterator[tuple[Lake, CollectionRun, GravelerRun]]:
        """Begins a run, and keeps its lease during the block. A block that fails ends the run as incomplete.

        Raises:
            TarnError: FAILED_PRECONDITION: files are missing, and `blocks` is the store of another installation.
        """
        run_id = self.ids.uuid7().hex()
        begun = self.clock.monotonic()
        record = await self.client.begin(
            self.call(), repository_id, run_id, phase, mark_run_id, is_erasure=is_erasure
        )
        run = CollectionRun(run_id, self.ids.uuid7().hex(), record.cutoff_time.ToMicroseconds())
        lake = Lake(repository_id, record.storage_namespace, self.blocks, self.clock, self.folder)
        graveler = GravelerRun(
            self.client,
            self.call,
            repository_id,
            run_id,
            begun,
            record.lease_ms / 1000,
            self.clock,
            self.rng,
        )
        is_over = False
        try:
            async with (
                graveler.renewed(),
                in_this_store(self.blocks, lake.namespace, repository_id),
            ):
                yield lake, run, graveler
            is_over = True
        finally:
            if not is_over:
                await self.give_up(lake, run)

    async def _complete(self, lake: Lake, run: CollectionRun, totals: pb.CollectionTotals) -> None:
        await self.client.end(self.call(), lake.repository, run.run_id, totals, is_complete=True)

    async def give_up(self, lake: Lake, run: CollectionRun) -> None:
        """Ends the run, so that another one can begin at once. If that fails, the end of the lease ends it."""
        totals = pb.CollectionTotals()
        try:
            async with asyncio.timeout(_END_S):
                await self.client.end(
                    self.call(), lake.repository, run.run_id, totals, is_complete=False
                )
        except (TarnError, TimeoutError):
            return


def _totals_of_mark(manifest: Manifest, expired: str = "") -> pb.CollectionTotals:
    listed, candidates = Tally(), Tally()
    for kind in BlockKind:
        tally = manifest.listed[kind.value]
        listed.add(tally.count, tally.size_bytes)
        tally = manifest.candidates(kind)
        candidates.add(tally.count, tally.size_bytes)
    notes = [expired] if expired else []
    if manifest.abandoned:
        noun = "listing" if len(manifest.abandoned) == 1 else "listings"
        text = f"{len(manifest.abandoned)} incomplete {noun} of commits to which no ref leads; tarn fsck names them"
        notes.append(text)
    return pb.CollectionTotals(
        note="; ".join(notes),
        live_count=listed.count - candidates.count,
        live_bytes=listed.size_bytes - candidates.size_bytes,
        candidate_count=candidates.count,
        candidate_bytes=candidates.size_bytes,
    )


def _totals_of_sweep(manifest: Manifest, report: Report) -> pb.CollectionTotals:
    totals = _totals_of_mark(manifest)
    deleted = report.total(Outcome.DELETED)
    totals.deleted_count = deleted.count
    totals.deleted_bytes = deleted.size_bytes
    totals.failed_count = report.total(Outcome.FAILED).count
    return totals
