"""Previews of objects: what is shown, and that it is bounded."""

from __future__ import annotations

import json

import pytest

from tarn.core.entry import Entry
from tarn_api.web.previews import (
    PICTURE_BYTES_MAX,
    PREVIEW_BYTES_MAX,
    Preview,
    picture_type,
    preview_of,
)


def of(path: str, content: bytes, *, size: int | None = None, kind: str = "") -> Preview:
    length = len(content) if size is None else size
    entry = Entry(length, 0, bytes(16), bytes(16), content_type=kind)
    return preview_of(path, entry, content)


def test_a_text_is_previewed_as_its_lines() -> None:
    assert of("a.txt", b"one\n\ttwo \xc3\xa4\n") == Preview("text", ("one", "\ttwo ä"))
    assert of("a", b"") == Preview("text")


def test_a_character_that_is_cut_is_no_problem_and_a_wrong_one_is() -> None:
    cut = "ä".encode()[:1]
    assert of("a.txt", b"x" + cut, size=100) == Preview("text", ("x",), is_cut=True)
    assert of("a.txt", b"x" + cut).kind == "none"
    assert of("a.txt", b"PAR1\0\0").kind == "none"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("a.csv", ""), ("A.CSV", ""), ("a", "text/csv; charset=utf-8")],
)
def test_a_table_has_rows(path: str, kind: str) -> None:
    found = of(path, b'n,v\n1,"a,b"\n2,<b>\n', kind=kind)
    assert found == Preview("table", rows=(("n", "v"), ("1", "a,b"), ("2", "<b>")))
    assert of("a.tsv", b"n\tv\n1\t2\n").rows == (("n", "v"), ("1", "2"))


def test_a_table_is_bounded() -> None:
    content = ("x" * 1000 + ",") * 60 + "\n"
    found = of("a.csv", content.encode())
    assert len(found.rows[0]) == 50
    assert {len(cell) for cell in found.rows[0]} == {201}
    many = of("a.csv", b"1,2\n" * 500)
    assert (len(many.rows), many.is_cut) == (101, True)
    # The last row of a beginning may be cut, and is left out.
    assert of("a.csv", b"a,b\n1,2\n3,4", size=1000).rows == (("a", "b"), ("1", "2"))


def test_a_field_beyond_what_the_reader_takes_is_shown_as_text() -> None:
    assert of("a.csv", b'"' + b"x" * 140_000 + b'"').kind == "text"


def test_json_is_indented_unless_that_would_be_large() -> None:
    assert of("a.json", b'{"a":[1,2]}').lines == ("{", '  "a": [', "    1,", "    2", "  ]", "}")
    assert of("a.json", b"{not json").lines == ("{not json",)
    deep = b"[" * 5000 + b"]" * 5000
    assert len(of("a.json", deep).lines) == 1
    worst = b"[" * 20 + b",".join([b"1"] * 8000) + b"]" * 20
    shown = of("a.json", worst)
    assert sum(map(len, shown.lines)) < 1 << 20
    big = json.dumps(list(range(6000))).encode()
    assert len(of("a.json", big).lines) == 1


def test_a_long_line_is_cut() -> None:
    [line] = of("a.txt", b"x" * PREVIEW_BYTES_MAX).lines
    assert len(line) == 2001


@pytest.mark.parametrize(
    ("begin", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'>", ""),
        (b"<html>", ""),
        (b"", ""),
    ],
)
def test_a_picture_is_one_by_its_first_bytes(begin: bytes, kind: str) -> None:
    assert picture_type(begin) == kind


def test_a_picture_that_is_too_large_is_not_shown() -> None:
    png = b"\x89PNG\r\n\x1a\n"
    assert of("a.png", png, size=PICTURE_BYTES_MAX).kind == "picture"
    assert of("a.png", png, size=PICTURE_BYTES_MAX + 1).kind == "none"
