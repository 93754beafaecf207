"""`tarn revert` and `tarn cherry-pick`: undo the changes of a commit on a branch, or apply them to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tarn_cli.commands.commit import commit_record, commit_text, metadata_pairs
from tarn_cli.conflicts import conflict_options, decisions
from tarn_cli.objects.uri import parse_ref, parse_ref_of
from tarn_cli.session import Command, Session, pass_session

__all__ = ["cherry_pick", "revert"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def _options(command: FunctionT) -> FunctionT:
    """Adds what both commands take: the branch, the commit, and the options of the new commit."""
    decorators = [
        click.argument("branch_uri", metavar="REPOSITORY/BRANCH"),
        click.argument("ref", metavar="REF"),
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
@pass_session
def revert(session: Session, /, branch_uri: str, ref: str, **options: Any) -> None:  # noqa: ANN401 - see `_arguments`
    """Undo the changes of one commit, by a new commit on the branch.

    Later commits stay. A path that was changed again since is in conflict: --take source:PATTERN restores its
    state before the commit, --take dest:PATTERN keeps its present state.

    \b
    Examples:
      tarn revert lake/main main                 undo the last commit
      tarn revert lake/main 3f9c2a81 -m "Undo the load of May"
      tarn revert lake/main main~2 --parent 1    undo a merge
    """
    uri = parse_ref(branch_uri)
    commit = parse_ref_of(ref, uri.repository)
    arguments = _arguments(**options)
    made = session.run(
        lambda tarn: tarn.graveler.revert(tarn.call(), uri.repository, uri.ref, commit, **arguments)
    )
    session.output.one(commit_record(made), commit_text(made))


@click.command(name="cherry-pick", cls=Command)
@_options
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
