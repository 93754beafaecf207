"""Differences of texts, and the lines of history: pure, and bounded."""

from __future__ import annotations

import re

import pytest

from tarn_api.web.differences import LINES_MAX, Line, TextDifference, difference_of
from tarn_api.web.drawings import drawings_of


def difference(before: bytes, after: bytes, **cut: bool) -> TextDifference | None:
    given = {"is_before_cut": False, "is_after_cut": False, **cut}
    return difference_of(before, after, **given)


def test_lines_that_changed_stand_among_those_around_them() -> None:
    before = b"".join(b"%d\n" % number for number in range(1, 21))
    found = difference(before, before.replace(b"10\n", b"ten\n<b>\n"))
    assert found is not None
    assert [f"{line.kind} {line.text}" for line in found.lines] == [
        "place -7,7 +7,8",
        "same 7", "same 8", "same 9",
        "deleted 10", "added ten", "added <b>",
        "same 11", "same 12", "same 13",
    ]  # fmt: skip
    assert not found.is_cut


def test_a_missing_side_is_an_empty_text() -> None:
    found = difference(b"", b"a\n")
    assert found == TextDifference((Line("place", "-0,0 +1,1"), Line("added", "a")), is_cut=False)
    assert difference(b"a\n", b"a\n") == TextDifference((), is_cut=False)


def test_a_change_of_line_ends_is_a_change() -> None:
    found = difference(b"a\n", b"a\r\n")
    assert found is not None
    assert [line.text for line in found.lines] == ["-1,1 +1,1", "a", "a\r"]


@pytest.mark.parametrize("other", [b"\xff\xfe", b"\x00\x01"])
def test_bytes_that_are_no_text_are_not_compared(other: bytes) -> None:
    assert difference(b"a", other) is None
    assert difference(other, b"a") is None


def test_a_cut_side_may_end_within_a_character() -> None:
    found = difference("ü".encode()[:1], b"", is_before_cut=True)
    assert found == TextDifference((), is_cut=True)


def test_many_or_long_lines_are_cut() -> None:
    found = difference(b"x\n" * (LINES_MAX + 1), b"y" * 5000)
    assert found is not None
    assert found.is_cut
    assert len(found.lines) == LINES_MAX + 2
    assert max(len(line.text) for line in found.lines) < 2100


def test_drawings_have_numbers_only_and_a_bounded_width() -> None:
    """Ids are no part of them, and forty branches beside each other are no wider than sixteen."""
    commits = [(f'"><b>{number}', ["r"]) for number in range(40)] + [("r", [])]
    found = drawings_of(commits)
    assert len(found) == 41
    assert {each.width for each in found} == {16 * 14}
    for each in found:
        assert re.fullmatch(r"[MVChZ0-9. ]*", each.lines + each.dot), each
        assert len(each.lines) < 2000
        assert all(float(number) <= 16 * 14 for number in re.findall(r"[0-9.]+", each.lines))
    assert drawings_of([]) == []


def test_a_line_comes_from_above_goes_below_and_ends() -> None:
    first, last = drawings_of([("a", ["b"]), ("b", [])])
    assert (first.lines, first.dot) == ("M7 12V24", "M7 12h.01")
    assert (last.lines, last.width) == ("M7 0V12", 14)
