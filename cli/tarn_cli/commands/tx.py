"""`tarn tx`: a command whose writes appear together, or not at all."""

from __future__ import annotations

import click

from tarn.core.errors import TarnError
from tarn.core.ids import parse_branch_id
from tarn_cli.child import CANNOT_RUN, NOT_FOUND, run_child
from tarn_cli.conflicts import conflict_lines, conflict_record
from tarn_cli.exits import CliError
from tarn_cli.objects.uri import parse_repository
from tarn_cli.output import Output
from tarn_cli.session import Group, Session, pass_session
from tarn_cli.terminal import write_line, write_lines
from tarn_cli.transaction import Ending, Transaction, begin, plan

__all__ = ["tx"]

CONFLICT_STATUS = 123
"""The command succeeded, and its changes are in conflict with those of others."""
FAILED_STATUS = 125
"""The command succeeded, and its changes could not be merged for another reason."""
_BRANCH_SECONDS = 86_400
_CONFLICTS_SHOWN = 20


@click.group(cls=Group)
def tx() -> None:
    """Transactions: commands whose writes appear together, or not at all."""


@tx.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--repo", "repository", default="", help="Repository.  [default: the only one]")
@click.option(
    "--onto", default="", help="Branch into which it is merged.  [default: the default branch]"
)
@click.option(
    "--bucket",
    "buckets",
    multiple=True,
    metavar="BUCKET",
    help="Bucket that shows the transaction's branch to the command. May be repeated.  [default: the bucket views of "
    "the branch into which it is merged]",
)
@click.option("-m", "--message", default="", help="Message of the commit.")
@click.option("--keep", is_flag=True, help="Keep the branch, however it ends.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@pass_session
def run(
    session: Session,
    repository: str,
    onto: str,
    buckets: tuple[str, ...],
    message: str,
    keep: bool,
    command: tuple[str, ...],
) -> None:
    """Run a command on a branch of its own, and merge the branch if the command succeeds.

    The command finds a session key and the endpoint in AWS_*, and the branch in TARN_TX_BRANCH and TARN_TX_URI. It may
    read all that you may read, and write to its branch only. If it fails, the branch is deleted.

    \b
    Exit status: that of the command, if it fails; else
      0 merged, or nothing to merge   123 in conflict, the branch is kept   125 not merged, the branch is kept

    \b
    Examples:
      tarn tx run --repo lake -- spark-submit job.py
      tarn tx run --repo lake --onto dev --bucket sales -m "Load May" -- python load.py
      tarn tx run --repo lake -- sh -c 'aws s3 cp x.csv "${TARN_TX_URI}x.csv"'
    """
    names = [parse_repository(each) for each in buckets]
    wanted = session.run(
        lambda tarn: plan(
            tarn,
            session.environment,
            repository=parse_repository(repository) if repository else "",
            onto=parse_branch_id(onto) if onto else "",
            buckets=names,
            branch_seconds=_BRANCH_SECONDS,
        )
    )
    made = begin(session, wanted)
    place = f"{wanted.repository}/{made.branch}"
    record: dict[str, object] = {
        "repository": wanted.repository,
        "onto": wanted.onto,
        "branch": made.branch,
        "buckets": list(wanted.buckets),
    }
    try:
        with made.renewed():
            environment = made.environment(session.environment)
            status = run_child(command, environment, stdout_to_stderr=session.as_json)
        made.end_key()
    except BaseException:
        if not keep:
            made.discard()
        raise
    if status:
        if status in (NOT_FOUND, CANNOT_RUN):
            session.output.remark(f"exit status {status}: is {command[0]!r} a command?")
        is_kept = keep or not made.discard()
        text = f"exit status {status}: {'kept' if is_kept else 'discarded'} {place}"
        _tell(session, {**record, "outcome": "discarded", "status": status, "kept": is_kept}, text)
        raise click.exceptions.Exit(status)
    _finish(session, made, message, {**record, "status": 0}, place, keep=keep)


def _finish(
    session: Session,
    made: Transaction,
    message: str,
    record: dict[str, object],
    place: str,
    *,
    keep: bool,
) -> None:
    """Merges the transaction of a command that has succeeded.

    Raises:
        click.exceptions.Exit: it was not merged.
    """
    onto = f"{record['repository']}/{record['onto']}"
    try:
        ending = made.complete(message)
    except (TarnError, CliError) as error:
        text = f"not merged: {error}; {place} is kept for a day: `tarn merge {place} {onto}`"
        _tell(
            session,
            {**record, "outcome": "failed", "kept": True, "error": str(error)},
            text,
        )
        raise click.exceptions.Exit(FAILED_STATUS) from error
    if ending.outcome == "conflict":
        _tell_conflicts(session, ending, record, place, onto)
        raise click.exceptions.Exit(CONFLICT_STATUS)
    is_kept = keep or not made.discard()
    record |= {"outcome": ending.outcome, "commit": ending.commit or None, "kept": is_kept}
    if ending.outcome == "nothing":
        _tell(session, record, f"nothing to commit: {onto} is unchanged")
    else:
        _tell(session, record, f"{ending.commit}  merged into {onto}")


def _tell(session: Session, record: dict[str, object], text: str) -> None:
    """Prints the result as JSON; for people on standard error, because standard output is the command's."""
    if session.as_json:
        Output(as_json=True).one(record)
    elif not session.quiet:
        write_line(text, err=True)


def _tell_conflicts(
    session: Session, ending: Ending, record: dict[str, object], place: str, onto: str
) -> None:
    if session.as_json:
        conflicts = [conflict_record(each) for each in ending.conflicts]
        _tell(session, {**record, "outcome": "conflict", "kept": True, "conflicts": conflicts}, "")
        return
    for each in ending.conflicts[:_CONFLICTS_SHOWN]:
        write_lines(conflict_lines(each), err=True)
    if (more := len(ending.conflicts) - _CONFLICTS_SHOWN) > 0:
        write_line(f"and {more} more", err=True)
    hint = f"`tarn merge {place} {onto} --strategy source-wins` decides for the transaction"
    write_line(f"in conflict with {onto}; {place} is kept for a day: {hint}", err=True)
