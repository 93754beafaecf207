"""`tarn diff`: shows the uncommitted changes of a branch, or the differences between two refs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.uri import parse_ref
from tarn_cli.output import Record, shown_size
from tarn_cli.session import Command, Session, pass_session

if TYPE_CHECKING:  # `tarn --help` does without
    from tarn.client.commits import ChangesPage

__all__ = ["diff"]

_Change = tuple[str, bytes, bytes]
"""A path, and its packed entries on the left and on the right; one of them may be empty."""


def _kind(change: _Change) -> tuple[str, str, str]:
    """The kind of the change: a word, a sign and a colour."""
    _, left, right = change
    if not left:
        return "added", "+", "green"
    return ("changed", "~", "yellow") if right else ("removed", "-", "red")


def _size(packed: bytes) -> int | None:
    from tarn.core.entry import unpack

    return unpack(packed).size if packed else None


def _record(change: _Change) -> Record:
    path, left, right = change
    return {
        "path": path,
        "change": _kind(change)[0],
        "left_size_bytes": _size(left),
        "right_size_bytes": _size(right),
    }


def _line(change: _Change) -> str:
    path, left, right = change
    _, sign, colour = _kind(change)
    sizes = [size for size in (_size(left), _size(right)) if size is not None]
    shown = " -> ".join(shown_size(size) for size in sizes)
    return click.style(f"{sign} {path}", fg=colour) + f"  ({shown})"


def _changes(page: ChangesPage) -> list[_Change]:
    return list(zip(page.paths, page.left_entries, page.right_entries, strict=True))


@click.command(cls=Command)
@click.argument("left", metavar="REPOSITORY/REF")
@click.argument("right", metavar="[REPOSITORY/REF]", default="")
@click.option("--prefix", default="", help="Only paths with this prefix.")
@click.option(
    "-n", "--limit", type=click.IntRange(0), default=1000, show_default=True, help="0 for all."
)
@pass_session
def diff(session: Session, left: str, right: str, prefix: str, limit: int) -> None:
    """Show the uncommitted changes of a branch, or the changes from one ref to another.

    \b
    Examples:
      tarn diff lake/main                 uncommitted changes
      tarn diff lake/main lake/fix        from main to fix
      tarn diff lake/main~1 lake/main     the last commit
    """
    from tarn_cli.connection import Connection, collect

    before = parse_ref(left)
    after = parse_ref(right) if right else None
    if after is not None and after.repository != before.repository:
        raise CliError(Exit.USAGE, f"{before} and {after} are refs of different repositories")

    async def work(tarn: Connection) -> list[_Change]:
        # Reads one more than it shows, to learn whether there are more.
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
                _changes,
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
            _changes,
            wanted,
        )

    _show(session, session.run(work), limit)


def _show(session: Session, found: list[_Change], limit: int) -> None:
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
