"""`tarn journal`: the files of the journal in the bucket.

It opens the configured block store itself, as `tarn gc` does, and asks graveler whether the user may.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tarn.core.clock import DAY_US
from tarn.core.errors import TarnError
from tarn_cli.collecting import interruptible
from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.context import store_config
from tarn_cli.objects.uri import parse_repository
from tarn_cli.session import Group, Session, pass_session
from tarn_cli.spark import check_spark_options, spark_on, spark_options

if TYPE_CHECKING:  # imported when a command runs
    from tarn.block.port import BlockStore
    from tarn.config import Config
    from tarn.core.ids import RepositoryId
    from tarn.journal.compacting import CompactionRows
    from tarn.journal.epochs import Epoch
    from tarn_cli.backup_run import BackupRun
    from tarn_cli.connection import Connection
    from tarn_cli.nightly_journal import Night
    from tarn_cli.output import Record

__all__ = ["journal"]

Rows = Callable[["BlockStore", str, "Epoch"], "CompactionRows"]


@click.group(cls=Group)
def journal() -> None:
    """The journal of mutations in the bucket: docs/operate/journal.md explains it.

    \b
    Example:
      tarn journal compact
    """


@journal.command()
@click.argument("repositories", nargs=-1)
@config_option
@data_dir_option
@click.option(
    "--keep-days",
    type=click.IntRange(0, 3650),
    default=7,
    show_default=True,
    help="Keep superseded events of objects this long, for consumers of the feed.",
)
@click.option(
    "--keep-epochs-days",
    type=click.IntRange(2, 3650),
    default=30,
    show_default=True,
    help="Keep former epochs this long after the newest one began.",
)
@click.option(
    "--temporary",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="Folder for temporary files, as large as the journal.  [default: that of the system]",
)
@spark_options("Read and write on Spark, for large journals.")
@pass_session
def compact(
    session: Session,
    /,
    repositories: tuple[str, ...],
    config_file: Path | None,
    data_dir: Path | None,
    keep_days: int,
    keep_epochs_days: int,
    temporary: Path | None,
    on_spark: bool,
    master: str,
    settings: dict[str, str],
) -> None:
    """Rewrite the past days of the journals of these repositories, or of all, into few files; run it every night.

    Events of objects go when their staging token was over for --keep-days. The history of refs stays. Files that were
    replaced are deleted two days later. Without REPOSITORIES, the journal of users and quotas is compacted, too.

    Ctrl-C stops it at any moment; the next run begins again.
    """
    check_spark_options(on_spark=on_spark, master=master, settings=settings)
    names = [parse_repository(name) for name in repositories]
    config = store_config(session, config_file, data_dir, beside_server=True)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=temporary))
        rows = _rows_here(Path(folder))
        if on_spark:
            rows = _rows_on_spark(config, stack, master, settings)
        days = (keep_days * DAY_US, keep_epochs_days * DAY_US)
        work = partial(_compact, names=names, config=config, rows=rows, days=days)
        found, failed = interruptible(session, work, "interrupted; run it again")
    session.output.many([_shown(name, night) for name, night in found], _COLUMNS, empty="nothing")
    if failed is not None:
        raise failed


@journal.command()
@click.argument("epoch", type=click.IntRange(0))
@click.option(
    "--repository", default="", help="Whose journal.  [default: that of the installation]"
)
@config_option
@data_dir_option
@click.option("--kv", default="", help="The metadata store, as in `tarn up --kv`.")
@pass_session
def follow(
    session: Session,
    epoch: int,
    repository: str,
    config_file: Path | None,
    data_dir: Path | None,
    kv: str,
) -> None:
    """Let the journal of this metadata store go on after EPOCH, the newest one of the bucket, whoever began that; 0 if
    there is none.

    For a store that is to be kept and whose drain says that another store may count. What the other store has drained
    is then read by no rebuild, so be sure, and stop the other store. Tarn must be stopped here, too.

    \b
    Example:
      tarn journal follow 7 --repository lake --config tarn.yaml
    """
    from tarn_cli.backup_run import run_backup
    from tarn_cli.node.kv_url import kv_variables

    name = parse_repository(repository) if repository else None
    variables = kv_variables(kv, None)
    config = store_config(session, config_file, data_dir, variables=variables)
    session.output.one(run_backup(session, config, partial(_follow, name=name, number=epoch)))


async def _follow(run: BackupRun, *, name: RepositoryId | None, number: int) -> Record:
    from tarn.block.opening import open_blocks_to_read
    from tarn.journal.following import follow as follow_epoch
    from tarn.journal.following import journal_of
    from tarn.kv.keys import InstallationKeys
    from tarn.snapshot.store import closed
    from tarn_cli.audited import audited
    from tarn_graveler.config import settings_of
    from tarn_graveler.records.repositories import Repositories

    config = run.config
    keys = InstallationKeys(config.installation.id)
    details = {"epoch": number, "repository": name or ""}
    with audited(config, run.clock, "journal follow", **details):
        store = await run.store_alone()
        blocks = await open_blocks_to_read(config, run.clock)
        run.stack.push_async_callback(blocks.close)
        async with closed(store, "its journal is told what to follow", run.ids, run.transfer()):
            journal = keys.installation_id, settings_of(config).drain.namespace
            if name is not None:
                prefix = config.blockstore.namespace_prefix
                repositories = Repositories(store.kv, keys, run.clock, run.ids, prefix)
                journal = journal_of(keys, await repositories.read(name, settle=True))
            found = await follow_epoch(store.kv, keys, blocks, journal, number)
    folder = "" if found is None else found.folder
    return {"journal": journal[1], "follows": number, "folder": folder}


_COLUMNS: Final = (
    "journal",
    "compaction",
    "files",
    "events",
    "replaced",
    "deleted",
    "certified",
    "still_named",
    "missing",
)


def _shown(name: str, night: Night) -> dict[str, object]:
    done = night.compacted
    return {
        "journal": name,
        "compaction": done.number if done is not None else "",
        "files": done.files if done is not None else "",
        "events": done.rows if done is not None else "",
        "replaced": done.replaced if done is not None else "",
        "deleted": night.retired.replaced + night.retired.former,
        "certified": " ".join(night.certified),
        "still_named": " ".join(night.still_named),
        "missing": "; ".join(done.missing) if done is not None else "",
    }


def _rows_here(folder: Path) -> Rows:
    from tarn.journal.compacting import InProcess
    from tarn.rpc.process.system import SystemClock, SystemIds

    ids = SystemIds(SystemClock())

    def rows(blocks: BlockStore, namespace: str, epoch: Epoch) -> CompactionRows:
        return InProcess(blocks, namespace, epoch, ids, folder / ids.nonce().hex())

    return rows


def _rows_on_spark(config: Config, stack: ExitStack, master: str, settings: dict[str, str]) -> Rows:
    spark = stack.enter_context(spark_on(config, master, settings))
    from tarn.block.opening import BlockPlace
    from tarn_spark.journal.compaction import SparkCompaction

    place = BlockPlace.of(config)

    def rows(_blocks: BlockStore, namespace: str, epoch: Epoch) -> CompactionRows:
        return SparkCompaction(spark, place, namespace, epoch)

    return rows


async def _compact(
    tarn: Connection, *, names: Sequence[str], config: Config, rows: Rows, days: tuple[int, int]
) -> tuple[list[tuple[str, Night]], TarnError | None]:
    from tarn.rpc.process.system import SystemClock
    from tarn_cli.nightly_journal import nightly
    from tarn_graveler.config import settings_of

    found: list[tuple[str, Night]] = []
    failed: TarnError | None = None
    clock = SystemClock()
    async with _opened(config) as blocks:
        places = [each async for each in _places(tarn, names)]
        if not names:
            places.append(("", settings_of(config).drain.namespace))
        for name, namespace in places:
            try:
                night = await nightly(
                    blocks,
                    namespace,
                    partial(rows, blocks, namespace),
                    clock,
                    keep_us=days[0],
                    keep_epochs_us=days[1],
                )
            except TarnError as error:
                failed = failed or error
            else:
                found.append((name or namespace, night))
    return found, failed


async def _places(tarn: Connection, names: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
    """Yields repositories, and the namespaces of their journals; the user must be allowed to manage collections."""
    wanted = names or [each.repository_id async for each in tarn.list_repositories()]
    for name in wanted:
        record = await tarn.collections.get(tarn.call(), name)
        yield name, record.storage_namespace


@asynccontextmanager
async def _opened(config: Config) -> AsyncIterator[BlockStore]:
    from tarn.block.opening import open_blocks
    from tarn.rpc.process.system import SystemClock

    blocks = await open_blocks(config, SystemClock())
    try:
        yield blocks
    finally:
        await blocks.close()
