"""Options that decide conflicts of a merge, a revert or a cherry-pick, and how conflicts are shown.

A conflict is a path that both sides changed differently since their common base.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from tarn.core.byte_sizes import shown_size
from tarn.core.moments import iso_seconds
from tarn_cli.exits import CliError, Exit
from tarn_cli.output import Record
from tarn_proto.graveler.v1.merge_service_pb2 import (
    MERGE_SIDE_DESTINATION,
    MERGE_SIDE_SOURCE,
    MERGE_SIDE_UNSPECIFIED,
    ConflictChoice,
    MergeConflict,
    MergeSide,
)

__all__ = ["Decisions", "conflict_lines", "conflict_options", "conflict_record", "decisions"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_SIDES = {"source": MERGE_SIDE_SOURCE, "dest": MERGE_SIDE_DESTINATION}
_STRATEGIES = {"source-wins": MERGE_SIDE_SOURCE, "dest-wins": MERGE_SIDE_DESTINATION}
_ETAG_CHARS = 12
"""Characters of an ETag that tell two versions of an object apart at a glance."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """The sides that win conflicts.

    Attributes:
        choices: the first pattern that matches a path decides.
        default_side: decides the other paths; unspecified refuses the operation.
    """

    choices: list[ConflictChoice]
    default_side: MergeSide


def conflict_options(command: FunctionT) -> FunctionT:
    """Adds `--take` and `--strategy`, whose values `decisions` reads."""
    take = click.option(
        "--take",
        multiple=True,
        metavar="SIDE:PATTERN",
        help="Side that wins conflicts at the paths of a pattern: source:PATTERN or dest:PATTERN. `*` matches "
        "within one folder, `**` across folders. May be repeated; the first pattern that matches decides.",
    )
    strategy = click.option(
        "--strategy",
        type=click.Choice(list(_STRATEGIES)),
        help="Side that wins all other conflicts. Without it, a conflict fails the command.",
    )
    return take(strategy(command))


def decisions(take: tuple[str, ...], strategy: str | None) -> Decisions:
    """Returns the decisions of the values of `conflict_options`.

    Raises:
        CliError: USAGE: a value of `--take` is not SIDE:PATTERN.
    """
    choices = []
    for value in take:
        name, _, pattern = value.partition(":")
        if name not in _SIDES or not pattern:
            text = f"--take {value!r} is not source:PATTERN or dest:PATTERN"
            raise CliError(Exit.USAGE, text, "e.g. --take 'source:raw/**'")
        choices.append(ConflictChoice(pattern=pattern, side=_SIDES[name]))
    default = MERGE_SIDE_UNSPECIFIED if strategy is None else _STRATEGIES[strategy]
    return Decisions(choices, default)


def conflict_record(conflict: MergeConflict) -> Record:
    """The fields of a conflict; a side is null if it does not have the path, the base also if it is undecided."""
    sides = {name: _version(packed) for name, packed in _sides(conflict)}
    return {"path": conflict.path, **sides, "base_undecided": conflict.is_base_undecided}


def conflict_lines(conflict: MergeConflict) -> list[str]:
    """A conflict in four lines, for people."""
    lines = [f"! {conflict.path}"]
    for name, packed in _sides(conflict):
        version = _version(packed)
        if name == "base" and conflict.is_base_undecided:
            shown = "undecided: the merge bases changed the path differently"
        elif version is None:
            # Without a base, both sides have the path: otherwise only one of them would have changed it.
            shown = "none: both sides added the path" if name == "base" else "removed"
        else:
            etag = str(version["etag"])[:_ETAG_CHARS]
            shown = f"{shown_size(int(str(version['size_bytes'])))}  {version['modified']}  {etag}"
        lines.append(f"    {name:<11}  {shown}")
    return lines


def _sides(conflict: MergeConflict) -> list[tuple[str, bytes]]:
    return [
        ("base", conflict.base_entry),
        ("source", conflict.source_entry),
        ("destination", conflict.destination_entry),
    ]


def _version(packed: bytes) -> Record | None:
    from tarn.core.entry import shown_time_us, unpack

    if not packed:
        return None
    entry = unpack(packed)
    modified = iso_seconds(shown_time_us(entry.mtime_us))
    return {"size_bytes": entry.size, "modified": modified, "etag": entry.etag}
