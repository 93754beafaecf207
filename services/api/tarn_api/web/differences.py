"""Differences of two texts, line by line. Pure, and bounded: bytes, lines, characters of a line."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from tarn_api.web.previews import cut_line, text_of

__all__ = ["LINES_MAX", "Line", "TextDifference", "difference_of"]

LINES_MAX: Final = 1000
"""Compared of each text: the search for equal lines may take the square of that."""
_AROUND: Final = 3
"""Lines shown before and after a change."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a difference.

    Attributes:
        kind: `same`, `added`, `deleted`, or `place`: the numbers of the lines that follow.
        text: of the line.
    """

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class TextDifference:
    """What differs.

    Attributes:
        lines: with some equal lines around each change.
        is_cut: whether only the beginnings were compared.
    """

    lines: tuple[Line, ...]
    is_cut: bool


def difference_of(
    before: bytes, after: bytes, *, is_before_cut: bool, is_after_cut: bool
) -> TextDifference | None:
    """Returns the difference of two texts; None if one of both is no text.

    Args:
        before: the first bytes of the one.
        after: the first bytes of the other one.
        is_before_cut: whether the one has more bytes.
        is_after_cut: whether the other one has more bytes.
    """
    left_text, right_text = (
        text_of(before, is_cut=is_before_cut),
        text_of(after, is_cut=is_after_cut),
    )
    if left_text is None or right_text is None:
        return None
    left, right = _lines(left_text), _lines(right_text)
    is_cut = is_before_cut or is_after_cut or max(len(left), len(right)) > LINES_MAX
    left, right = left[:LINES_MAX], right[:LINES_MAX]
    found: list[Line] = []
    for group in SequenceMatcher(None, left, right).get_grouped_opcodes(_AROUND):
        (_, first_left, _, first_right, _), (_, _, last_left, _, last_right) = group[0], group[-1]
        place = f"-{_range(first_left, last_left)} +{_range(first_right, last_right)}"
        found.append(Line("place", place))
        for kind, left_begin, left_end, right_begin, right_end in group:
            if kind == "equal":
                found += [Line("same", cut_line(each)) for each in left[left_begin:left_end]]
                continue
            found += [Line("deleted", cut_line(each)) for each in left[left_begin:left_end]]
            found += [Line("added", cut_line(each)) for each in right[right_begin:right_end]]
    return TextDifference(tuple(found), is_cut)


def _lines(text: str) -> list[str]:
    """Returns the lines of a text. A carriage return stays, so that a change of line ends is seen."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _range(begin: int, end: int) -> str:
    return f"{begin + 1 if end > begin else begin},{end - begin}"
