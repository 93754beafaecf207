"""`tarn repo dump`, `restore` and `recover`: the metadata of one repository as files, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tarn.core.byte_sizes import shown_size
from tarn.core.ids import parse_branch_id
from tarn_cli.objects.uri import parse_repository
from tarn_cli.output import Record
from tarn_cli.session import Command, Session, pass_session

if TYPE_CHECKING:  # grpc takes a third of a second to import
    from tarn.snapshot.repository.transfer import Restored

__all__ = ["COMMANDS"]


@click.command(cls=Command)
@click.argument("repository")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--restart", is_flag=True, help="Discard an interrupted dump instead of continuing it."
)
@pass_session
def dump(session: Session, repository: str, folder: Path, restart: bool) -> None:
    """Write branches, tags, reflogs, settings and commits of a repository to a folder.

    Objects stay in the bucket; uncommitted changes are not dumped. The repository may be in use. After an interruption,
    the same command continues. Earlier dumps in the folder stay.

    \b
    Example:
      tarn repo dump lake lake.dump
    """
    from tarn.rpc.process.system import SystemClock, SystemIds
    from tarn.snapshot.files.work import RateLimiter, TransferOptions
    from tarn.snapshot.repository.dumping import RepositoryDump, own_folder
    from tarn.snapshot.repository.transfer import Transfer
    from tarn_cli.connection import Connection

    if TYPE_CHECKING:
        from tarn.snapshot.files.manifest import Manifest

    name = parse_repository(repository)
    clock = SystemClock()
    target, options = own_folder(folder), TransferOptions(clock, RateLimiter(clock))
    with session.output.progress_console.status(f"dumping {name}") as status:

        async def work(tarn: Connection) -> Manifest:
            begun = await RepositoryDump.begin(
                target, name, SystemIds(clock), options, restart=restart
            )
            await Transfer(tarn.graveler, tarn.call, status.update).dump(name, begun)
            return await begun.finish()

        manifest = session.run(work)
    (about,) = manifest.repositories
    record: Record = {
        "repository": name,
        "folder": str(folder),
        "dump": manifest.snapshot_id,
        "branches": about.branches,
        "tags": about.tags,
        "commits": about.commits,
        "lines": manifest.rows,
        "size_bytes": manifest.size_bytes,
        "new_bytes": manifest.new_bytes,
    }
    size = shown_size(manifest.new_bytes)
    session.output.one(record, f"dumped {name} to {folder} ({size} new)")


@click.command(cls=Command)
@click.argument("repository")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--dump", "dump_id", default="", metavar="ID", help="Which dump.  [default: the newest]"
)
@click.option(
    "--storage-namespace", default="", help="Place of the blocks.  [default: that of the dump]"
)
@click.option("--default-branch", default="", help="[default: that of the dump]")
@pass_session
def restore(
    session: Session,
    repository: str,
    folder: Path,
    dump_id: str,
    storage_namespace: str,
    default_branch: str,
) -> None:
    """Create a repository from a dump, over the objects that are still in the bucket.

    The repository must not exist, and no other repository may have its storage namespace. It becomes visible when it is
    complete. After an interruption, the same command continues; `tarn repo delete` gives up.

    \b
    Example:
      tarn repo restore lake lake.dump
    """
    from tarn.rpc.process.system import SystemClock
    from tarn.snapshot.files.target import FolderTarget
    from tarn.snapshot.files.work import RateLimiter, TransferOptions
    from tarn.snapshot.repository.transfer import Transfer, checked
    from tarn_cli.connection import Connection

    name = parse_repository(repository)
    default = parse_branch_id(default_branch) if default_branch else ""
    clock = SystemClock()
    with session.output.progress_console.status(f"restoring {name}") as status:

        async def work(tarn: Connection) -> Restored:
            options = TransferOptions(clock, RateLimiter(clock))
            found = await checked(FolderTarget(folder), options, dump_id)
            transfer = Transfer(tarn.graveler, tarn.call, status.update, sleep=clock.sleep)
            return await transfer.restore(name, found, storage_namespace, default)

        done = session.run(work)
    session.output.one(_record(name, done), _summary("restored", name, done))


@click.command(cls=Command)
@click.argument("repository")
@click.option(
    "--storage-namespace", required=True, help="Place of the blocks, e.g. s3://bucket/lake."
)
@click.option("--default-branch", default="main", show_default=True, help="A recovered branch.")
@pass_session
def recover(session: Session, repository: str, storage_namespace: str, default_branch: str) -> None:
    """Create a repository from the bucket alone, without metadata store and dump.

    Recovers commits, and the branches that have commits of their own; also deleted ones. Tags, reflogs, settings and
    uncommitted changes are lost. `tarn repo show` prints the storage namespace of a repository: note it.

    \b
    Example:
      tarn repo recover lake --storage-namespace s3://bucket/lake-1f2e3d4c
    """
    from tarn.rpc.process.system import SystemClock
    from tarn.snapshot.repository.transfer import Transfer
    from tarn_cli.connection import Connection

    name = parse_repository(repository)
    default = parse_branch_id(default_branch)
    with session.output.progress_console.status(f"recovering {name}") as status:

        async def work(tarn: Connection) -> Restored:
            transfer = Transfer(tarn.graveler, tarn.call, status.update, sleep=SystemClock().sleep)
            return await transfer.recover(name, storage_namespace, default)

        done = session.run(work)
    session.output.one(_record(name, done), _summary("recovered", name, done))
    for branch_id in done.unheaded:
        session.output.remark(f"branch {branch_id} is not recovered: no commit of it is intact")
    for path in done.damaged[:10]:
        session.output.remark(f"{path!a} cannot be used")


def _record(name: str, done: Restored) -> Record:
    return {
        "repository": name,
        "storage_namespace": done.repository.storage_namespace if done.repository else "",
        "commits": done.commits,
        "branches": done.branches,
        "tags": done.tags,
        "reflog_entries": done.reflog_entries,
        "commits_left_out": done.left_out,
        "damaged": done.damaged,
        "branches_left_out": done.unheaded,
    }


def _summary(verb: str, name: str, done: Restored) -> str:
    text = f"{verb} {name}: {done.branches} branches, {done.tags} tags, {done.commits} commits"
    if done.left_out:
        text += f"; {done.left_out} commits left out, because ancestors are missing"
    if done.damaged:
        text += f"; {len(done.damaged)} files cannot be used"
    return text


COMMANDS = (dump, restore, recover)
