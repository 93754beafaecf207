"""`tarn fsck`: checks all stored data and reports missing and inconsistent data.

It opens the configured stores itself, for reading, as a node does. So it works while Tarn runs, and also
when Tarn no longer starts. Its progress is kept in a separate state file.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from itertools import islice
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn

from tarn.block.opening import open_blocks_to_read
from tarn.config import Config
from tarn.core.byte_sizes import shown_size
from tarn.fsck.check import check
from tarn.fsck.finding import Finding, Severity
from tarn.fsck.progress import CheckProgress
from tarn.fsck.session import CONCURRENCY, GRACE_SECONDS, FsckOptions
from tarn.fsck.state import State, open_state
from tarn.kv.opening import open_kv_to_read
from tarn.rpc.process.log import LogConfig, logging_to
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_cli.bars import PlainColumn, bar
from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.context import store_config
from tarn_cli.exits import Exit
from tarn_cli.interrupts import run_interruptibly
from tarn_cli.node.kv_url import kv_variables
from tarn_cli.output import Output
from tarn_cli.session import Command, Session, pass_session
from tarn_cli.terminal import write_line
from tarn_cli.ticking import ticking

__all__ = ["fsck"]

_SHOWN_ORPHANS = 20
_TERMINATED = 128 + signal.SIGTERM
_HOUR_S = 3600


@click.command(cls=Command)
@config_option
@data_dir_option
@click.option("--kv", default="", help="The metadata store, as in `tarn up --kv`.")
@click.option(
    "--repository", "repositories", multiple=True, help="Only this repository; may be repeated."
)
@click.option("--ref", default="", help="Only this branch, or tags/NAME, of the one repository.")
@click.option("--verify-data", is_flag=True, help="Read every object and compare its MD5.")
@click.option(
    "--state",
    "state_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Record progress in this file; after an interruption the same command resumes from it.",
)
@click.option("--restart", is_flag=True, help="Ignore the state file and begin again.")
@click.option("--strict", is_flag=True, help="Exit with code 7 for orphans, too.")
@click.option(
    "--grace-hours",
    type=click.FloatRange(0, 24 * 365),
    default=GRACE_SECONDS / _HOUR_S,
    show_default=True,
    help="Younger data is never an orphan, because a client may still be writing it.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    default=CONCURRENCY,
    show_default=True,
    help="Concurrent reads.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, 1_000_000),
    default=0,
    help="Most requests per second to the stores.  [default: no limit]",
)
@pass_session
def fsck(
    session: Session,
    config_file: Path | None,
    data_dir: Path | None,
    kv: str,
    repositories: tuple[str, ...],
    ref: str,
    verify_data: bool,
    state_file: Path | None,
    restart: bool,
    strict: bool,
    grace_hours: float,
    concurrency: int,
    rate: float,
) -> None:
    """Check that all stored data exists and is consistent. Changes nothing.

    It reads the configured stores itself, so Tarn may be running or stopped. Exit code 7: data is lost or
    inconsistent. Orphans (wasted space) are shown, and count as a failure only with --strict.

    \b
    Examples:
      tarn fsck
      tarn fsck --repository lake --verify-data --rate 500
      tarn fsck --state fsck.state        run it again to resume after an interruption
    """
    if ref and len(repositories) != 1:
        raise click.UsageError("--ref needs one --repository")
    if restart and state_file is None:
        raise click.UsageError("--restart needs --state")
    config = store_config(session, config_file, data_dir, variables=kv_variables(kv, None))
    options = FsckOptions(
        repositories=repositories,
        ref=ref,
        verify_data=verify_data,
        concurrency=concurrency,
        requests_per_second=rate,
        grace_seconds=grace_hours * _HOUR_S,
    )
    level = "error" if session.quiet or session.as_json else "warning"
    with (
        logging_to(LogConfig(level=level, format="text")),
        _state_of(config, options, state_file, restart=restart) as state,
    ):
        try:
            run_interruptibly(_run(config, options, state, session.output))
        except (KeyboardInterrupt, asyncio.CancelledError) as stop:
            if state_file is not None:
                session.output.remark("interrupted; the same command resumes from here")
            if isinstance(stop, KeyboardInterrupt):
                raise
            raise click.exceptions.Exit(_TERMINATED) from stop
        _report(session.output, state)
        bad = {code.severity for code in state.totals()}
        if bad - (set() if strict else {Severity.ORPHAN}):
            raise click.exceptions.Exit(Exit.FINDINGS)


@contextmanager
def _state_of(
    config: Config, options: FsckOptions, file: Path | None, *, restart: bool
) -> Iterator[State]:
    """Opens the state in a file, or in a temporary file that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="tarn-fsck-") as folder:
        path = file or Path(folder) / "state"
        if restart:
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
        scope = f"{config.installation.id} {options.scope()}"
        state = open_state(path, scope, SystemClock().now_us())
        try:
            yield state
        finally:
            state.close()


async def _run(config: Config, options: FsckOptions, state: State, output: Output) -> None:
    """Runs the check and shows its progress; SIGTERM cancels it."""
    clock = SystemClock()
    progress = CheckProgress()
    task = asyncio.current_task()
    assert task is not None, "runs in a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with AsyncExitStack() as stack:
        kv = await open_kv_to_read(config, clock, SystemIds(clock))
        stack.push_async_callback(kv.close)
        blocks = await open_blocks_to_read(config, clock)
        stack.push_async_callback(blocks.close)
        executor = stack.enter_context(
            ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="fsck")
        )
        with _bar(output, progress) as show:
            async with ticking(show, clock):
                await check(
                    installation_id=config.installation.id,
                    kv=kv,
                    blocks=blocks,
                    state=state,
                    options=options,
                    clock=clock,
                    progress=progress,
                    executor=executor,
                )


@contextmanager
def _bar(output: Output, progress: CheckProgress) -> Iterator[Callable[[], None]]:
    """A progress bar of the current phase; yields a function that updates it."""
    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        PlainColumn("{task.fields[extra]} requests"),
        TimeElapsedColumn(),
    )
    with bar(output.progress_console, "start", *columns) as shown:
        yield lambda: shown.show(progress.phase, progress.done, progress.total, progress.requests)


def _report(output: Output, state: State) -> None:
    totals = state.totals()
    if output.as_json:
        _report_json(state)
        return
    for code in totals:
        shown = None if code.severity is not Severity.ORPHAN else _SHOWN_ORPHANS
        for finding in islice(state.findings(code), shown):
            write_line(_line(finding))
    by_severity = dict.fromkeys(Severity, 0)
    for code, (count, size_bytes) in totals.items():
        by_severity[code.severity] += count
        of = f" of {shown_size(size_bytes)}" if size_bytes else ""
        output.remark(f"{count} {code.label}{of} ({code.severity}): {code.remedy}")
    if not totals:
        output.remark("no data is missing or inconsistent")
    else:
        counts = ", ".join(f"{count} {severity}" for severity, count in by_severity.items())
        output.remark(f"{counts}; docs/operate/fsck.md explains each code")


def _line(finding: Finding) -> str:
    where = f"{finding.repository}: " if finding.repository else ""
    return (
        f"{finding.code.severity} {finding.code.label} {where}{finding.subject}: {finding.detail}"
    )


def _record(finding: Finding) -> dict[str, object]:
    return {
        "severity": finding.code.severity,
        "code": finding.code.label,
        "repository": finding.repository,
        "subject": finding.subject,
        "detail": finding.detail,
        "size_bytes": finding.size_bytes,
        "remedy": finding.code.remedy,
    }


def _report_json(state: State) -> None:
    """Streams one JSON document with one finding per line, so memory does not grow with their number."""
    summary = [
        {"code": code.label, "severity": code.severity, "count": count, "size_bytes": size_bytes}
        for code, (count, size_bytes) in state.totals().items()
    ]
    write_line(f'{{"summary": {json.dumps(summary)},')
    line = '"findings": ['
    for finding in state.findings():
        write_line(line if line.endswith("[") else f"{line},")
        line = json.dumps(_record(finding))
    write_line(f"{line}]}}")
