"""The shared parts of `tarn gc run` and `tarn erase`: options, the collector, its progress and its end."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tarn.core.byte_sizes import shown_size
from tarn.core.errors import TarnError
from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.objects.uri import parse_repository
from tarn_cli.output import Output, shown_time
from tarn_cli.session import Session
from tarn_cli.terminal import write_line
from tarn_cli.ticking import ticking

if TYPE_CHECKING:  # imported when a command runs
    from tarn.collection.collector import Collector
    from tarn.collection.engine import Engine
    from tarn.collection.outcomes import Report
    from tarn.collection.progress import CollectionProgress
    from tarn.collection.quarantine import Manifest
    from tarn.collection.rounds import Purged, Result, Round
    from tarn.config import Config
    from tarn_cli.connection import Connection

__all__ = [
    "CollectionPlan",
    "collect",
    "collection_options",
    "interruptible",
    "opened_collector",
    "plan_of",
    "shown",
]

T = TypeVar("T")
_PERCENT: Final = 100

_OPTIONS: Final = (
    config_option,
    data_dir_option,
    click.option(
        "--only",
        type=click.Choice(["mark", "sweep", "purge"]),
        help="Do only this phase; `purge`: of repositories deleted with their data.  [default: the due one]",
    ),
    click.option("--dry-run", is_flag=True, help="Only show what would be deleted."),
    click.option(
        "--confirm", default="", metavar="RUN", help="Sweep this mark although it exceeds a limit."
    ),
    click.option(
        "--max-percent",
        type=click.FloatRange(0, 100),
        default=50,
        show_default=True,
        help="Do not sweep more than this share of the blocks, or of their bytes.",
    ),
    click.option(
        "--max-gib",
        type=click.FloatRange(0),
        default=0,
        help="Do not sweep more.  [default: no limit]",
    ),
    click.option(
        "--max-growth",
        type=click.FloatRange(0),
        default=5,
        show_default=True,
        help="Do not sweep more than this many times the candidates of the last sweep; 0: no limit.",
    ),
    click.option(
        "--rate",
        type=click.FloatRange(0, 1_000_000),
        default=0,
        help="Most blocks deleted per second.  [default: no limit]",
    ),
    click.option(
        "--batch",
        type=click.IntRange(1, 10_000),
        default=1000,
        show_default=True,
        help="Blocks deleted by one request.",
    ),
)


def collection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a collection to a command; `plan_of` reads them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """The arguments of a command.

    Attributes:
        config: of the services; names the block store.
        round: what to do.
    """

    config: Config
    round: Round


def plan_of(
    session: Session, repositories: Sequence[str], values: Mapping[str, Any]
) -> CollectionPlan:
    """Returns the plan of the options of `collection_options`.

    Raises:
        UsageError: options that do not go together.
        CliError: USAGE, the configuration is invalid.
    """
    from tarn.collection.collector import Step
    from tarn.collection.limits import Limits
    from tarn.collection.rounds import Round
    from tarn.collection.sweeping import SweepOptions
    from tarn_cli.context import store_config

    dry_run, only, confirm = values["dry_run"], values["only"], values["confirm"]
    if dry_run and (only == "sweep" or confirm):
        raise click.UsageError("--dry-run marks; it does not go with --only sweep or --confirm")
    if only == "purge" and (repositories or confirm):
        raise click.UsageError("--only purge is for deleted repositories; it takes no REPOSITORY")
    if only == "mark" and confirm:
        raise click.UsageError("--confirm sweeps; it does not go with --only mark")
    if confirm and len(repositories) != 1:
        raise click.UsageError("--confirm needs one REPOSITORY")
    phase = "sweep" if confirm else only
    limits = Limits(
        values["max_percent"] / _PERCENT, int(values["max_gib"] * (1 << 30)), values["max_growth"]
    )
    return CollectionPlan(
        store_config(session, values["config_file"], values["data_dir"], beside_server=True),
        Round(
            tuple(parse_repository(name) for name in repositories),
            Step(phase) if phase else None,
            dry_run,
            SweepOptions(
                limits=limits, deletes_per_second=values["rate"], batch_blocks=values["batch"]
            ),
            confirm,
        ),
    )


def collect(
    session: Session, plan: CollectionPlan, engine: Engine, temporary: Path | None = None
) -> None:
    """Collects, and prints the result in each repository.

    Args:
        session: of the command.
        plan: what to do.
        engine: finds and deletes.
        temporary: a folder for temporary files; None: that of the system.

    Raises:
        TarnError: the first error; the other repositories were done.
        Exit: 130 after Ctrl-C, 143 after SIGTERM. The run has ended, or its lease ends within minutes.
    """
    from tarn.collection.rounds import collect as run_round

    folder = temporary or Path(tempfile.gettempdir())

    async def work(tarn: Connection) -> tuple[list[Result], TarnError | None]:
        async def all_names() -> AsyncIterator[str]:
            async for found in tarn.list_repositories():
                yield found.repository_id

        opened = opened_collector(session.output, tarn, plan.config, engine, folder)
        async with opened as collector:
            return await run_round(plan.round, collector, tarn.erasures, all_names)

    results, failed = interruptible(session, work, "interrupted; the next run goes on")
    rows = [shown(each) for each in results]
    if session.output.as_json:
        session.output.many(rows, ())
    for row in () if session.output.as_json else rows:
        session.output.one(row)
        write_line()
    if failed is not None:
        raise failed


def interruptible(session: Session, work: Callable[[Connection], Awaitable[T]], remark: str) -> T:
    """Runs `work`, which Ctrl-C and SIGTERM cancel; returns its result.

    Raises:
        Exit: 130 after Ctrl-C, 143 after SIGTERM, when `work` has ended; `remark` was shown.
    """
    stopped: list[signal.Signals] = []

    async def cancellable(tarn: Connection) -> T:
        _cancel_by_signals(stopped)
        return await work(tarn)

    try:
        return session.run(cancellable)
    except asyncio.CancelledError as stop:
        session.output.remark(remark)
        raise click.exceptions.Exit(128 + (stopped or [signal.SIGTERM])[0]) from stop


def _cancel_by_signals(stopped: list[signal.Signals]) -> None:
    """Lets Ctrl-C and SIGTERM cancel this task, and adds them to `stopped`.

    Ctrl-C, too: Spark replaces Python's own handler by one that raises wherever the event loop happens to be.
    """
    task = asyncio.current_task()
    assert task is not None, "runs in a task"

    def stop(number: signal.Signals) -> None:
        stopped.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)


@asynccontextmanager
async def opened_collector(
    output: Output, tarn: Connection, config: Config, engine: Engine, folder: Path
) -> AsyncIterator[Collector]:
    """Yields a collector over the configured block store, and shows its progress."""
    import random

    from tarn.block.opening import open_blocks
    from tarn.collection.collector import Collector
    from tarn.collection.progress import CollectionProgress
    from tarn.rpc.process.system import SystemClock, SystemIds

    clock, progress = SystemClock(), CollectionProgress()
    blocks = await open_blocks(config, clock)
    try:
        with _bar(output, progress) as show:
            async with ticking(show, clock):
                yield Collector(
                    engine,
                    tarn.collections,
                    tarn.call,
                    blocks,
                    clock,
                    SystemIds(clock),
                    random.SystemRandom(),
                    folder,
                    progress,
                )
    finally:
        await blocks.close()


def shown(result: Result) -> dict[str, object]:
    """What was done in a repository, as names and values."""
    from tarn.collection.rounds import Failed, Marked, NotDue, Purged, Swept

    match result:
        case Marked():
            did = {
                "repository": result.repository,
                "did": "dry run" if result.is_dry_run else "mark",
            }
            if result.replaced is not None:
                did |= {
                    "instead_of": result.replaced.mark_run_id,
                    "because": result.replaced.reason,
                }
            return did | _marked(result.manifest) | ({"note": result.note} if result.note else {})
        case Swept():
            return {"repository": result.repository, "did": "sweep", **_swept(result.report)}
        case NotDue():
            return {
                "repository": result.repository,
                "did": "nothing",
                "mark": result.mark_run_id,
                "sweep_from": shown_time(result.sweep_from),
            }
        case Failed():
            return {
                "repository": result.repository,
                "did": "nothing",
                "error": result.error.message,
            }
        case Purged():
            return _purged(result)


def _purged(result: Purged) -> dict[str, object]:
    doomed, report = result.doomed, result.report
    did = "nothing" if report is None else "purge"
    row: dict[str, object] = {
        "repository": doomed.repository_id,
        "namespace": doomed.storage_namespace,
        "did": "dry run" if result.is_dry_run else did,
    }
    if not result.is_due:
        row["purge_from"] = shown_time(doomed.purge_not_before_time)
    if result.error is not None:
        row["error"] = result.error.message
    elif report is not None and result.is_dry_run:
        row["would_delete"] = f"{report.found.count} ({shown_size(report.found.size_bytes)})"
    elif report is not None:
        row["deleted"] = f"{report.deleted.count} ({shown_size(report.deleted.size_bytes)})"
        if not report.is_complete:
            row["failed"] = f"{report.failed.count} ({shown_size(report.failed.size_bytes)})"
            row["left"] = report.left.count
            row["error"] = report.error
    return row


def _marked(manifest: Manifest) -> dict[str, object]:
    from tarn.collection.block_names import BlockKind

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
    from tarn.collection.outcomes import Outcome

    shown: dict[str, object] = {"mark": report.mark_run_id}
    for outcome in Outcome:
        total = report.total(outcome)
        shown[outcome.value] = f"{total.count} ({shown_size(total.size_bytes)})"
    shown["live_blocks_looked_at"] = report.sampled
    return shown


@contextmanager
def _bar(output: Output, progress: CollectionProgress) -> Iterator[Callable[[], None]]:
    """A progress bar of the present step; yields a function that updates it."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn

    from tarn_cli.bars import bar

    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with bar(output.progress_console, "begin", *columns) as shown:
        yield lambda: shown.show(progress.step, progress.done, progress.total)
