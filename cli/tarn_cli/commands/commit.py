"""`tarn commit`: creates a commit; and how every command prints a commit."""

from __future__ import annotations

import click
from google.protobuf.timestamp_pb2 import Timestamp

from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.times import local_now, parse_time
from tarn_cli.objects.uri import parse_ref
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Command, Session, pass_session
from tarn_proto.graveler.v1.commit_service_pb2 import Commit

__all__ = ["authored_at", "commit", "commit_record", "commit_text", "metadata_pairs"]


def authored_at(found: Commit) -> Timestamp:
    """When the change was made, as its author says; otherwise the time of the commit."""
    return found.author_time if found.HasField("author_time") else found.create_time


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
        **({"authored": shown_time(found.author_time)} if found.HasField("author_time") else {}),
        **({"expired_by": found.expired_by} if found.expired_by else {}),
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


def _said(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if not value.strip():
        raise click.BadParameter("it is empty; say what the commit changes")
    return value


@click.command(cls=Command)
@click.argument("branch_uri", metavar="REPOSITORY/BRANCH")
@click.option("-m", "--message", required=True, callback=_said, help="Message of the commit.")
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@click.option("--allow-empty", is_flag=True, help="Commit even if nothing changed.")
@click.option("--date", metavar="TIME", help="When the change was made, if it was not now.")
@pass_session
def commit(
    session: Session,
    branch_uri: str,
    message: str,
    meta: tuple[str, ...],
    allow_empty: bool,
    date: str | None,
) -> None:
    """Commit the uncommitted changes of a branch.

    --date is shown by `tarn log`, e.g. 2026-05-01 or 2026-05-01T08:30:00Z. Retention and the filters of the log go by
    the time of the commit.

    \b
    Example:
      tarn commit lake/main -m "Load May" --meta job=nightly
    """
    uri = parse_ref(branch_uri)
    metadata = metadata_pairs(meta)
    author_time = None if date is None else parse_time(date, local_now())
    made = session.run(
        lambda tarn: tarn.graveler.create_commit(
            tarn.call(),
            uri.repository,
            uri.ref,
            message,
            metadata=metadata,
            allow_empty=allow_empty,
            author_time=author_time,
        )
    )
    counts = {
        "added": made.added_count,
        "changed": made.changed_count,
        "removed": made.removed_count,
    }
    text = f"{made.commit.commit_id}  +{counts['added']} ~{counts['changed']} -{counts['removed']}"
    session.output.one({**commit_record(made.commit), **counts}, text)
