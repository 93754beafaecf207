"""Draws history as text: a column for each line of history, `*` for a commit, as `git log --graph` does.

Commits come in an order in which none precedes one of its descendants. Each column waits for one commit. Several
columns that wait for the same commit join above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Node", "drawn"]


@dataclass(frozen=True, slots=True)
class Node:
    """One commit to draw.

    Attributes:
        commit_id: its id.
        parent_ids: the parents whose lines are drawn.
        text: what stands beside it, at least one line.
    """

    commit_id: str
    parent_ids: Sequence[str]
    text: Sequence[str]


def drawn(nodes: Iterable[Node]) -> Iterator[str]:
    """Yields the lines of the drawing, from the first node to the last."""
    columns: list[str] = []  # The commit that each column waits for, from left to right.
    for node in nodes:
        if node.commit_id not in columns:
            columns.append(node.commit_id)
        at = columns.index(node.commit_id)
        while (other := _last(columns, node.commit_id)) > at:
            yield _leftwards(len(columns), at, other)
            del columns[other]
        bars = ["*" if place == at else "|" for place in range(len(columns))]
        yield f"{' '.join(bars)} {node.text[0]}".rstrip()
        after = [*columns[:at], *node.parent_ids[:1], *columns[at + 1 :]]
        rest = " ".join(
            "|" if place != at or node.parent_ids else " " for place in range(len(columns))
        )
        for line in node.text[1:]:
            yield f"{rest} {line}".rstrip()
        if not node.parent_ids and at < len(after):
            line = _leftwards(len(columns), at, at + 1)
            yield f"{line[: 2 * at]} {line[2 * at + 1 :]}"
        columns = after
        for parent in node.parent_ids[:0:-1]:
            yield _rightwards(len(columns), at)
            columns.insert(at + 1, parent)


def _last(columns: Sequence[str], commit_id: str) -> int:
    return len(columns) - 1 - columns[::-1].index(commit_id)


def _leftwards(count: int, to: int, place: int) -> str:
    """The line on which column `place` goes left to column `to`, and those behind it follow by one column."""
    cells = [" "] * (2 * count)
    for column in range(count):
        if column < place:
            cells[2 * column] = "|"
        else:
            cells[2 * column - 1] = "/"
    for column in range(to, place - 1):
        cells[2 * column + 1] = "_"
    return "".join(cells).rstrip()


def _rightwards(count: int, place: int) -> str:
    """The line on which a new column leaves column `place` to the right, and those behind it make room."""
    cells = [" "] * (2 * count)
    for column in range(count):
        if column <= place:
            cells[2 * column] = "|"
        if column >= place:
            cells[2 * column + 1] = "\\"
    return "".join(cells).rstrip()
