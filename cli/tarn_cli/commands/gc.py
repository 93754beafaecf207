"""`tarn gc`: deletes blocks to which nothing refers.

It opens the configured block store itself, as `tarn fsck` does, because graveler never lists or deletes blocks. It
asks graveler for the roots, and for the right to delete, as the user.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tarn.core.errors import Kind, TarnError
from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.objects.uri import parse_repository
from tarn_cli.output import Output, shown_size, shown_time
from tarn_cli.session import Group, Session, pass_session

if TYPE_CHECKING:  # imported when a command runs
    from tarn.config import Config
    from tarn.lifecycle.collector import Collector
    from tarn.lifecycle.outcomes import Report
    from tarn.lifecycle.progress import Progress
    from tarn.lifecycle.quarantine import Manifest
    from tarn.lifecycle.sweeping import SweepOptions
    from tarn_cli.connection import Connection
    from tarn_proto.graveler.v1 import collection_service_pb2 as pb

__all__ = ["gc"]

_TICK_S: Final = 0.25
_TERMINATED: Final = 128 + signal.SIGTERM
_PERCENT: Final = 100
_FOR_ALL: Final = (Kind.UNAVAILABLE, Kind.DENIED, Kind.UNAUTHENTICATED, Kind.UNIMPLEMENTED)
"""Failures that every other repository would meet, too."""


@click.group(cls=Group)
def gc() -> None:
    """Garbage collection: delete blocks to which nothing refers. docs/operate/gc.md explains it.

    A collection has two phases. A mark finds unreferenced blocks that are older than a day, and writes them to
    quarantine. A sweep, after a grace time, deletes those that are still unreferenced. So run it once a day: each
    run does what is due.

    \b
    Examples:
      tarn gc run --dry-run lake
      tarn gc run
      tarn gc status lake
      tarn gc hold lake 2h
    """


@gc.command()
@click.argument("repositories", nargs=-1)
@config_option
@data_dir_option
@click.option(
    "--only",
    type=click.Choice(["mark", "sweep"]),
    help="Do only this phase.  [default: what is due]",
)
@click.option("--dry-run", is_flag=True, help="Mark, and only show what would be deleted.")
@click.option(
    "--confirm", default="", metavar="RUN", help="Sweep this mark although it exceeds a limit."
)
@click.option(
    "--max-percent",
    type=click.FloatRange(0, 100),
    default=50,
    show_default=True,
    help="Do not sweep more than this share of the blocks, or of their bytes.",
)
@click.option(
    "--max-gib", type=click.FloatRange(0), default=0, help="Do not sweep more.  [default: no limit]"
)
@click.option(
    "--rate",
    type=click.FloatRange(0, 1_000_000),
    default=0,
    help="Most blocks deleted per second.  [default: no limit]",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=1000,
    show_default=True,
    help="Blocks deleted by one request.",
)
@click.option(
    "--temporary",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="Folder for temporary files, some 100 bytes for each block.  [default: that of the system]",
)
@pass_session
def run(
    session: Session,
    repositories: tuple[str, ...],
    config_file: Path | None,
    data_dir: Path | None,
    only: str | None,
    dry_run: bool,
    confirm: str,
    max_percent: float,
    max_gib: float,
    rate: float,
    batch: int,
    temporary: Path | None,
) -> None:
    """Do what is due in these repositories, or in all: sweep the last mark, or mark.

    It runs where the block store can be reached, with the configuration of the services, and needs an admin's key.
    Ctrl-C stops it between two batches; the next run goes on.
    """
    from tarn.lifecycle.limits import Limits
    from tarn.lifecycle.sweeping import SweepOptions
    from tarn_cli.node.plan import read_config

    if dry_run and (only == "sweep" or confirm):
        raise click.UsageError("--dry-run marks; it does not go with --only sweep or --confirm")
    if confirm and len(repositories) != 1:
        raise click.UsageError("--confirm needs one REPOSITORY")
    config = read_config(config_file, session.environment, data_dir)
    options = SweepOptions(
        limits=Limits(max_percent / _PERCENT, int(max_gib * (1 << 30))),
        deletes_per_second=rate,
        batch_blocks=batch,
    )
    chosen: list[str] = [parse_repository(name) for name in repositories]
    phase = "dry run" if dry_run else "sweep" if confirm else only or ""
    folder = temporary or Path(tempfile.gettempdir())

    async def work(tarn: Connection) -> tuple[list[dict[str, object]], TarnError | None]:
        names = chosen or [found.repository_id async for found in tarn.list_repositories()]
        return await _collected(
            session.output, tarn, config, folder, names, phase, options, confirm
        )

    try:
        rows, failed = session.run(work)
    except asyncio.CancelledError as stop:
        session.output.remark("interrupted; the next run goes on")
        raise click.exceptions.Exit(_TERMINATED) from stop
    if session.output.as_json:
        session.output.many(rows, ())
    for row in () if session.output.as_json else rows:
        session.output.one(row)
        click.echo()
    if failed is not None:
        raise failed


async def _collected(
    output: Output,
    tarn: Connection,
    config: Config,
    folder: Path,
    names: Sequence[str],
    phase: str,
    options: SweepOptions,
    confirm: str,
) -> tuple[list[dict[str, object]], TarnError | None]:
    """Collects one repository after the other, and shows the progress; SIGTERM cancels it.

    Returns what was done in each, and the first error: a repository that is held must not keep the others.
    """
    import random

    from tarn.block.opening import open_blocks
    from tarn.lifecycle.collector import Collector
    from tarn.lifecycle.progress import Progress
    from tarn.rpc.process.system import SystemClock, SystemIds

    clock, progress = SystemClock(), Progress()
    task = asyncio.current_task()
    assert task is not None, "runs in a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    rows: list[dict[str, object]] = []
    failed: TarnError | None = None
    async with AsyncExitStack() as stack:
        blocks = await open_blocks(config, clock)
        stack.push_async_callback(blocks.close)
        collector = Collector(
            tarn.collections,
            tarn.call,
            blocks,
            clock,
            SystemIds(clock),
            random.SystemRandom(),
            folder,
            progress,
        )
        show = stack.enter_context(_bar(output, progress))

        async def tick() -> None:
            while True:
                show()
                await clock.sleep(_TICK_S)

        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(tick())
            for name in names:
                try:
                    rows.append(await _one(collector, name, phase, options, confirm))
                except TarnError as error:
                    if len(names) == 1 or error.kind in _FOR_ALL:
                        raise
                    failed = failed or error
                    told: dict[str, object] = {
                        "repository": name,
                        "did": "nothing",
                        "error": error.message,
                    }
                    rows.append(told)
            ticking.cancel()
    return rows, failed


async def _one(
    collector: Collector, name: str, phase: str, options: SweepOptions, confirm: str
) -> dict[str, object]:
    """Does what is asked, or else what is due, in one repository."""
    from tarn.lifecycle.collector import Step, next_step

    if phase == "dry run":
        return {
            "repository": name,
            "did": phase,
            **_marked(await collector.mark(name, dry_run=True)),
        }
    step = Step(phase) if phase else Step.WAIT
    if not phase:
        record = await collector.record(name)
        step = next_step(record, collector.clock.now_us())
        if step is Step.WAIT:
            due = shown_time(record.sweep_not_before_time)
            return {
                "repository": name,
                "did": "nothing",
                "mark": record.mark_run_id,
                "sweep_from": due,
            }
    if step is Step.SWEEP:
        return {
            "repository": name,
            "did": "sweep",
            **_swept(await collector.sweep(name, options, confirm)),
        }
    return {"repository": name, "did": "mark", **_marked(await collector.mark(name))}


def _marked(manifest: Manifest) -> dict[str, object]:
    from tarn.lifecycle.block_names import BlockKind

    shown: dict[str, object] = {"mark": manifest.run_id}
    for kind in BlockKind:
        found, listed = manifest.candidates(kind), manifest.listed[kind.value]
        shown[f"{kind.value}_candidates"] = (
            f"{found.count} of {listed.count} ({shown_size(found.size_bytes)} of "
            f"{shown_size(listed.size_bytes)})"
        )
    if manifest.abandoned:
        shown["abandoned_listings"] = len(manifest.abandoned)
    return shown


def _swept(report: Report) -> dict[str, object]:
    from tarn.lifecycle.outcomes import Outcome

    shown: dict[str, object] = {"mark": report.mark_run_id}
    for outcome in Outcome:
        total = report.total(outcome)
        shown[outcome.value] = f"{total.count} ({shown_size(total.size_bytes)})"
    shown["live_blocks_looked_at"] = report.sampled
    return shown


@contextmanager
def _bar(output: Output, progress: Progress) -> Iterator[Callable[[], None]]:
    """A progress bar of the present step; yields a function that updates it."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=output.progress_console, transient=True) as bar:
        task = bar.add_task("begin", total=None)

        def show() -> None:
            bar.update(
                task, description=progress.step, completed=progress.done, total=progress.total
            )

        yield show


@gc.command()
@click.argument("repository")
@pass_session
def status(session: Session, repository: str) -> None:
    """Show what a collection does, what it did last, and when it may go on."""
    name = parse_repository(repository)
    record = session.run(lambda tarn: tarn.collections.get(tarn.call(), name))
    session.output.one(_status(record))


@gc.command()
@click.argument("repository")
@click.argument("duration")
@pass_session
def hold(session: Session, repository: str, duration: str) -> None:
    """Let no collection of a repository begin or go on for a while, at most 7 days: before a backup or a restore.

    \b
    Example:
      tarn gc hold lake 2h
    """
    from tarn.config.values import Sort, Within, parse_value

    name = parse_repository(repository)
    try:
        milliseconds = parse_value(Within(Sort.DURATION, "1s", "168h"), duration, Path())
    except ValueError as error:
        raise click.UsageError(f"DURATION {error}") from error
    assert isinstance(milliseconds, int)
    seconds = milliseconds // 1000
    record = session.run(lambda tarn: tarn.collections.hold(tarn.call(), name, seconds))
    session.output.one({"repository": name, "held_until": shown_time(record.hold_end_time)})


@gc.command()
@click.argument("repository")
@pass_session
def release(session: Session, repository: str) -> None:
    """End a hold."""
    name = parse_repository(repository)
    session.run(lambda tarn: tarn.collections.hold(tarn.call(), name, 0))
    session.output.remark(f"collections of {name} may run again")


def _status(record: pb.Collection) -> dict[str, object]:
    from tarn_proto.graveler.v1 import collection_service_pb2 as pb

    phase = pb.CollectionPhase.Name(record.phase).removeprefix("COLLECTION_PHASE_").lower()
    shown: dict[str, object] = {"repository": record.repository_id, "phase": phase}
    if record.run_id:
        shown["run"] = record.run_id
        shown["lease_until"] = shown_time(record.lease_end_time)
    if record.mark_run_id:
        shown["mark"] = record.mark_run_id
        shown["sweep_from"] = shown_time(record.sweep_not_before_time)
    if record.HasField("hold_end_time"):
        shown["held_until"] = shown_time(record.hold_end_time)
    for name in ("last_mark", "last_sweep"):
        if record.HasField(name):
            shown[name] = _shown_totals(getattr(record, name))
    return shown


def _shown_totals(totals: pb.CollectionTotals) -> dict[str, object]:
    return {
        "run": totals.run_id,
        "end": shown_time(totals.end_time),
        "live": totals.live_count,
        "live_bytes": totals.live_bytes,
        "candidates": totals.candidate_count,
        "candidate_bytes": totals.candidate_bytes,
        "deleted": totals.deleted_count,
        "deleted_bytes": totals.deleted_bytes,
        "failed": totals.failed_count,
    }
