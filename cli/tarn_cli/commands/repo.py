"""`tarn repo`: manages repositories, which are the buckets of the S3 endpoint."""

from __future__ import annotations

import click

from tarn_cli.commands import dump as dumps
from tarn_cli.commands.rules import COMMANDS
from tarn_cli.objects.uri import parse_repository
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Group, Session, pass_session
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
            if not (if_absent and error.reason == Reason.REPOSITORY_EXISTS):
                raise
            return await tarn.graveler.get_repository(tarn.call(), name)

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
@pass_session
def delete(session: Session, repository: str, yes: bool) -> None:
    """Delete a repository with its branches, tags and history."""
    name = parse_repository(repository)
    if not yes:
        click.confirm(f"Delete {name} with all of its history?", abort=True, err=True)
    session.run(lambda tarn: tarn.graveler.delete_repository(tarn.call(), name))
    session.output.remark(f"deleted {name}")


for _command in (*COMMANDS, *dumps.COMMANDS):
    repo.add_command(_command)
