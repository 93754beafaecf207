"""`tarn rebuild`: makes a lost metadata store anew from the bucket alone (docs/operate/disaster.md)."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.context import store_config
from tarn_cli.exits import CliError, Exit
from tarn_cli.node.kv_url import kv_variables
from tarn_cli.session import Command, Session, pass_session

if TYPE_CHECKING:  # imported when a command runs
    from tarn.config import Config
    from tarn.core.ids import BranchId, RepositoryId
    from tarn.kv.port import Kv, ListingKv
    from tarn_cli.backup_run import BackupRun
    from tarn_graveler.rebuild.report import RebuildReport, RepositoryReport
    from tarn_graveler.rebuild.repository import Rebuilder

__all__ = ["rebuild", "rebuild_repository"]

_TERMINATED: Final = 128 + signal.SIGTERM
_LINES_MAX: Final = 20
"""Most lines of one list that people see; JSON has all."""


_kv = click.option("--kv", default="", help="The metadata store, as in `tarn up --kv`.")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_REPLAYED_HELP = (
    "Result of `python -m tarn_spark.rebuild`: take it over instead of replaying the journal here."
)
_lost_at = click.option(
    "--lost-at",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S"]),
    help="When the store was lost, UTC: the report then says how old the newest change is that it has.",
)


@click.command(cls=Command)
@config_option
@data_dir_option
@_kv
@_lost_at
@click.option(
    "--replayed",
    "replayed_files",
    type=_FILE,
    multiple=True,
    help=f"{_REPLAYED_HELP} May be given once for each repository.",
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
    replayed_files: tuple[Path, ...],
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

    variables = kv_variables(kv, None)
    config = store_config(session, config_file, data_dir, variables=variables, may_be_new=True)

    async def work(run: BackupRun) -> RebuildReport:
        with audited(config, run.clock, "rebuild"):
            return await _rebuild(run, concurrency, replayed_files)

    report = _run(session, config, work)
    _show(session, report, lost_at)
    session.output.remark(
        "start Tarn, run `tarn auth setup` for a key of the first admin, then `tarn fsck`; collections are held until "
        "`tarn gc release`"
    )
    if not report.is_whole:
        raise click.exceptions.Exit(Exit.FINDINGS)


@click.command("rebuild", cls=Command)
@click.argument("repository")
@click.option(
    "--storage-namespace", required=True, help="Place of the blocks, e.g. s3://bucket/lake."
)
@click.option("--replayed", "replayed_file", type=_FILE, help=_REPLAYED_HELP)
@click.option("--default-branch", default="main", show_default=True, help="A rebuilt branch.")
@config_option
@data_dir_option
@_kv
@_lost_at
@pass_session
def rebuild_repository(
    session: Session,
    repository: str,
    storage_namespace: str,
    replayed_file: Path | None,
    default_branch: str,
    config_file: Path | None,
    data_dir: Path | None,
    kv: str,
    lost_at: datetime | None,
) -> None:
    """Create a repository from the journal in its namespace, in an installation that lacks it.

    Tarn may run meanwhile. Brings back branches with uncommitted changes, tags, settings and pull requests; needs
    `journal.enabled` before the loss. If it is interrupted, run the same command again. Garbage collections of the
    repository are held until `tarn gc release`.

    \b
    Example:
      tarn repo rebuild lake --storage-namespace s3://bucket/lake-1f2e3d4c
    """
    from tarn.core.ids import parse_branch_id
    from tarn_cli.audited import audited
    from tarn_cli.objects.uri import parse_repository

    name, default = parse_repository(repository), parse_branch_id(default_branch)
    variables = kv_variables(kv, None)
    config = store_config(session, config_file, data_dir, variables=variables)

    namespace = storage_namespace.rstrip("/")
    files = [] if replayed_file is None else [replayed_file]

    async def work(run: BackupRun) -> RebuildReport:
        with audited(config, run.clock, "repo rebuild", repository=name):
            return await _add(run, name, namespace, default, files)

    report = _run(session, config, work)
    _show(session, report, lost_at)
    session.output.remark("run `tarn fsck`; collections are held until `tarn gc release`")
    if not report.is_whole:
        raise click.exceptions.Exit(Exit.FINDINGS)


def _run(
    session: Session, config: Config, work: Callable[[BackupRun], Awaitable[RebuildReport]]
) -> RebuildReport:
    from tarn_cli.backup_run import run_backup

    try:
        return run_backup(session, config, work)
    except asyncio.CancelledError as stop:
        session.output.remark("interrupted; run the same command again")
        raise click.exceptions.Exit(_TERMINATED) from stop


def _show(session: Session, report: RebuildReport, lost_at: datetime | None) -> None:
    lost_us = int(lost_at.replace(tzinfo=UTC).timestamp() * 1_000_000) if lost_at else 0
    session.output.one(report.as_record(lost_us), list(_lines(report, lost_us)))


async def _rebuild(
    run: BackupRun, concurrency: int, replayed_files: Sequence[Path]
) -> RebuildReport:
    from tarn_graveler.config import settings_of
    from tarn_graveler.rebuild.filling import fill_installation

    target = await run.store_alone()
    tools, made = await _tools(run, replayed_files)
    namespace = settings_of(run.config).drain.namespace
    return await fill_installation(
        tools, made, target, run.ids, run.transfer(concurrency), namespace
    )


async def _add(
    run: BackupRun,
    name: RepositoryId,
    storage_namespace: str,
    default: BranchId,
    replayed_files: Sequence[Path],
) -> RebuildReport:
    from tarn.core.levels import FeatureGate
    from tarn.kv.fence import read_level
    from tarn.kv.record_events import JournaledKv
    from tarn_graveler.rebuild.adding import add_repository
    from tarn_graveler.rebuild.report import RebuildReport
    from tarn_graveler.records.repositories import Repositories

    config, clock, ids = run.config, run.clock, run.ids
    store = await run.store_in_use()
    tools, _ = await _tools(run, replayed_files)
    if strange := [each for each in tools.ready if each != storage_namespace]:
        raise CliError(Exit.USAGE, f"the replayed journal is that of {strange[0]}")
    kv: Kv = store
    if config.journal.enabled:
        level = await read_level(store, config.installation.id)
        gate = FeatureGate.at(level.level)
        kv = JournaledKv(store, config.installation.id, clock, ids, gate)
    prefix = config.blockstore.namespace_prefix
    repositories = Repositories(kv, tools.keys, clock, ids, prefix)

    def show(what: str, done: int, total: int) -> None:
        run.show(what, done, total, 0)

    show(f"rebuilding {name} from the journal", 0, 0)
    done = await add_repository(tools, repositories, store, name, storage_namespace, default, show)
    return RebuildReport(repositories=[done])


async def _tools(run: BackupRun, replayed_files: Sequence[Path]) -> tuple[Rebuilder, ListingKv]:
    """Opens the bucket, and a temporary store for what is rebuilt; loads the results of jobs."""
    from tarn.block.opening import open_blocks
    from tarn.journal.replayed import load_replayed
    from tarn.kv.embedded import open_embedded
    from tarn.kv.keys import InstallationKeys
    from tarn_graveler.config import open_committed_of
    from tarn_graveler.rebuild.repository import Rebuilder

    config = run.config
    blocks = await open_blocks(config, run.clock)
    run.stack.push_async_callback(blocks.close)
    committed = await run.stack.enter_async_context(open_committed_of(config, blocks))
    folder = run.stack.enter_context(tempfile.TemporaryDirectory(prefix="tarn-rebuild-"))
    made = await open_embedded(Path(folder) / "tarn.db", durability="os", alone=True)
    run.stack.push_async_callback(made.close)
    keys = InstallationKeys(config.installation.id)
    ready = {each.namespace: each for each in map(load_replayed, replayed_files)}
    if len(ready) < len(replayed_files):
        raise CliError(Exit.USAGE, "two of the replayed journals are of the same namespace")
    return Rebuilder(made, keys, blocks, committed, run.clock, run.ids, ready), made


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
