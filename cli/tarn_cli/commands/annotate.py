"""`tarn annotate`: shows which commit gave each path its present content."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tarn_cli.objects.uri import parse_prefix
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Command, Session, pass_session
from tarn_cli.terminal import write_line, write_lines

if TYPE_CHECKING:  # `tarn --help` does without
    from tarn.client.commits import PathAnnotation

__all__ = ["annotate"]


def _record(line: PathAnnotation) -> Record:
    return {
        "path": line.path,
        "commit": line.commit.commit_id,
        "is_final": line.is_final,
        "committer": line.commit.committer,
        "created": shown_time(line.commit.create_time),
        "subject": line.commit.subject,
    }


def _line(line: PathAnnotation, width: int) -> str:
    mark = " " if line.is_final else "^"
    commit = line.commit
    who = f"{commit.committer:<{width}}"
    time = shown_time(commit.create_time)
    return f"{mark}{commit.commit_id[:12]}  {who}  {time}  {line.path}  ({commit.subject})"


@click.command(cls=Command)
@click.argument("prefix", metavar="REPOSITORY/REF[/PREFIX]")
@click.option(
    "-n", "--limit", type=click.IntRange(0), default=1000, show_default=True, help="0 for all."
)
@pass_session
def annotate(session: Session, prefix: str, limit: int) -> None:
    """Show for each path which commit gave it its present content.

    A branch stands for its newest commit, without uncommitted changes. A line that begins with ^ is not final: the
    search stopped at this commit, which has the content, and an older one may have made it. Annotate that commit to
    continue.

    \b
    Examples:
      tarn annotate lake/main/raw/
      tarn annotate lake/v1
    """
    from tarn_cli.connection import collect

    uri = parse_prefix(prefix)
    # Reads one more than it shows, to learn whether there are more.
    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.graveler.annotate_paths(
                tarn.call(),
                uri.repository,
                uri.ref,
                prefix=uri.path,
                page_size=size,
                page_token=token,
            ),
            lambda page: page.lines,
            limit + 1 if limit else 0,
        )
    )
    shown = found[:limit] if limit else found
    if session.as_json:
        session.output.many(map(_record, shown), ())
    elif not shown:
        session.output.remark("no paths")
    else:
        width = max(len(line.commit.committer) for line in shown)
        write_lines(_line(line, width) for line in shown)
    if len(found) > len(shown):
        write_line(f"more than {limit} paths: --limit 0 shows all", err=True)
