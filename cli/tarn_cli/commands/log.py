"""`tarn log`: shows the history of a ref, or what one ref has and another one lacks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import click

from tarn_cli.commands.commit import authored_at, commit_record
from tarn_cli.exits import CliError, Exit
from tarn_cli.graph import Node, drawn
from tarn_cli.objects.times import local_now, parse_time
from tarn_cli.objects.uri import parse_ref, parse_ref_of
from tarn_cli.output import shown_time
from tarn_cli.session import Command, Session, pass_session
from tarn_cli.terminal import write_line, write_lines
from tarn_proto.graveler.v1.commit_service_pb2 import Commit

__all__ = ["Refs", "log", "parse_refs"]

_RANGE = re.compile(r"((?:[^{}.]|\.(?!\.)|\{[^{}]*\})*)(\.{2,3})(.*)", re.DOTALL)
"""Dots inside braces, as in `main@{…}`, separate nothing."""


@dataclass(frozen=True, slots=True)
class Refs:
    """What `REPOSITORY/REF`, `REPOSITORY/A..B` or `REPOSITORY/A...B` names.

    Attributes:
        ref: the ref whose history is shown.
        exclude: the ref whose history is left out; empty for none.
        symmetric: leave out only what both have.
    """

    repository: str
    ref: str
    exclude: str = ""
    symmetric: bool = False


def parse_refs(text: str) -> Refs:
    """Parses the argument of `tarn log`; B may have `lake/` before it, too.

    Raises:
        CliError: USAGE: a side of the range is empty; and as `parse_ref`.
    """
    matched = _RANGE.fullmatch(text)
    if matched is None:
        uri = parse_ref(text)
        return Refs(uri.repository, uri.ref)
    left, dots, right = matched.groups()
    if not right or right.startswith(".") or ".." in right:
        rule = "expected e.g. lake/v1..main: both sides of .. and ... must be refs"
        raise CliError(Exit.USAGE, f"{text!r} is not a range of history", rule)
    uri = parse_ref(left)
    right = parse_ref_of(right, uri.repository)
    return Refs(uri.repository, right, uri.ref, symmetric=dots == "...")


@click.command(cls=Command)
@click.argument("refs", metavar="REPOSITORY/REF|A..B|A...B")
@click.option(
    "-n", "--limit", type=click.IntRange(0), default=20, show_default=True, help="0 for all."
)
@click.option(
    "--first-parent", is_flag=True, help="Follow first parents only: omit merged commits."
)
@click.option("--since", metavar="TIME", help="Only commits made at this time or later.")
@click.option("--until", metavar="TIME", help="Only commits made before this time.")
@click.option("--author", default="", metavar="USER", help="Only commits of this user.")
@click.option("--path", "paths", multiple=True, help="Only commits that change it; repeatable.")
@click.option(
    "--prefix",
    "prefixes",
    multiple=True,
    help="Only commits that change a path with it; repeatable.",
)
@click.option("--oneline", is_flag=True, help="Print one line per commit.")
@click.option("--graph", is_flag=True, help="Draw the lines of history beside the commits.")
@pass_session
def log(
    session: Session,
    refs: str,
    limit: int,
    first_parent: bool,
    since: str | None,
    until: str | None,
    author: str,
    paths: tuple[str, ...],
    prefixes: tuple[str, ...],
    oneline: bool,
    graph: bool,
) -> None:
    """Show the history of a ref, newest first: no commit before one of its descendants.

    A..B shows what B has and A lacks; A...B what only one of them has. Times are those of the commits, e.g. 2026-05-01,
    2026-05-01T08:30:00Z, '3 days ago'. A commit changes a path if its object there differs from that of each parent, so
    a merge changes none, unless --first-parent compares it with its first parent.

    \b
    Examples:
      tarn log lake/main -n 5 --oneline
      tarn log lake/main..fix --oneline            commits of fix that main lacks
      tarn log lake/main --graph --oneline
      tarn log lake/main --prefix raw/2026/ --path reports/summary.csv
      tarn log lake/main --since '2 days ago' --author ann
    """
    from tarn_cli.connection import collect

    wanted = parse_refs(refs)
    if graph and (since or until or author or paths or prefixes):
        text = "--graph draws connected commits, so it cannot be combined with filters"
        raise CliError(Exit.USAGE, text, "leave out --graph, or the filters")
    now = local_now()
    first, last = (parse_time(each, now) if each else None for each in (since, until))
    # Reads one more than it shows, to learn whether there are more.
    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.graveler.list_commits(
                tarn.call(),
                wanted.repository,
                wanted.ref,
                page_size=size,
                page_token=token,
                first_parent=first_parent,
                exclude_ref=wanted.exclude,
                symmetric=wanted.symmetric,
                since=first,
                until=last,
                committer=author,
                paths=paths,
                prefixes=prefixes,
            ),
            lambda page: page.commits,
            limit + 1 if limit else 0,
        )
    )
    shown = found[:limit] if limit else found
    if session.as_json:
        session.output.many(map(commit_record, shown), ())
    elif not shown:
        session.output.remark("no commits")
    elif graph:
        nodes = _nodes(shown, oneline, first_parent, is_whole=len(shown) == len(found))
        write_lines(drawn(nodes))
    else:
        _write(shown, oneline=oneline)


def _write(found: Sequence[Commit], *, oneline: bool) -> None:
    for each in found:
        if oneline:
            write_line(_line(each))
        else:
            write_lines(_story(each), first_fg="yellow")


def _nodes(
    found: Sequence[Commit], oneline: bool, first_parent: bool, is_whole: bool
) -> list[Node]:
    """The commits to draw. Lines to commits that are not shown end, if all commits that follow are known."""
    known = {each.commit_id for each in found}
    nodes = []
    for each in found:
        parents = list(each.parent_ids[:1] if first_parent else each.parent_ids)
        if is_whole:
            parents = [parent for parent in parents if parent in known]
        text = [_line(each)] if oneline else _story(each)
        nodes.append(Node(each.commit_id, list(dict.fromkeys(parents)), text))
    return nodes


def _line(found: Commit) -> str:
    note = "  (expired)" if found.expired_by else ""
    return f"{found.commit_id[:12]}  {found.message.partition(chr(10))[0]}{note}"


def _story(found: Commit) -> list[str]:
    lines = [
        f"commit {found.commit_id}",
        f"Author: {found.committer}",
        f"Date:   {shown_time(authored_at(found))}",
    ]
    if found.HasField("author_time"):
        lines.append(f"Commit: {shown_time(found.create_time)}")
    if len(found.parent_ids) > 1:
        lines.insert(1, "Merge:  " + " ".join(parent[:12] for parent in found.parent_ids))
    if found.expired_by:
        lines.append(f"Expired: by {found.expired_by}")
    lines += [f"Meta:   {key}={value}" for key, value in sorted(found.metadata.items())]
    return [*lines, "", *(f"    {line}" for line in found.message.splitlines()), ""]
