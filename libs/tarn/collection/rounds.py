"""A round of garbage collection: the phase that is due, in one repository after the other.

`tarn gc run` and `tarn up`'s timer run rounds. A round goes on with the next repository after a failure, unless all
would fail alike: a repository that is held must not keep the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from tarn.client.erasures import ErasureClient
from tarn.collection.collector import Collector, Replaced, Step, next_step
from tarn.collection.outcomes import Report
from tarn.collection.purging import Purger, PurgeReport, is_due
from tarn.collection.quarantine import Manifest
from tarn.collection.sweeping import SweepOptions
from tarn.core.errors import Kind, Reason, TarnError
from tarn_proto.graveler.v1.erasure_service_pb2 import DoomedNamespace

__all__ = [
    "Failed",
    "Marked",
    "NotDue",
    "Purged",
    "Result",
    "Round",
    "Swept",
    "collect",
    "collect_one",
]

_OF_ALL: Final = (Kind.UNAVAILABLE, Kind.DENIED, Kind.UNAUTHENTICATED, Kind.UNIMPLEMENTED)
"""Failures that every other repository would meet, too."""


@dataclass(frozen=True, slots=True)
class Round:
    """What to do.

    Attributes:
        names: the repositories; empty: all, and the data of those that were deleted.
        phase: the only phase; None: the one that is due.
        is_dry_run: delete nothing, and only tell what would be deleted.
        options: of a sweep.
        confirm: a mark that a person confirmed; or empty.
    """

    names: tuple[str, ...] = ()
    phase: Step | None = None
    is_dry_run: bool = False
    options: SweepOptions = field(default_factory=SweepOptions)
    confirm: str = ""

    def __post_init__(self) -> None:
        if self.phase is Step.WAIT or (self.phase is Step.PURGE and self.names):
            raise ValueError(f"{self.phase.value} is no phase of a repository")


@dataclass(frozen=True, slots=True)
class Marked:
    """A repository was marked.

    Attributes:
        repository: its name.
        manifest: of the mark.
        is_dry_run: the mark was not kept.
        note: what expired before.
        replaced: the mark before, which cannot be swept; or None.
    """

    repository: str
    manifest: Manifest
    is_dry_run: bool = False
    note: str = ""
    replaced: Replaced | None = None


@dataclass(frozen=True, slots=True)
class Swept:
    """The last mark of a repository was swept."""

    repository: str
    report: Report


@dataclass(frozen=True, slots=True)
class NotDue:
    """Nothing is due in a repository: its mark may be swept from a time on."""

    repository: str
    mark_run_id: str
    sweep_from: Timestamp


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing was done in a repository."""

    repository: str
    error: TarnError


@dataclass(frozen=True, slots=True)
class Purged:
    """The data of a deleted repository.

    Attributes:
        doomed: its namespace.
        is_due: whether its grace time is over.
        is_dry_run: the data were counted, not deleted.
        report: what was counted or deleted; None: nothing.
        error: why nothing was; or None.
    """

    doomed: DoomedNamespace
    is_due: bool
    is_dry_run: bool
    report: PurgeReport | None = None
    error: TarnError | None = None


Result = Marked | Swept | NotDue | Failed | Purged


async def collect(
    round_: Round,
    collector: Collector,
    erasures: ErasureClient,
    all_names: Callable[[], AsyncIterator[str]],
) -> tuple[list[Result], TarnError | None]:
    """Runs a round; returns what it did, and the first error.

    Args:
        round_: what to do.
        collector: does it.
        erasures: graveler's, for the data of deleted repositories.
        all_names: lists the repositories.

    Raises:
        TarnError: every repository would fail alike, or the only one did.
    """
    names: Sequence[str] = round_.names
    if not names and round_.phase is not Step.PURGE:
        names = [name async for name in all_names()]
    results: list[Result] = []
    failed: TarnError | None = None
    for name in names:
        try:
            results.append(await collect_one(round_, collector, name))
        except TarnError as error:
            if len(names) == 1 or error.kind in _OF_ALL:
                raise
            failed = failed or error
            results.append(Failed(name, error))
    if not round_.names and round_.phase in (None, Step.PURGE):
        purger = Purger(
            erasures,
            collector.call,
            collector.blocks,
            collector.clock,
            collector.rng,
            collector.progress,
        )
        failed = (
            await _purge(round_, purger, lambda: collector.ids.uuid7().hex(), results) or failed
        )
    return results, failed


async def collect_one(round_: Round, collector: Collector, name: str) -> Result:
    """Runs the phase of a round, or else the one that is due, in one repository.

    Raises:
        TarnError: as `Collector.mark` and `Collector.sweep`.
    """
    if round_.is_dry_run:
        return Marked(name, await collector.mark(name, dry_run=True), is_dry_run=True)
    step = round_.phase
    if step is None:
        record = await collector.record(name)
        step = next_step(record, collector.clock.now_us())
        if step is Step.WAIT:
            return NotDue(name, record.mark_run_id, record.sweep_not_before_time)
    if step is not Step.SWEEP:
        manifest, replaced = await collector.mark(name), None
    elif round_.phase is not None:
        return Swept(name, await collector.sweep(name, round_.options, round_.confirm))
    else:
        done = await collector.sweep_or_replace(name, round_.options)
        if not isinstance(done, Replaced):
            return Swept(name, done)
        manifest, replaced = done.manifest, done
    note = (await collector.record(name)).last_mark.note
    return Marked(name, manifest, note=note, replaced=replaced)


async def _purge(
    round_: Round, purger: Purger, attempt: Callable[[], str], results: list[Result]
) -> TarnError | None:
    """Deletes the data of repositories that were deleted with them; returns the first error."""
    failed: TarnError | None = None
    for doomed in await purger.doomed():
        if doomed.HasField("purge_end_time"):
            continue
        due = is_due(doomed, purger.clock.now_us())
        report: PurgeReport | None = None
        error: TarnError | None = None
        try:
            if round_.is_dry_run:
                report = await purger.count(doomed)
            elif due:
                report = await purger.purge(doomed, attempt())
        except TarnError as caught:
            if caught.kind in _OF_ALL:
                raise
            error = caught
        results.append(Purged(doomed, due, round_.is_dry_run, report, error))
        if report is not None and not round_.is_dry_run and not report.is_complete:
            text = (
                f"not all data of {doomed.storage_namespace} were deleted, the next run tries again: "
                f"{report.error}"
            )
            error = TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
        failed = failed or error
    return failed
