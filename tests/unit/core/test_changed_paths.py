"""The record of the paths that a commit changed: never a wrong answer, bounded, and the same after decoding."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.errors import Kind, TarnError
from tarn.core.listing import changed_paths
from tarn.core.listing.changed_paths import (
    NO_PATHS,
    Answer,
    ChangedPaths,
    Form,
    PathCollector,
    PathQuery,
    fingerprints_of,
)

TEXTS = st.text("ab/\0é", max_size=6)
PATHS = TEXTS.filter(bool)


def collected(paths: list[str], pieces: int = 2) -> ChangedPaths:
    collector, half = PathCollector(), len(paths) // pieces
    collector.add(paths[:half])
    collector.add(paths[half:])
    return collector.result()


@pytest.mark.parametrize(("paths_max", "marks_max"), [(512, 16_384), (1, 40), (1, 6), (0, 0)])
@given(st.sets(PATHS, max_size=12), st.lists(PATHS, max_size=3), st.lists(TEXTS, max_size=3))
def test_no_answer_is_wrong_in_any_form(
    paths_max: int, marks_max: int, found: set[str], paths: list[str], prefixes: list[str]
) -> None:
    query = PathQuery(tuple(paths), tuple(prefixes))
    expected = any(path in paths or path.startswith(tuple(prefixes)) for path in found)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(changed_paths, "_PATHS_MAX", paths_max)
        patched.setattr(changed_paths, "_MARKS_MAX", marks_max)
        made = collected(sorted(found))
        again = ChangedPaths.decode(made.encode())
        assert (again.form, again.paths) == (made.form, made.paths)
        assert np.array_equal(again.marks, made.marks)
        answer = again.answer(query)
        if again.form is Form.PATHS:
            assert answer is (Answer.YES if expected else Answer.NO)
        else:
            assert answer is Answer.MAYBE if expected else answer is not Answer.YES


@pytest.mark.parametrize("few", [0, 3])
@given(st.sets(PATHS, max_size=30), st.integers(1, 4))
def test_all_folders_are_kept_however_the_paths_lie(few: int, found: set[str], pieces: int) -> None:
    ordered = sorted(found)
    expected = {path[: at + 1] for path in found for at, sign in enumerate(path) if sign == "/"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(changed_paths, "_PATHS_MAX", 0)
        patched.setattr(changed_paths, "_FEW_PATHS", few)
        for marks_max, texts in ((len(expected), expected), (10_000, expected | found)):
            patched.setattr(changed_paths, "_MARKS_MAX", marks_max)
            made = collected(ordered, pieces)
            if found and (found - expected or marks_max > len(expected)):
                assert made.marks.tolist() == sorted(set(fingerprints_of(texts).tolist()))


@pytest.mark.parametrize(
    ("count", "folders", "form"),
    [
        (512, 1, Form.PATHS),
        (513, 1, Form.FINGERPRINTS),
        (16_000, 384, Form.FINGERPRINTS),
        (16_000, 385, Form.FOLDERS),
        (60_000, 16_384, Form.FOLDERS),
        (60_000, 16_385, Form.UNKNOWN),
    ],
)
def test_the_first_form_that_fits_is_kept(count: int, folders: int, form: Form) -> None:
    paths = sorted(f"{number % folders:05}/{number:06}" for number in range(count))
    made = collected(paths)
    assert made.form is form
    assert len(made.encode()) <= 65_600


def test_a_commit_far_from_the_query_is_excluded_without_a_look_at_its_listing() -> None:
    made = collected([f"raw/2026/{number}" for number in range(1_000)])
    assert made.form is Form.FINGERPRINTS
    for paths, prefixes, answer in [
        (("raw/2026/7",), (), Answer.MAYBE),
        (("raw/2026/7000",), (), Answer.NO),
        ((), ("raw/20",), Answer.MAYBE),
        ((), ("raw/2025/",), Answer.NO),
        ((), ("ra",), Answer.MAYBE),
        ((), ("out/",), Answer.NO),
    ]:
        assert made.answer(PathQuery(paths, prefixes)) is answer, (paths, prefixes)


def test_a_large_commit_without_folders_excludes_all_folders() -> None:
    made = collected([f"{number:06}" for number in range(20_000)])
    assert made.form is Form.FOLDERS
    assert made.answer(PathQuery(("a/b",), ("c/",))) is Answer.NO
    assert made.answer(PathQuery(("000001",), ())) is Answer.MAYBE


def test_long_paths_are_kept_as_fingerprints() -> None:
    assert collected([f"{number}" * 1024 for number in range(9)]).form is Form.PATHS
    assert collected([f"{number}" * 1024 for number in range(10, 19)]).form is Form.FINGERPRINTS


def test_a_merge_changes_no_path() -> None:
    assert NO_PATHS.answer(PathQuery((), ("",))) is Answer.NO


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02\x01\0\0\0\0",
        b"\x01\x09\0\0\0\0",
        b"\x01\x02\x01\0\0\0",
        b"\x01\x02\x02\0\0\0" + bytes(8),
        b"\x01\x02\x01\0\0\0" + bytes(3),
        b"\x01\x01\x01\0\0\0" + b"not zlib",
        b"\x01\x01\x01\0\0\0" + zlib.compress(b"\x02\0a"),
        b"\x01\x01\x01\0\0\0" + zlib.compress(b"\x01\0\xff"),
        b"\x01\x01\x01\0\0\0" + zlib.compress(bytes(1 << 20)),
        b"\x01\x01\xff\xff\xff\xff" + zlib.compress(b""),
    ],
)
def test_damaged_bytes_are_told_as_such(data: bytes) -> None:
    with pytest.raises(TarnError) as raised:
        ChangedPaths.decode(data)
    assert raised.value.kind is Kind.CORRUPT
