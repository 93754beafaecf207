"""`tarn diff`: what is uncommitted on a branch, or what differs between two refs."""

from __future__ import annotations

import click

from tarn_cli.exits import CliError, Exit
from tarn_cli.output import Record, shown_size
from tarn_cli.session import Command, Session, pass_session
from tarn_cli.uri import parse_ref
from tarn_proto.graveler.v1 import commit_service_pb2 as pb

__all__ = ["diff"]

_KINDS = {
    pb.CHANGE_KIND_ADDED: ("added", "+", "green"),
    pb.CHANGE_KIND_REMOVED: ("removed", "-", "red"),
    pb.CHANGE_KIND_CHANGED: ("changed", "~", "yellow"),
}


def _size(packed: bytes) -> int | None:
    from tarn.core.entry import unpack

    return unpack(packed).size if packed else None


def _record(change: pb.Change) -> Record:
    return {
        "path": change.path,
        "change": _KINDS[change.kind][0],
        "left_size_bytes": _size(change.left_entry),
        "right_size_bytes": _size(change.right_entry),
    }


def _line(change: pb.Change) -> str:
    _, sign, colour = _KINDS[change.kind]
    sizes = [
        size for size in (_size(change.left_entry), _size(change.right_entry)) if size is not None
    ]
    shown = " -> ".join(shown_size(size) for size in sizes)
    return click.style(f"{sign} {change.path}", fg=colour) + f"  ({shown})"


@click.command(cls=Command)
@click.argument("left", metavar="REPOSITORY/REF")
@click.argument("right", metavar="[REPOSITORY/REF]", default="")
@click.option("--prefix", default="", help="Only paths that start so.")
@click.option(
    "-n", "--limit", type=click.IntRange(0), default=1000, show_default=True, help="0 for all."
)
@pass_session
def diff(session: Session, left: str, right: str, prefix: str, limit: int) -> None:
    """Show what is uncommitted on a branch, or what changed from one ref to another.

    \b
    Examples:
      tarn diff lake/main                 what is uncommitted
      tarn diff lake/main lake/fix        from main to fix
      tarn diff lake/main~1 lake/main     the last commit
    """
    from tarn_cli.connection import Connection, collect

    before = parse_ref(left)
    after = parse_ref(right) if right else None
    if after is not None and after.repository != before.repository:
        raise CliError(Exit.USAGE, f"{before} and {after} are refs of different repositories")

    async def work(tarn: Connection) -> list[pb.Change]:
        # One more than is shown tells whether there are more.
        wanted = limit + 1 if limit else 0
        if after is None:
            return await collect(
                lambda size, token: tarn.graveler.diff_uncommitted(
                    tarn.call(),
                    before.repository,
                    before.ref,
                    prefix=prefix,
                    page_size=size,
                    page_token=token,
                ),
                lambda page: page.changes,
                wanted,
            )
        return await collect(
            lambda size, token: tarn.graveler.diff_refs(
                tarn.call(),
                before.repository,
                before.ref,
                after.ref,
                prefix=prefix,
                page_size=size,
                page_token=token,
            ),
            lambda page: page.changes,
            wanted,
        )

    _show(session, session.run(work), limit)


def _show(session: Session, found: list[pb.Change], limit: int) -> None:
    shown = found[:limit] if limit else found
    if session.as_json:
        session.output.many(map(_record, shown), ())
    else:
        for change in shown:
            click.echo(_line(change))
    if len(found) > len(shown):
        click.echo(f"more than {limit} differences: --limit 0 shows all", err=True)
    elif not found:
        session.output.remark("no differences")
