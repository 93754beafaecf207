"""Patterns of paths, against a matcher that tries everything."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tarn.core.errors import Reason, TarnError
from tarn.core.glob import GLOB_BYTES_MAX, check_glob, glob_of, match_glob


def matches(path: str, glob: str) -> bool:
    """By the table in `tarn.core.glob`, character by character."""

    @cache
    def rest(at: int, to: int) -> bool:
        """Whether `glob[at:]` matches `path[to:]`."""
        if at == len(glob):
            return to == len(path)
        if glob[at] == "\\":
            return path[to : to + 1] == glob[at + 1] and rest(at + 2, to + 1)
        if glob[at] == "?":
            return path[to : to + 1] not in ("", "/") and rest(at + 1, to + 1)
        if glob[at] != "*":
            return path[to : to + 1] == glob[at] and rest(at + 1, to + 1)
        stars = len(glob) - at - len(glob[at:].lstrip("*"))
        after = at + stars
        if stars == 1:
            ends = range(to, len(path) + 1)
            return any("/" not in path[to:end] and rest(after, end) for end in ends)
        starts_segment = at == 0 or glob[at - 1] == "/"
        if glob[after : after + 1] == "/" and starts_segment:
            ends = range(to, len(path))
            return rest(after + 1, to) or any(
                path[end] == "/" and rest(after + 1, end + 1) for end in ends
            )
        return any(rest(after, end) for end in range(to, len(path) + 1))

    return rest(0, 0)


GLOBS = st.lists(
    st.sampled_from(
        ["a", "b", "/", "*", "**", "?", "**/", "\\*", "\\?", "\\\\", "é", "\n", ".", "["]
    ),
    min_size=1,
    max_size=7,
).map("".join)
PATHS = st.text("aab//*?\\é\n.[", min_size=1, max_size=8)


@given(GLOBS, st.lists(PATHS, min_size=1, max_size=10))
@example("**/a", ["a", "b/a", "/a", "ba"])
@example("a/**/b", ["a/b", "a/x/b", "a/x/y/b", "ab", "a/xb"])
@example("a**b", ["ab", "a/b", "axb"])
def test_a_glob_matches_by_its_table(glob: str, paths: list[str]) -> None:
    found = match_glob(pa.array(paths, pa.string()), glob)
    assert found.tolist() == [matches(path, glob) for path in paths]


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("raw/**", "raw/x/y.parquet", True),
        ("raw/**", "raw/", True),
        ("raw/**", "raw", False),
        ("raw/*", "raw/x/y", False),
        ("raw/*", "raw/x", True),
        ("**/_SUCCESS", "_SUCCESS", True),
        ("**/_SUCCESS", "t/d/_SUCCESS", True),
        ("**/_SUCCESS", "t/x_SUCCESS", False),
        ("t/date=**", "t/date=1/part", True),
        ("?", "é", True),
        ("?", "/", False),
        ("a.b", "axb", False),
        (r"\*", "*", True),
        (r"\*", "x", False),
        ("*", "a\nb\0c", True),
        ("a", "a\n", False),
        ("a|b", "b", False),
    ],
)
def test_examples(glob: str, path: str, *, expected: bool) -> None:
    check_glob(glob)
    assert match_glob(pa.array([path]), glob).tolist() == [expected]


@pytest.mark.parametrize("glob", ["", "a\\", "\\\\\\", "x" * (GLOB_BYTES_MAX + 1), "é" * 513])
def test_a_glob_that_is_not_valid_is_refused(glob: str) -> None:
    with pytest.raises(TarnError) as raised:
        check_glob(glob)
    assert raised.value.reason is Reason.INVALID_ARGUMENT


def test_the_longest_globs_are_matched() -> None:
    for glob in ("*" * GLOB_BYTES_MAX, "*a" * (GLOB_BYTES_MAX // 2), "?" * GLOB_BYTES_MAX):
        check_glob(glob)
        assert match_glob(pa.array(["a" * 1024]), glob).tolist() == [True]


def test_no_paths_match_nothing() -> None:
    assert match_glob(pa.array([], pa.string()), "*").tolist() == []


@given(st.text("a*?\\/", min_size=1, max_size=6), st.text("ab*?\\/", min_size=1, max_size=6))
@example("a*", "ab")
@example("a?", "ab")
@example("\\", "\\\\")
def test_the_pattern_of_a_path_matches_that_path_only(path: str, other: str) -> None:
    check_glob(glob_of(path))
    found = match_glob(pa.array([path, other]), glob_of(path))
    assert found.tolist() == [True, path == other]
