"""`tarn branch`: the refs that take writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tarn.core.ids import parse_branch_id
from tarn.core.refs import is_commit_id, may_be_prefix
from tarn_cli.commands import reflog
from tarn_cli.commands.compact import staging_record
from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.uri import parse_ref, parse_ref_of, parse_repository
from tarn_cli.options import not_empty
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Group, Session, pass_session
from tarn_cli.terminal import confirm
from tarn_proto.graveler.v1.branch_service_pb2 import Branch, BranchExpiryState

if TYPE_CHECKING:  # `tarn --help` does without
    from tarn_cli.connection import Connection

__all__ = ["branch"]

_ROWS_COUNTED = 100_000
"""Rows that `show --staging` counts: the most that graveler counts in one call, in about 0.2 s."""


_STATES = {
    BranchExpiryState.BRANCH_EXPIRY_STATE_ACTIVE: "active",
    BranchExpiryState.BRANCH_EXPIRY_STATE_SOON: "expires soon",
    BranchExpiryState.BRANCH_EXPIRY_STATE_EXPIRED: "expired",
}


def _record(found: Branch) -> Record:
    record: dict[str, object] = {
        "branch": found.branch_id,
        "commit": found.commit_id,
        "created": shown_time(found.create_time),
    }
    if found.HasField("expiry"):
        record["expires"] = shown_time(found.expiry.expire_time)
        record["deleted_on"] = shown_time(found.expiry.delete_time)
        record["state"] = _STATES.get(found.expiry.state, "unknown")
    return record


def _lifetime(text: str) -> int:
    """Returns the seconds of a duration such as 7d.

    Raises:
        click.UsageError: it is none, or out of bounds.
    """
    from tarn.config.values import Sort, Within, parse_value

    try:
        milliseconds = parse_value(Within(Sort.DURATION, "1m", "3653d"), text, Path())
    except ValueError as error:
        raise click.UsageError(f"the time after which a branch expires {error}") from error
    assert isinstance(milliseconds, int)
    return milliseconds // 1000


@click.group(cls=Group)
def branch() -> None:
    """Branches. Creating one copies nothing."""


branch.add_command(reflog.restore)
branch.add_command(reflog.deleted)


@branch.command()
@click.argument("branch_uri", metavar="REPOSITORY/BRANCH")
@click.option(
    "--from", "source", default="", help="Ref to start from.  [default: the default branch]"
)
@click.option(
    "--expires",
    metavar="DURATION",
    help="The branch expires after this time, such as 12h or 7d, and is deleted a day later.  [default: never]",
)
@pass_session
def create(session: Session, branch_uri: str, source: str, expires: str | None) -> None:
    """Create a branch at the commit of any ref. Uncommitted changes are not copied.

    \b
    Examples:
      tarn branch create lake/fix --from main~1
      tarn branch create lake/try --expires 7d
    """
    uri = parse_ref(branch_uri)
    name = parse_branch_id(uri.ref)
    seconds = None if expires is None else _lifetime(expires)
    found = session.run(
        lambda tarn: tarn.graveler.create_branch(
            tarn.call(), uri.repository, name, source, time_to_live_s=seconds
        )
    )
    session.output.one(_record(found))


@branch.command()
@click.argument("branch_uri", metavar="REPOSITORY/BRANCH")
@click.argument("duration")
@pass_session
def expires(session: Session, branch_uri: str, duration: str) -> None:
    """Say when a branch expires: DURATION after now, or never. It needs the right to delete the branch.

    A branch that has expired can still be read, written and prolonged for a day. Then it is deleted, with its
    uncommitted changes. Its commits stay, and `tarn branch restore` brings it back.

    \b
    Examples:
      tarn branch expires lake/try 14d
      tarn branch expires lake/try never
    """
    uri = parse_ref(branch_uri)
    seconds = None if duration == "never" else _lifetime(duration)
    found = session.run(
        lambda tarn: tarn.graveler.set_branch_expiry(tarn.call(), uri.repository, uri.ref, seconds)
    )
    session.output.one(_record(found))


@branch.command(name="list")
@click.argument("repository")
@click.option("--prefix", default="", help="Only names with this prefix.")
@click.option("--hidden", is_flag=True, help="Also branches that the repository's rules hide.")
@click.option(
    "--sort",
    type=click.Choice(["name", "commit"]),
    default="name",
    show_default=True,
    help="Order of the list; by commit, branches with the same head stand together.",
)
@pass_session
def list_(session: Session, repository: str, prefix: str, hidden: bool, sort: str) -> None:
    """List the branches of a repository."""
    from tarn_cli.connection import collect

    name = parse_repository(repository)
    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.graveler.list_branches(
                tarn.call(),
                name,
                prefix=prefix,
                page_size=size,
                page_token=token,
                include_hidden=hidden,
            ),
            lambda page: page.branches,
        )
    )
    if sort == "commit":
        found.sort(key=lambda each: (each.commit_id, each.branch_id))
    columns = ["branch", "commit", "created"]
    if any(each.HasField("expiry") for each in found):
        columns += ["expires", "state"]
    session.output.many(map(_record, found), columns, empty="no branches")


@branch.command()
@click.argument("branch_uri", metavar="REPOSITORY/BRANCH")
@click.option(
    "--staging",
    is_flag=True,
    help="Also count the staged rows and layers, which listings read and a compaction folds.",
)
@pass_session
def show(session: Session, branch_uri: str, staging: bool) -> None:
    """Show one branch.

    With --staging, at most 100,000 rows are counted; `complete` is false if there are more.
    """
    uri = parse_ref(branch_uri)
    found = session.run(lambda tarn: tarn.graveler.get_branch(tarn.call(), uri.repository, uri.ref))
    record = _record(found)
    if staging:
        counts = session.run(
            lambda tarn: tarn.graveler.staging_statistics(
                tarn.call(), uri.repository, uri.ref, rows_max=_ROWS_COUNTED
            )
        )
        record = {**record, **staging_record(counts, as_json=session.output.as_json)}
    session.output.one(record)


@branch.command()
@click.argument("branch_uri", metavar="REPOSITORY/BRANCH")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@pass_session
def delete(session: Session, branch_uri: str, yes: bool) -> None:
    """Delete a branch and its uncommitted changes. Its commits stay."""
    uri = parse_ref(branch_uri)
    if not yes:
        confirm(f"Delete {uri} and its uncommitted changes?")
    session.run(lambda tarn: tarn.graveler.delete_branch(tarn.call(), uri.repository, uri.ref))
    session.output.remark(f"deleted {uri}")


@branch.command()
@click.argument("branch_uri", metavar="REPOSITORY/BRANCH")
@click.option(
    "--prefix", metavar="PREFIX", help="Only changes of paths that start with this prefix."
)
@click.option("--path", metavar="PATH", help="Only the change of this path.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@pass_session
def reset(
    session: Session, branch_uri: str, prefix: str | None, path: str | None, yes: bool
) -> None:
    """Discard uncommitted changes of a branch: all, or those of a prefix or of one path. Its commits stay.

    \b
    Examples:
      tarn diff lake/main                         the changes that a reset discards
      tarn branch reset lake/main
      tarn branch reset lake/main --prefix raw/   only those below raw/
      tarn branch reset lake/main --path raw/a    only that of one object
    """
    uri = parse_ref(branch_uri)
    if prefix is not None and path is not None:
        raise CliError(Exit.USAGE, "give --prefix or --path, not both")
    if "" in (prefix, path):
        # A variable of a script that is not set must not discard everything.
        text = "--prefix and --path must not be empty; without them, all uncommitted changes are discarded"
        raise CliError(Exit.USAGE, text)
    where = f" below {prefix} in" if prefix else f" of {path} in" if path else " of"
    changes = f"uncommitted changes{where} {uri}"
    if not yes:
        confirm(f"Discard all {changes}?")
    session.run(
        lambda tarn: tarn.graveler.reset_branch(
            tarn.call(), uri.repository, uri.ref, prefix=prefix, path=path
        )
    )
    session.output.remark(f"discarded the {changes}")


@branch.command()
@click.argument("branch_uri", metavar="REPOSITORY/BRANCH")
@click.argument("target", metavar="REF")
@click.option(
    "--force", is_flag=True, help="Discard uncommitted changes; without it they refuse the move."
)
@click.option(
    "--expect",
    default="",
    callback=not_empty,
    metavar="COMMIT",
    help="Move the branch only from this commit: an id or a unique prefix of one.  [default: the head that "
    "the command reads first]",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@pass_session
def move(
    session: Session, branch_uri: str, target: str, force: bool, expect: str, yes: bool
) -> None:
    """Move the head of a branch to the commit of any ref: a hard reset.

    No commit is deleted. Commits that no other branch or tag reaches are found by their ids only, so the
    command prints the former head. To undo one commit and keep those after it, use `tarn revert`.

    \b
    Examples:
      tarn branch move lake/main main~1               drop the last commit
      tarn branch move lake/main v1 --force           back to a tag; discard uncommitted changes
      tarn branch move lake/main v1 --expect 3f9c2a81 --yes
    """
    uri = parse_ref(branch_uri)
    ref = parse_ref_of(target, uri.repository)

    async def read(tarn: Connection) -> tuple[str, str]:
        head = (await tarn.graveler.get_branch(tarn.call(), uri.repository, uri.ref)).commit_id
        if expect:
            head = await _commit_id(tarn, uri.repository, expect)
        found = await tarn.graveler.get_commit(tarn.call(), uri.repository, ref)
        return head, found.commit_id

    expected, new = session.run(read)
    if not yes:
        loss = " and discard its uncommitted changes" if force else ""
        question = f"Move {uri} from commit {expected[:12]} to commit {new[:12]}{loss}?"
        confirm(question)
    # The commit, not the ref: a ref that moves after the question must not change the answer's meaning.
    found = session.run(
        lambda tarn: tarn.graveler.move_branch(
            tarn.call(), uri.repository, uri.ref, new, expected_commit_id=expected, force=force
        )
    )
    session.output.one({**_record(found), "former_commit": expected})


async def _commit_id(tarn: Connection, repository: str, text: str) -> str:
    """Returns the commit id that a text is, or is a unique prefix of.

    Raises:
        CliError: USAGE: the text is another kind of ref.
        TarnError: REF_NOT_FOUND, REF_AMBIGUOUS.
    """
    if is_commit_id(text):
        return text
    found = await tarn.graveler.get_commit(tarn.call(), repository, text)
    if not found.commit_id.startswith(text):
        rule = (
            "a branch or a tag has this name"
            if may_be_prefix(text)
            else "it is another kind of ref"
        )
        raise CliError(
            Exit.USAGE, f"--expect {text!r} is not a commit id or a prefix of one: {rule}"
        )
    return found.commit_id
