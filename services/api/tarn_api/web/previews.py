"""Previews of objects: text, tables and JSON out of the first bytes, and pictures that are safe to show. Pure.

A preview is data for a template, which escapes it. All is bounded: bytes, rows, columns, characters, nesting.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from dataclasses import dataclass
from typing import Final

import msgspec

from tarn.core.entry import Entry

__all__ = [
    "PICTURE_BYTES_MAX",
    "PREVIEW_BYTES_MAX",
    "Preview",
    "cut_line",
    "picture_type",
    "preview_of",
    "text_of",
]

PREVIEW_BYTES_MAX: Final = 64 * 1024
"""Read of an object for its preview."""
PICTURE_BYTES_MAX: Final = 8 * 1024 * 1024
_ROWS_MAX: Final = 100
_COLUMNS_MAX: Final = 50
_CELL_MAX: Final = 200
_JSON_BYTES_MAX: Final = 16 * 1024
_NESTING_MAX: Final = 20
"""With these two, indented JSON has less than a megabyte."""
_LINE_MAX: Final = 2000
_TABLES: Final = {".csv": ",", ".tsv": "\t"}
_TABLE_TYPES: Final = {"text/csv": ",", "text/tab-separated-values": "\t"}
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0e-\x1f]")
_BRACKETS: Final = re.compile(rb"[\[{]|[\]}]")


@dataclass(frozen=True, slots=True)
class Preview:
    """What a page shows of an object.

    Attributes:
        kind: `text`, `table`, `picture`, or `none`: bytes that are no text.
        lines: of a text.
        rows: of a table, the first one its head.
        is_cut: whether there is more.
    """

    kind: str
    lines: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    is_cut: bool = False


def picture_type(begin: bytes) -> str:
    """Returns the type of a picture by its first bytes, whatever its name says; empty for everything else.

    SVG is none: it is a document with scripts.
    """
    if begin.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if begin.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if begin.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if begin[:4] == b"RIFF" and begin[8:12] == b"WEBP":
        return "image/webp"
    return ""


def preview_of(path: str, entry: Entry, begin: bytes) -> Preview:
    """Returns the preview of an object.

    Args:
        path: of the object.
        entry: its size and content type.
        begin: its first bytes, at most `PREVIEW_BYTES_MAX`.
    """
    if picture_type(begin):
        return Preview("picture") if entry.size <= PICTURE_BYTES_MAX else Preview("none")
    is_cut = len(begin) < entry.size
    if entry.content_encoding or (text := text_of(begin, is_cut=is_cut)) is None:
        return Preview("none")
    kind = entry.content_type.partition(";")[0].strip().lower()
    suffix = path[path.rfind(".") :].lower() if "." in path else ""
    separator = _TABLES.get(suffix) or _TABLE_TYPES.get(kind)
    if separator and (rows := _table_of(text, separator, is_cut=is_cut)):
        return Preview("table", rows=rows, is_cut=is_cut or len(rows) > _ROWS_MAX)
    is_json = suffix == ".json" or kind == "application/json"
    if is_json and not is_cut and len(begin) <= _JSON_BYTES_MAX:
        text = _indented(begin) or text
    lines = tuple(cut_line(each) for each in text.splitlines())
    return Preview("text", lines=lines, is_cut=is_cut)


def cut_line(line: str) -> str:
    """Returns a line, or the beginning of a very long one."""
    return line if len(line) <= _LINE_MAX else line[:_LINE_MAX] + "…"


def text_of(begin: bytes, *, is_cut: bool) -> str | None:
    """Returns bytes as text; None if they are none. The last character may be cut."""
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(begin, final=not is_cut)
    except UnicodeDecodeError:
        return None
    return None if _UNPRINTABLE.search(text) else text


def _table_of(text: str, separator: str, *, is_cut: bool) -> tuple[tuple[str, ...], ...]:
    """Returns the first rows of a table; none if it is not one. A last row that may be cut is left out."""
    rows: list[tuple[str, ...]] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=False):
            rows.append(tuple(_cell(each) for each in row[:_COLUMNS_MAX]))
            if len(rows) > _ROWS_MAX + 1:
                break
    except csv.Error:
        return ()
    if is_cut and len(rows) > 1 and len(rows) <= _ROWS_MAX + 1:
        rows.pop()
    return tuple(rows[: _ROWS_MAX + 1])


def _cell(text: str) -> str:
    return text if len(text) <= _CELL_MAX else text[:_CELL_MAX] + "…"


def _indented(content: bytes) -> str:
    """Returns JSON with line breaks; empty if it is none, or nested so deep that spaces would be most of it."""
    depth = deepest = 0
    for found in _BRACKETS.finditer(content):
        depth += 1 if found[0] in b"[{" else -1
        deepest = max(deepest, depth)
    if deepest > _NESTING_MAX:
        return ""
    try:
        msgspec.json.decode(content)
        return msgspec.json.format(content, indent=2).decode()
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""
