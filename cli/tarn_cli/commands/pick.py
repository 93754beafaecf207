"""`tarn revert` and `tarn cherry-pick`: undo the changes of a commit on a branch, or apply them to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tarn_cli.commands.commit import commit_record, commit_text, metadata_pairs
from tarn_cli.conflicts import conflict_options, decisions
from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.ref_range import parse_range_of
from tarn_cli.objects.uri import RefUri, parse_ref, parse_ref_of
from tarn_cli.session import Command, Session, pass_session

__all__ = ["cherry_pick", "revert"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def _options(command: FunctionT) -> FunctionT:
    """Adds the argument and the options of both commands: the branch, and those of the new commit."""
    decorators = [
        click.argument("branch_uri", metavar="REPOSITORY/BRANCH"),
        click.option(
            "--parent",
            type=click.IntRange(1),
            help="For a merge commit: number of the parent that it is compared with. 1 is the branch that "
            "took the merge.",
        ),
        click.option("-m", "--message", default="", help="Message of the new commit."),
        click.option("--meta", multiple=True, metavar="KEY=VALUE", help="May be repeated."),
        conflict_options,
        click.option("--allow-empty", is_flag=True, help="Commit even if nothing changes."),
    ]
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


@click.command(cls=Command)
@_options
@click.argument("ref", metavar="REF|A..B")
@click.option("--squash", is_flag=True, help="Undo a range by one commit instead of one for each.")
@pass_session
def revert(session: Session, /, branch_uri: str, ref: str, squash: bool, **options: Any) -> None:  # noqa: ANN401 - see `_arguments`
    """Undo the changes of one commit, by a new commit on the branch; or of a range of commits.

    A range A..B is B and its first parents, up to the first one that A contains: at most 100 commits. They are undone
    newest first, by a commit each or by one (--squash), and all become visible together: if one of them cannot be
    undone, nothing changes. A merge in the range is undone as a whole, with --parent 1.

    Later commits stay. A path that was changed again since is in conflict: --take source:PATTERN restores its
    state before the commit, --take dest:PATTERN keeps its present state.

    \b
    Examples:
      tarn revert lake/main main                 undo the last commit
      tarn revert lake/main 3f9c2a81 -m "Undo the load of May"
      tarn revert lake/main main~2 --parent 1    undo a merge
      tarn revert lake/main v1..main --squash    back to the state of v1, by one commit
    """
    uri = parse_ref(branch_uri)
    arguments = _arguments(**options)
    if (sides := parse_range_of(ref, uri.repository)) is not None:
        _revert_range(session, uri, *sides, squash=squash, arguments=arguments)
        return
    if squash:
        raise CliError(Exit.USAGE, "--squash joins the commits of a range, such as v1..main")
    commit = parse_ref_of(ref, uri.repository)
    made = session.run(
        lambda tarn: tarn.graveler.revert(tarn.call(), uri.repository, uri.ref, commit, **arguments)
    )
    session.output.one(commit_record(made), commit_text(made))


def _revert_range(
    session: Session,
    branch: RefUri,
    since: str,
    last: str,
    *,
    squash: bool,
    arguments: dict[str, Any],
) -> None:
    made = session.run(
        lambda tarn: tarn.graveler.revert_range(
            tarn.call(), branch.repository, branch.ref, since, last, squash=squash, **arguments
        )
    )
    undone = list(made.reverted_commit_ids)
    session.output.one(
        {**commit_record(made.commit), "reverted_commits": undone}, commit_text(made.commit)
    )
    session.output.remark(f"{len(undone)} commit{'s' if len(undone) > 1 else ''} reverted")


@click.command(name="cherry-pick", cls=Command)
@_options
@click.argument("ref", metavar="REF")
@pass_session
def cherry_pick(session: Session, /, branch_uri: str, ref: str, **options: Any) -> None:  # noqa: ANN401 - see `_arguments`
    """Apply the changes of one commit to a branch, by a new commit.

    A path that the branch changed differently is in conflict: --take source:PATTERN takes the state of the
    commit, --take dest:PATTERN keeps that of the branch.

    \b
    Examples:
      tarn cherry-pick lake/main feature            the last commit of feature
      tarn cherry-pick lake/main feature~3 --strategy source-wins
      tarn cherry-pick lake/v1-fixes main --parent 1    the changes that a merge made to main
    """
    uri = parse_ref(branch_uri)
    commit = parse_ref_of(ref, uri.repository)
    arguments = _arguments(**options)
    made = session.run(
        lambda tarn: tarn.graveler.cherry_pick(
            tarn.call(), uri.repository, uri.ref, commit, **arguments
        )
    )
    session.output.one(commit_record(made), commit_text(made))


def _arguments(
    *,
    parent: int | None,
    message: str,
    meta: tuple[str, ...],
    take: tuple[str, ...],
    strategy: str | None,
    allow_empty: bool,
) -> dict[str, Any]:
    """The arguments of the client's method for the values of `_options`."""
    decided = decisions(take, strategy)
    return {
        "parent_number": parent or 0,
        "message": message,
        "metadata": metadata_pairs(meta),
        "choices": decided.choices,
        "default_side": decided.default_side,
        "allow_empty": allow_empty,
    }
