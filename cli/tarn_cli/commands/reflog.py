"""`tarn reflog`: how the head of a branch changed. `tarn branch restore` brings a deleted branch back."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarn.core.ids import parse_branch_id
from tarn_cli.objects.uri import parse_ref, parse_repository
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Command, Session, pass_session
from tarn_proto.graveler.v1.reflog_service_pb2 import HeadChange, HeadOperation

__all__ = ["deleted", "reflog", "restore"]

_COLUMNS = ("ref", "commit", "operation", "user", "time")


@click.command(cls=Command)
@click.argument("branch_uri", metavar="REPOSITORY/BRANCH")
@click.option(
    "-n", "--limit", type=click.IntRange(0), default=20, show_default=True, help="0 for all."
)
@pass_session
def reflog(session: Session, branch_uri: str, limit: int) -> None:
    """Show how the head of a branch changed, newest first. The branch may be deleted.

    The first column is a ref: the head that the branch had after the change.

    \b
    Examples:
      tarn reflog lake/main -n 5
      tarn diff lake/main@{1} lake/main             the last change
      tarn fs ls 'lake/main@{1 day ago}/raw/'       the branch as it was a day ago
      tarn branch create lake/rescue --from 'main@{2}'
    """
    from tarn_cli.connection import collect

    uri = parse_ref(branch_uri)
    name = parse_branch_id(uri.ref)
    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.graveler.list_reflog(
                tarn.call(), uri.repository, name, page_size=size, page_token=token
            ),
            lambda page: page.entries,
            limit,
        )
    )
    session.output.many(_records(name, found), _COLUMNS, empty="no entries")


def _records(name: str, found: Sequence[HeadChange]) -> list[Record]:
    return [
        {
            "ref": f"{name}@{{{index}}}",
            "commit": each.new_commit_id,
            "former_commit": each.old_commit_id,
            "operation": _operation(each),
            "user": each.user_id,
            "time": shown_time(each.time),
            "time_us": each.time.ToMicroseconds(),
        }
        for index, each in enumerate(found)
    ]


def _operation(found: HeadChange) -> str:
    name = HeadOperation.Name(found.operation).removeprefix("HEAD_OPERATION_")
    return "other" if name == "UNSPECIFIED" else name.lower().replace("_", "-")


@click.command(cls=Command)
@click.argument("branch_uri", metavar="REPOSITORY/BRANCH")
@pass_session
def restore(session: Session, branch_uri: str) -> None:
    """Create a deleted branch again, at the head that it had. Its uncommitted changes are lost.

    \b
    Example:
      tarn branch deleted lake              the branches that can be restored
      tarn branch restore lake/fix
    """
    uri = parse_ref(branch_uri)
    name = parse_branch_id(uri.ref)
    found = session.run(
        lambda tarn: tarn.graveler.restore_branch(tarn.call(), uri.repository, name)
    )
    record = {
        "branch": found.branch_id,
        "commit": found.commit_id,
        "created": shown_time(found.create_time),
    }
    session.output.one(record)


@click.command(cls=Command)
@click.argument("repository")
@click.option("--prefix", default="", help="Only names with this prefix.")
@pass_session
def deleted(session: Session, repository: str, prefix: str) -> None:
    """List the deleted branches that can be restored."""
    from tarn_cli.connection import collect

    name = parse_repository(repository)
    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.graveler.list_deleted_branches(
                tarn.call(), name, prefix=prefix, page_size=size, page_token=token
            ),
            lambda page: page.branches,
        )
    )
    records = [
        {
            "branch": each.branch_id,
            "commit": each.commit_id,
            "deleted": shown_time(each.delete_time),
            "user": each.user_id,
        }
        for each in found
    ]
    session.output.many(
        records, ("branch", "commit", "deleted", "user"), empty="no deleted branches"
    )
