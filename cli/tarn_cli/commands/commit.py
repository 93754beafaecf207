"""`tarn commit` and `tarn log`: create a commit, and show the history."""

from __future__ import annotations

import click

from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.uri import parse_ref
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Command, Session, pass_session
from tarn_proto.graveler.v1.commit_service_pb2 import Commit

__all__ = ["commit", "commit_record", "commit_text", "log", "metadata_pairs"]


def commit_record(found: Commit) -> Record:
    """The fields of a commit, by the names that every command prints."""
    return {
        "commit": found.commit_id,
        "parents": list(found.parent_ids),
        "committer": found.committer,
        "created": shown_time(found.create_time),
        "message": found.message,
        "metadata": dict(found.metadata),
        "metarange": found.metarange_id,
        "generation": found.generation,
    }


def commit_text(found: Commit) -> str:
    """A new commit on one line: its id, and the first line of its message."""
    return f"{found.commit_id}  {found.message.partition(chr(10))[0]}"


def metadata_pairs(values: tuple[str, ...]) -> dict[str, str]:
    """Parses the values of `--meta`.

    Raises:
        CliError: USAGE: a value is not KEY=VALUE.
    """
    pairs = {}
    for value in values:
        key, separator, text = value.partition("=")
        if not key or not separator:
            raise CliError(Exit.USAGE, f"--meta {value!r} is not KEY=VALUE")
        pairs[key] = text
    return pairs


@click.command(cls=Command)
@click.argument("branch_uri", metavar="REPOSITORY/BRANCH")
@click.option("-m", "--message", required=True, help="Message of the commit.")
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@click.option("--allow-empty", is_flag=True, help="Commit even if nothing changed.")
@pass_session
def commit(
    session: Session, branch_uri: str, message: str, meta: tuple[str, ...], allow_empty: bool
) -> None:
    """Commit the uncommitted changes of a branch.

    \b
    Example:
      tarn commit lake/main -m "Load May" --meta job=nightly
    """
    uri = parse_ref(branch_uri)
    metadata = metadata_pairs(meta)
    made = session.run(
        lambda tarn: tarn.graveler.create_commit(
            tarn.call(),
            uri.repository,
            uri.ref,
            message,
            metadata=metadata,
            allow_empty=allow_empty,
        )
    )
    counts = {
        "added": made.added_count,
        "changed": made.changed_count,
        "removed": made.removed_count,
    }
    text = f"{made.commit.commit_id}  +{counts['added']} ~{counts['changed']} -{counts['removed']}"
    session.output.one({**commit_record(made.commit), **counts}, text)


@click.command(cls=Command)
@click.argument("ref_uri", metavar="REPOSITORY/REF")
@click.option(
    "-n", "--limit", type=click.IntRange(0), default=20, show_default=True, help="0 for all."
)
@click.option(
    "--first-parent", is_flag=True, help="Follow first parents only: omit merged commits."
)
@click.option("--oneline", is_flag=True, help="Print one line per commit.")
@pass_session
def log(session: Session, ref_uri: str, limit: int, first_parent: bool, oneline: bool) -> None:
    """Show the history of a ref, newest first.

    \b
    Example:
      tarn log lake/main -n 5 --oneline
    """
    from tarn_cli.connection import collect

    uri = parse_ref(ref_uri)
    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.graveler.list_commits(
                tarn.call(),
                uri.repository,
                uri.ref,
                page_size=size,
                page_token=token,
                first_parent=first_parent,
            ),
            lambda page: page.commits,
            limit,
        )
    )
    if session.as_json:
        session.output.many(map(commit_record, found), ())
        return
    click.echo("\n".join(_line(each) if oneline else _story(each) for each in found))


def _line(found: Commit) -> str:
    return f"{found.commit_id[:12]}  {found.message.partition(chr(10))[0]}"


def _story(found: Commit) -> str:
    lines = [
        click.style(f"commit {found.commit_id}", fg="yellow"),
        f"Author: {found.committer}",
        f"Date:   {shown_time(found.create_time)}",
    ]
    if len(found.parent_ids) > 1:
        lines.insert(1, "Merge:  " + " ".join(parent[:12] for parent in found.parent_ids))
    lines += [f"Meta:   {key}={value}" for key, value in sorted(found.metadata.items())]
    return "\n".join([*lines, "", *(f"    {line}" for line in found.message.splitlines()), ""])
