"""The lines of history beside the rows of a log, as paths of SVG: numbers and commands, no text of a user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tarn.core.lanes import Lanes, lanes

__all__ = ["HEIGHT", "Drawing", "drawings_of"]

HEIGHT: Final = 24
"""Of a row, in units that are stretched to the height that the row gets."""
_STEP: Final = 14
_COLUMNS_MAX: Final = 16
"""Columns further right are drawn into the last one, so that no history is wider than a page."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """What stands beside one commit.

    Attributes:
        lines: the lines, as the data of a path.
        dot: the commit, as the data of a path.
        width: in pixels.
    """

    lines: str
    dot: str
    width: int


def drawings_of(commits: Sequence[tuple[str, Sequence[str]]]) -> list[Drawing]:
    """Returns the drawing beside each commit, all of the same width.

    Args:
        commits: ids with those of the parents; none precedes one of its descendants.
    """
    found = list(lanes(commits))
    columns = max((max(each.count, each.count_below) for each in found), default=1)
    width = min(columns, _COLUMNS_MAX) * _STEP
    return [Drawing(_lines(each), f"M{_x(each.at)} {HEIGHT // 2}h.01", width) for each in found]


def _lines(around: Lanes) -> str:
    middle, at = HEIGHT // 2, _x(around.at)
    lines = [_line(_x(each), 0, at, middle) for each in around.above()]
    lines += [_line(at, middle, _x(each), HEIGHT) for each in around.below()]
    lines += [_line(_x(top), 0, _x(bottom), HEIGHT) for top, bottom in around.passing()]
    return "".join(dict.fromkeys(lines))


def _line(left: int, top: int, right: int, bottom: int) -> str:
    """Returns a line down: straight, or a curve that is upright at both ends."""
    if left == right:
        return f"M{left} {top}V{bottom}"
    middle = (top + bottom) // 2
    return f"M{left} {top}C{left} {middle} {right} {middle} {right} {bottom}"


def _x(column: int) -> int:
    return min(column, _COLUMNS_MAX - 1) * _STEP + _STEP // 2
