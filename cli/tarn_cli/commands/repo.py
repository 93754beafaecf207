"""`tarn repo`: manages repositories, which are the buckets of the S3 endpoint."""

from __future__ import annotations

from pathlib import Path

import click
from google.protobuf.timestamp_pb2 import Timestamp

from tarn_cli.commands import dump as dumps
from tarn_cli.commands.import_lakefs import import_lakefs
from tarn_cli.commands.rebuild import rebuild_repository
from tarn_cli.commands.rules import COMMANDS
from tarn_cli.objects.uri import parse_repository
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Group, Session, pass_session
from tarn_cli.terminal import confirm
from tarn_proto.graveler.v1.repository_service_pb2 import Repository

__all__ = ["repo"]


def _record(repository: Repository) -> Record:
    return {
        "repository": repository.repository_id,
        "default_branch": repository.default_branch_id,
        "storage_namespace": repository.storage_namespace,
        "created": shown_time(repository.create_time),
    }


@click.group(cls=Group)
def repo() -> None:
    """Repositories. Each one is a bucket of the S3 endpoint."""


@repo.command()
@click.argument("repository")
@click.option("--default-branch", default="", help="Name of the first branch.  [default: main]")
@click.option("--storage-namespace", default="", help="Place of its blocks, e.g. s3://bucket/lake.")
@click.option("--if-absent", is_flag=True, help="Succeed if it exists already.")
@pass_session
def create(
    session: Session,
    repository: str,
    default_branch: str,
    storage_namespace: str,
    if_absent: bool,
) -> None:
    """Create a repository with an empty first commit.

    \b
    Example:
      tarn repo create lake
    """
    from tarn.core.errors import Reason, TarnError
    from tarn_cli.connection import Connection

    name = parse_repository(repository)

    async def work(tarn: Connection) -> Repository:
        try:
            return await tarn.graveler.create_repository(
                tarn.call(),
                name,
                storage_namespace=storage_namespace,
                default_branch_id=default_branch,
            )
        except TarnError as error:
            # Whoever may not create repositories may still find that this one exists.
            if not (if_absent and error.reason in {Reason.REPOSITORY_EXISTS, Reason.ACCESS_DENIED}):
                raise
            try:
                return await tarn.graveler.get_repository(tarn.call(), name)
            except TarnError as missing:
                raise error from missing

    session.output.one(_record(session.run(work)))


@repo.command(name="list")
@click.option("--prefix", default="", help="Only names with this prefix.")
@pass_session
def list_(session: Session, prefix: str) -> None:
    """List the repositories that you may read."""
    from tarn_cli.connection import collect

    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.graveler.list_repositories(
                tarn.call(), prefix=prefix, page_size=size, page_token=token
            ),
            lambda page: page.repositories,
        )
    )
    columns = ("repository", "default_branch", "storage_namespace", "created")
    session.output.many((_record(each) for each in found), columns, empty="no repositories")


@repo.command()
@click.argument("repository")
@pass_session
def show(session: Session, repository: str) -> None:
    """Show one repository."""
    name = parse_repository(repository)
    found = session.run(lambda tarn: tarn.graveler.get_repository(tarn.call(), name))
    session.output.one(_record(found))


@repo.command()
@click.argument("repository")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--with-data",
    is_flag=True,
    help="Delete its data in the bucket, too, after a grace time. Needs the permission EraseData.",
)
@click.option("--grace", default="", metavar="DURATION", help="Grace time.  [default: 7d]")
@pass_session
def delete(session: Session, repository: str, yes: bool, with_data: bool, grace: str) -> None:
    """Delete a repository with its branches, tags and history.

    Its data stay in its storage namespace, and `tarn repo recover` can bring it back. With --with-data, `tarn gc run`
    deletes them after the grace time, in which the repository can still be brought back: docs/operate/erase.md.

    \b
    Example:
      tarn repo delete lake --with-data --grace 30d
    """
    from tarn.core.errors import Kind, Reason, TarnError

    name = parse_repository(repository)
    if grace and not with_data:
        raise click.UsageError("--grace is for --with-data")
    seconds = _seconds(grace) if grace else 0
    if not yes:
        question = f"Delete {name} with all of its history?"
        if with_data:
            question = (
                f"Delete {name} with all of its history, and after {grace or '7d'} all of its data in the bucket? An "
                "installation that was restored from the same place loses them, too."
            )
        confirm(question)
    purge_after_us = session.run(
        lambda tarn: tarn.graveler.delete_repository(
            tarn.call(), name, with_data=with_data, grace_seconds=seconds
        )
    )
    session.output.remark(f"deleted {name}")
    if not with_data:
        return
    if not purge_after_us:
        text = f"{name} is deleted, but its data stay: this graveler is too old to delete them"
        raise TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text)
    due = Timestamp()
    due.FromMicroseconds(purge_after_us)
    session.output.remark(
        f"its data may be deleted from {shown_time(due)}; tarn gc doomed shows it, tarn gc spare keeps them"
    )


def _seconds(duration: str) -> int:
    from tarn.config.values import Sort, Within, parse_value

    try:
        milliseconds = parse_value(Within(Sort.DURATION, "1s", "8760h"), duration, Path())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--grace") from error
    assert isinstance(milliseconds, int)
    return milliseconds // 1000


for _command in (*COMMANDS, *dumps.COMMANDS, rebuild_repository, import_lakefs):
    repo.add_command(_command)
