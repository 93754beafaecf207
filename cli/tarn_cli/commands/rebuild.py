"""`tarn rebuild`: makes a lost metadata store anew from the bucket alone (docs/operate/disaster.md)."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.context import store_config
from tarn_cli.exits import Exit
from tarn_cli.node.kv_url import kv_variables
from tarn_cli.session import Command, Session, pass_session

if TYPE_CHECKING:  # imported when a command runs
    from tarn_cli.backup_run import BackupRun
    from tarn_graveler.rebuild.report import RebuildReport, RepositoryReport

__all__ = ["rebuild"]

_TERMINATED: Final = 128 + signal.SIGTERM
_LINES_MAX: Final = 20
"""Most lines of one list that people see; JSON has all."""


@click.command(cls=Command)
@config_option
@data_dir_option
@click.option("--kv", default="", help="The metadata store, as in `tarn up --kv`.")
@click.option(
    "--lost-at",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S"]),
    help="When the store was lost, UTC: the report then says how old the newest change is that it has.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Pieces that are copied concurrently.",
)
@pass_session
def rebuild(
    session: Session,
    config_file: Path | None,
    data_dir: Path | None,
    kv: str,
    lost_at: datetime | None,
    concurrency: int,
) -> None:
    """Make the lost metadata store of the configuration anew, from the journal in the bucket.

    The store must be empty, and Tarn stopped; it starts only when the rebuild is complete. If it is interrupted, run
    the same command again. Needs `journal.enabled` before the loss; docs/operate/disaster.md says what else helps.
    Garbage collections are held until `tarn gc release`, and access keys have to be issued anew.

    Exit code 7: files are damaged or missing; the report says what depends on them, and the rest is rebuilt.

    \b
    Example:
      tarn rebuild --data-dir /srv/tarn --lost-at 2026-11-30T02:10:00Z
    """
    from tarn_cli.audited import audited
    from tarn_cli.backup_run import run_backup

    variables = kv_variables(kv, None)
    config = store_config(session, config_file, data_dir, variables=variables, may_be_new=True)

    async def work(run: BackupRun) -> RebuildReport:
        with audited(config, run.clock, "rebuild"):
            return await _rebuild(run, concurrency)

    try:
        report = run_backup(session, config, work)
    except asyncio.CancelledError as stop:
        session.output.remark("interrupted; run the same command again")
        raise click.exceptions.Exit(_TERMINATED) from stop
    lost_us = int(lost_at.replace(tzinfo=UTC).timestamp() * 1_000_000) if lost_at else 0
    session.output.one(report.as_record(lost_us), list(_lines(report, lost_us)))
    session.output.remark(
        "start Tarn, run `tarn auth setup` for a key of the first admin, then `tarn fsck`; collections are held until "
        "`tarn gc release`"
    )
    if not report.is_whole:
        raise click.exceptions.Exit(Exit.FINDINGS)


async def _rebuild(run: BackupRun, concurrency: int) -> RebuildReport:
    from tarn.block.opening import open_blocks
    from tarn.kv.embedded import open_embedded
    from tarn.kv.keys import InstallationKeys
    from tarn_graveler.config import open_committed_of, settings_of
    from tarn_graveler.rebuild.filling import fill_installation
    from tarn_graveler.rebuild.repository import Rebuilder

    config = run.config
    target = await run.store_alone()
    blocks = await open_blocks(config, run.clock)
    run.stack.push_async_callback(blocks.close)
    committed = await run.stack.enter_async_context(open_committed_of(config, blocks))
    folder = run.stack.enter_context(tempfile.TemporaryDirectory(prefix="tarn-rebuild-"))
    made = await open_embedded(Path(folder) / "tarn.db", durability="os", alone=True)
    run.stack.push_async_callback(made.close)
    keys = InstallationKeys(config.installation.id)
    tools = Rebuilder(made, keys, blocks, committed, run.clock, run.ids)
    namespace = settings_of(config).drain.namespace
    return await fill_installation(
        tools, made, target, run.ids, run.transfer(concurrency), namespace
    )


def _lines(report: RebuildReport, lost_us: int) -> Iterator[str]:
    """What people read of a report."""
    from tarn.core.moments import iso_seconds
    from tarn_graveler.rebuild.report import NOT_REBUILT

    yield (
        f"rebuilt {len(report.repositories)} repositories and {report.users} users: {report.rows} rows"
    )
    shared = [report.shared] if report.shared else []
    for each in (*shared, *report.repositories):
        name = each.repository_id or "users, quotas, names"
        lag = f", {each.lag_us(lost_us) / 1_000_000:.0f} s before the loss" if lost_us else ""
        counts = ""
        if each.repository_id:
            counts = f": {each.branches} branches, {each.tags} tags, {each.commits} commits, {each.staged} uncommitted"
        yield f"{name}{counts}; complete up to {iso_seconds(each.drained_until_us)}{lag}"
        yield from _some("  damaged: ", each.problems)
        yield from _some("  younger: ", each.younger)
    yield from (line for each in report.lost for line in _lost(each))
    yield from _some("left out: ", report.left_out)
    yield from _some(
        "issue anew: ",
        [
            f"key {each.access_key_id} of {each.user_id} {each.description}".rstrip()
            for each in report.keys
        ],
    )
    yield from _some("not rebuilt: ", NOT_REBUILT)


def _lost(each: RepositoryReport) -> Iterator[str]:
    yield f"LOST: repository {each.repository_id} in {each.storage_namespace}"
    yield from _some("  ", each.problems)


def _some(begin: str, lines: list[str] | tuple[str, ...]) -> Iterator[str]:
    yield from (f"{begin}{line}" for line in lines[:_LINES_MAX])
    if len(lines) > _LINES_MAX:
        yield f"{begin}and {len(lines) - _LINES_MAX} more; --json has all"
