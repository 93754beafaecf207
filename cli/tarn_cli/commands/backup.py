"""`tarn backup`: backups of an installation's metadata, made while it is in use, and restores.

It opens the configured stores itself, as `tarn fsck` does.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from tarn.core.byte_sizes import shown_size
from tarn.core.moments import iso_seconds
from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.context import data_folder, store_config
from tarn_cli.exits import Exit
from tarn_cli.node.kv_url import kv_variables
from tarn_cli.node.plan import read_config
from tarn_cli.output import Record
from tarn_cli.session import Group, Session, pass_session
from tarn_cli.terminal import write_line

if TYPE_CHECKING:  # imported when a command runs
    from tarn.config import Config
    from tarn.snapshot.files.manifest import Manifest
    from tarn_cli.backup_run import BackupRun

__all__ = ["backup"]

T = TypeVar("T")

_TERMINATED: Final = 128 + signal.SIGTERM
_COLUMNS: Final = ("backup", "begin", "end", "repositories", "rows", "size", "new")

_kv = click.option("--kv", default="", help="The metadata store, as in `tarn up --kv`.")
_backup_id = click.option(
    "--backup", "backup_id", default="", metavar="ID", help="Which backup.  [default: the newest]"
)
_concurrency = click.option(
    "--concurrency",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Pieces that are processed concurrently.",
)


@click.group(cls=Group)
def backup() -> None:
    """Backups of all metadata: users, repositories, branches, uncommitted changes, commits.

    A TARGET is a folder, or s3://BUCKET/PREFIX on the S3 server of the configuration. Objects are not copied: a
    backup needs the bucket. docs/operate/backup.md says what is promised.

    \b
    Examples:
      tarn backup create /backup/tarn
      tarn backup verify /backup/tarn
      tarn backup prune /backup/tarn --keep 30
      tarn backup restore /backup/tarn --data-dir /srv/tarn
    """


@backup.command()
@click.argument("target")
@config_option
@data_dir_option
@_kv
@pass_session
def create(
    session: Session, target: str, config_file: Path | None, data_dir: Path | None, kv: str
) -> None:
    """Make a backup, while Tarn is in use or stopped.

    Every write that was acknowledged before it began is in it. Only data that the target does not hold yet is
    written; so the second backup is small. After an interruption run it again: it writes only the missing data.

    \b
    Example:
      17 * * * *  tarn --quiet backup create /backup/tarn --config /etc/tarn.yaml
    """
    config = _config(session, config_file, data_dir, kv)

    async def work(run: BackupRun) -> Record:
        from tarn.snapshot.installation.creating import create as create_backup

        store = await run.store_in_use()
        place = await run.target(target)
        manifest = await create_backup(
            store, config.installation.id, place, run.ids, run.transfer()
        )
        return _record(manifest)

    session.output.one(_run(session, config, work, "backup create", target))
    session.output.remark("no backup holds the installation's secret: keep that, too")


@backup.command("list")
@click.argument("target")
@config_option
@data_dir_option
@pass_session
def list_(session: Session, target: str, config_file: Path | None, data_dir: Path | None) -> None:
    """List the finished backups, oldest first."""
    config = _unopened(session, config_file, data_dir)

    async def work(run: BackupRun) -> list[Record]:
        from tarn.snapshot.files.manifest import Scope
        from tarn.snapshot.files.stored import manifests

        return [
            _record(manifest)
            async for manifest in manifests(await run.target(target), Scope.INSTALLATION)
        ]

    session.output.many(_run(session, config, work), _COLUMNS)


@backup.command()
@click.argument("target")
@config_option
@data_dir_option
@_backup_id
@click.option("--files-only", is_flag=True, help="Check the backup's files, not the bucket.")
@_concurrency
@pass_session
def verify(
    session: Session,
    target: str,
    config_file: Path | None,
    data_dir: Path | None,
    backup_id: str,
    files_only: bool,
    concurrency: int,
) -> None:
    """Read a backup back, restore it into a temporary store, and check that beside the bucket as `tarn fsck` does.

    Exit code 7: the backup is damaged, or the bucket lacks objects that it needs. Changes nothing.
    """
    config = (
        _unopened(session, config_file, data_dir)
        if files_only
        else _config(session, config_file, data_dir, "")
    )

    async def work(run: BackupRun) -> tuple[Record, list[str]]:
        from tarn.snapshot.files.manifest import Scope
        from tarn.snapshot.files.stored import check_files, open_snapshot

        opened = await open_snapshot(await run.target(target), Scope.INSTALLATION, backup_id)
        wrong = await check_files(opened, run.transfer(concurrency))
        if not (wrong or files_only):
            found = await run.findings(opened, concurrency)
            wrong = [
                f"{each.code.label} {each.repository}: {each.subject}: {each.detail}"
                for each in found
            ]
        return {**_record(opened.manifest), "findings": len(wrong), "details": wrong}, wrong

    record, wrong = _run(session, config, work)
    shown = record if session.output.as_json else {**record, "details": ""}
    session.output.one(shown)
    if wrong:
        for line in () if session.output.as_json else wrong:
            write_line(line)
        raise click.exceptions.Exit(Exit.FINDINGS)


@backup.command()
@click.argument("target")
@config_option
@data_dir_option
@_kv
@_backup_id
@click.option("--without-secret", is_flag=True, help="Do not ask for the installation's secret.")
@_concurrency
@pass_session
def restore(
    session: Session,
    target: str,
    config_file: Path | None,
    data_dir: Path | None,
    kv: str,
    backup_id: str,
    without_secret: bool,
    concurrency: int,
) -> None:
    """Fill the empty metadata store of the configuration from a backup, and compare all of it by digests.

    Tarn must be stopped, and starts only when the restore is complete. If it is interrupted, run the same command
    again. Garbage collections are held for seven days afterwards.
    """
    from tarn.rpc.process.system import SystemClock
    from tarn_cli.journal_notes import JournalNotes

    config = _config(session, config_file, data_dir, kv, may_be_new=True)
    notes = JournalNotes(config, SystemClock())

    async def work(run: BackupRun) -> Record:
        from tarn.snapshot.files.manifest import Scope
        from tarn.snapshot.files.stored import open_snapshot
        from tarn.snapshot.installation.restoring import restore as restore_backup

        opened = await open_snapshot(await run.target(target), Scope.INSTALLATION, backup_id)
        if not without_secret:
            run.check_secret(opened)
        store = await run.store_alone()
        options = run.transfer(concurrency)
        done = await restore_backup(opened, store, run.ids, options, before_opening=notes)
        return {
            "backup": opened.manifest.snapshot_id,
            "store": store.about,
            "as_of": iso_seconds(opened.manifest.begin_time_us),
            "repositories": len(opened.manifest.repositories),
            "rows": done.rows,
        }

    session.output.one(_run(session, config, work, "backup restore", target))
    if remark := notes.remark():
        session.output.remark(remark)
    session.output.remark(
        "run `tarn fsck` now; garbage collections are held for seven days (`tarn gc release` ends that)"
    )


@backup.command()
@click.argument("target")
@config_option
@data_dir_option
@click.option(
    "--keep", type=click.IntRange(1), required=True, help="How many of the newest backups to keep."
)
@pass_session
def prune(
    session: Session, target: str, config_file: Path | None, data_dir: Path | None, keep: int
) -> None:
    """Remove old backups, and the chunks that no backup needs any more. Not while a backup is made."""
    config = _unopened(session, config_file, data_dir)

    async def work(run: BackupRun) -> Record:
        from tarn.snapshot.files.pruning import prune as prune_target

        done = await prune_target(await run.target(target), keep, run.clock, run.ids)
        return {"kept": len(done.kept), "removed": list(done.removed), "chunks": done.chunks}

    session.output.one(_run(session, config, work, "backup prune", target))


def _config(
    session: Session,
    config_file: Path | None,
    data_dir: Path | None,
    kv: str,
    *,
    may_be_new: bool = False,
) -> Config:
    variables = kv_variables(kv, None)
    return store_config(session, config_file, data_dir, variables=variables, may_be_new=may_be_new)


def _unopened(session: Session, config_file: Path | None, data_dir: Path | None) -> Config:
    """The configuration for a command that opens the backup, and no store of the installation."""
    if config_file is None:
        data_dir = data_folder(session, None, data_dir)
    return read_config(config_file, session.environment, data_dir)


def _run(
    session: Session,
    config: Config,
    work: Callable[[BackupRun], Awaitable[T]],
    command: str = "",
    target: str = "",
) -> T:
    """Runs `work`; the audit log records a command that has a name."""
    from tarn_cli.audited import audited
    from tarn_cli.backup_run import run_backup

    async def recorded(run: BackupRun) -> T:
        with audited(config, run.clock, command, target=target):
            return await work(run)

    try:
        return run_backup(session, config, recorded if command else work)
    except asyncio.CancelledError as stop:
        session.output.remark("interrupted; run the same command again")
        raise click.exceptions.Exit(_TERMINATED) from stop


def _record(manifest: Manifest) -> dict[str, object]:
    return {
        "backup": manifest.snapshot_id,
        "installation": manifest.installation_id,
        "begin": iso_seconds(manifest.begin_time_us),
        "end": iso_seconds(manifest.end_time_us),
        "repositories": len(manifest.repositories),
        "rows": manifest.rows,
        "chunks": manifest.chunks,
        "new_chunks": manifest.new_chunks,
        "size": shown_size(manifest.size_bytes),
        "new": shown_size(manifest.new_bytes),
    }
