"""`tarn branch`: the refs that take writes."""

from __future__ import annotations

import click

from tarn.core.ids import parse_branch_id
from tarn_cli.objects.uri import parse_ref, parse_repository
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Group, Session, pass_session
from tarn_proto.graveler.v1.branch_service_pb2 import Branch

__all__ = ["branch"]


def _record(found: Branch) -> Record:
    return {
        "branch": found.branch_id,
        "commit": found.commit_id,
        "created": shown_time(found.create_time),
    }


@click.group(cls=Group)
def branch() -> None:
    """Branches. Creating one copies nothing."""


@branch.command()
@click.argument("branch_uri", metavar="REPOSITORY/BRANCH")
@click.option("--from", "source", default="main", show_default=True, help="Ref to start from.")
@pass_session
def create(session: Session, branch_uri: str, source: str) -> None:
    """Create a branch at the commit of any ref. Uncommitted changes are not copied.

    \b
    Example:
      tarn branch create lake/fix --from main~1
    """
    uri = parse_ref(branch_uri)
    name = parse_branch_id(uri.ref)
    found = session.run(
        lambda tarn: tarn.graveler.create_branch(tarn.call(), uri.repository, name, source)
    )
    session.output.one(_record(found))


@branch.command(name="list")
@click.argument("repository")
@click.option("--prefix", default="", help="Only names with this prefix.")
@pass_session
def list_(session: Session, repository: str, prefix: str) -> None:
    """List the branches of a repository."""
    from tarn_cli.connection import collect

    name = parse_repository(repository)
    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.graveler.list_branches(
                tarn.call(), name, prefix=prefix, page_size=size, page_token=token
            ),
            lambda page: page.branches,
        )
    )
    session.output.many(map(_record, found), ("branch", "commit", "created"), empty="no branches")


@branch.command()
@click.argument("branch_uri", metavar="REPOSITORY/BRANCH")
@pass_session
def show(session: Session, branch_uri: str) -> None:
    """Show one branch."""
    uri = parse_ref(branch_uri)
    found = session.run(lambda tarn: tarn.graveler.get_branch(tarn.call(), uri.repository, uri.ref))
    session.output.one(_record(found))


@branch.command()
@click.argument("branch_uri", metavar="REPOSITORY/BRANCH")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@pass_session
def delete(session: Session, branch_uri: str, yes: bool) -> None:
    """Delete a branch and its uncommitted changes. Its commits stay."""
    uri = parse_ref(branch_uri)
    if not yes:
        click.confirm(f"Delete {uri} and its uncommitted changes?", abort=True, err=True)
    session.run(lambda tarn: tarn.graveler.delete_branch(tarn.call(), uri.repository, uri.ref))
    session.output.remark(f"deleted {uri}")
