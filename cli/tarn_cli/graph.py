"""Draws history as text: a column for each line of history, `*` for a commit, as `git log --graph` does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tarn.core.lanes import lanes

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
    """Yields the lines of the drawing, from the first node to the last: no node precedes one of its descendants."""
    known = list(nodes)
    for node, around in zip(
        known, lanes((each.commit_id, each.parent_ids) for each in known), strict=True
    ):
        count, at = around.count, around.at
        for other in around.joining:
            yield _leftwards(count, at, other)
            count -= 1
        bars = ["*" if place == at else "|" for place in range(count)]
        yield f"{' '.join(bars)} {node.text[0]}".rstrip()
        rest = " ".join("|" if place != at or around.parents else " " for place in range(count))
        for line in node.text[1:]:
            yield f"{rest} {line}".rstrip()
        if not around.parents and at < count - 1:
            line = _leftwards(count, at, at + 1)
            yield f"{line[: 2 * at]} {line[2 * at + 1 :]}"
        for place in range(1, around.parents):
            yield _rightwards(count + place - 1, at)


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
