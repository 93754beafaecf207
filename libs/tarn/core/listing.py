"""Ordered listings over layers: what a page with prefix, delimiter and after holds.

Layers are sorted runs of `(path, packed entry)`, newest first; the newest row of a path wins and a
marker hides what lies beneath. The merge asks for more rows of a layer only when it has used up those
at hand, and never reads over rows that a common prefix has rolled up: it seeks past them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from tarn.core.entry import is_marker

__all__ = ["Listed", "NeedRows", "Page", "PageRequest", "merge_page", "path_after", "prefix_end"]

PathRow = tuple[str, bytes]

_LAST = chr(0x10FFFF)


def prefix_end(prefix: str) -> str | None:
    """The smallest string greater than every string that starts with `prefix`; None if there is none.

    Code point order equals UTF-8 byte order; surrogates are no characters of a path.
    """
    text = prefix.rstrip(_LAST)
    if not text:
        return None
    last = ord(text[-1]) + 1
    return text[:-1] + chr(0xE000 if last == 0xD800 else last)


def path_after(path: str) -> str:
    """The smallest string greater than `path`."""
    return path + "\0"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What to list.

    Attributes:
        prefix: only paths that start so.
        delimiter: roll up what shares its text up to and including the first one after the prefix.
        after: only paths and common prefixes greater than this; exclusive.
        limit: how many entries and common prefixes.
        rows_max: how many rows may be looked at before a shorter page is given.
        with_markers: markers are lines, too: what is staged, not what is visible.
    """

    prefix: str = ""
    delimiter: str = ""
    after: str = ""
    limit: int = 1000
    rows_max: int = 100_000
    with_markers: bool = False

    @property
    def start(self) -> str:
        """The smallest path that may be on the page."""
        if not self.after:
            return self.prefix
        rolled = _common_prefix(self.after, self.prefix, self.delimiter)
        if rolled is not None and rolled == self.after:
            return prefix_end(rolled) or self.prefix
        return max(self.prefix, path_after(self.after))


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of a listing: an entry, or a common prefix (`entry` None)."""

    path: str
    entry: bytes | None


@dataclass(frozen=True, slots=True)
class Page:
    """Lines in byte order; `next_after` continues the listing, None at its end."""

    lines: list[Listed]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class NeedRows:
    """The merge's only wish: rows of one layer from `start` on, in order; none means exhausted."""

    layer: int
    start: str


def _common_prefix(path: str, prefix: str, delimiter: str) -> str | None:
    if not delimiter or not path.startswith(prefix):
        return None
    at = path.find(delimiter, len(prefix))
    return None if at < 0 else path[: at + len(delimiter)]


class _Layer:
    """Rows at hand of one layer, and where the next ones begin."""

    __slots__ = ("at", "done", "next_start", "rows")

    def __init__(self, start: str) -> None:
        self.rows: Sequence[PathRow] = ()
        self.at = 0
        self.next_start = start
        self.done = False

    def accept(self, rows: Sequence[PathRow]) -> None:
        self.rows, self.at = rows, 0
        if rows:
            self.next_start = path_after(rows[-1][0])
        else:
            self.done = True

    def seek(self, start: str) -> None:
        rows, at = self.rows, self.at
        if at < len(rows) and rows[-1][0] < start:
            self.at = len(rows)
        while self.at < len(rows) and rows[self.at][0] < start:
            self.at += 1
        self.next_start = max(self.next_start, start)


def merge_page(
    request: PageRequest, layer_count: int
) -> Generator[NeedRows, Sequence[PathRow], Page]:
    """Builds one page; yields for rows, returns the page.

    The caller answers each `NeedRows` with rows of that layer from `start` on (any number above zero,
    or none when the layer has no more). O(rows looked at, times layers).
    """
    layers = [_Layer(request.start) for _ in range(layer_count)]
    end = prefix_end(request.prefix) if request.prefix else None
    lines: list[Listed] = []
    seen, last = 0, request.after
    hidden: str | None = None
    while True:
        for number, layer in enumerate(layers):
            while not layer.done and layer.at >= len(layer.rows):
                layer.accept((yield NeedRows(number, layer.next_start)))
        live = [layer for layer in layers if not layer.done]
        if not live:
            return Page(lines, None)
        path = min(layer.rows[layer.at][0] for layer in live)
        if end is not None and path >= end:
            return Page(lines, None)
        # To go on after a deleted `dir/` means after all of `dir/`: so not before what lies in it.
        ends_inside = hidden is not None and path.startswith(hidden)
        if len(lines) >= request.limit or (seen >= request.rows_max and not ends_inside):
            return Page(lines, last)
        packed = _take(live, path)
        seen += 1
        last = path
        rolled = _common_prefix(path, request.prefix, request.delimiter)
        hidden = None
        if is_marker(packed) and not request.with_markers:
            hidden = path if rolled == path else None
            continue
        if rolled is None:
            lines.append(Listed(path, packed))
            continue
        lines.append(Listed(rolled, None))
        last = rolled
        past = prefix_end(rolled)
        if past is None:
            return Page(lines, None)
        for layer in live:
            layer.seek(past)


def _take(live: Sequence[_Layer], path: str) -> bytes:
    """The newest row of a path; steps over it in every layer that has one."""
    packed = None
    for layer in live:
        row = layer.rows[layer.at]
        if row[0] == path:
            layer.at += 1
            packed = row[1] if packed is None else packed
    assert packed is not None, "some layer holds the smallest path"
    return packed
