"""Paths in the texts of errors: short, printable, and whole on the wire."""

from __future__ import annotations

import pytest

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.path_names import NAMED_PATHS_MAX, named_paths
from tarn.rpc.wire.errors import error_from_trailers, trailers_of


def test_the_first_paths_are_named() -> None:
    assert named_paths(["a"], 1) == "a"
    assert named_paths(["a", "b c"], 2) == "a, b c"
    assert named_paths(["a", "b"], 3) == "a, b, …"
    many = [str(number) for number in range(NAMED_PATHS_MAX + 1)]
    assert named_paths(many, len(many)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …"


def test_a_path_cannot_forge_lines_of_a_terminal() -> None:
    assert named_paths(["a\n\x1b[31mb"], 1) == r"'a\n\x1b[31mb'"


@pytest.mark.parametrize("letter", ["x", "é", "😀", "\x01"])
def test_the_longest_paths_leave_room_for_the_rest_of_the_text(letter: str) -> None:
    path = letter * (1024 // len(letter.encode()))
    named = named_paths([path] * 10, 5000)
    assert named.endswith(", …")
    error = TarnError(
        Kind.FAILED_PRECONDITION,
        Reason.MERGE_CONFLICT,
        f"commit {'0' * 64} cannot be reverted: 5000 paths changed differently on both sides: {named}. Choose a side "
        "for them, or change them on branch main first",
        branch="main",
        conflict_count="5000",
    )
    arrived = error_from_trailers(trailers_of(error))
    assert arrived is not None
    assert (arrived.message, arrived.metadata) == (error.message, error.metadata)
