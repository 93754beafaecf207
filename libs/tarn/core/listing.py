"""Ordered listings over layers: what a page with prefix, delimiter and after holds.

Layers are sorted runs of `(path, packed entry)`, newest first; the newest row of a path wins and a
marker hides what lies beneath. The merge asks for more rows of a layer only when it has used up those
at hand, and never reads over rows that a common prefix has rolled up: it seeks past them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from tarn.core.entry import FLAG_MARKER

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
        rows_max: about how many rows may be looked at before a shorter page is given.
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

    __slots__ = ("done", "next_start", "rows")

    def __init__(self, start: str) -> None:
        self.rows: Sequence[PathRow] = ()
        self.next_start = start
        self.done = False

    def accept(self, rows: Sequence[PathRow]) -> None:
        self.rows = rows
        if rows:
            self.next_start = path_after(rows[-1][0])
        else:
            self.done = True

    def take(self, last: str) -> Sequence[PathRow]:
        """The rows at hand up to and including a path."""
        rows = self.rows
        if rows[-1][0] <= last:
            self.rows = ()
            return rows
        count = bisect_right(rows, last, key=_path)
        self.rows = rows[count:]
        return rows[:count]

    def seek(self, start: str) -> None:
        """Passes over rows before a path."""
        self.rows = self.rows[bisect_left(self.rows, start, key=_path) :]
        self.next_start = max(self.next_start, start)


_path = itemgetter(0)


class _Lines:
    """The lines of a page as they are found.

    Attributes:
        last: where the listing goes on after what was found so far.
        skip_to: what is before it is rolled up already.
    """

    def __init__(self, request: PageRequest) -> None:
        self._request = request
        self._end = prefix_end(request.prefix) if request.prefix else None
        self.found: list[Listed] = []
        self.last = request.after
        self.skip_to = ""

    @property
    def is_full(self) -> bool:
        return len(self.found) >= self._request.limit

    def is_behind(self, path: str) -> bool:
        """Whether a path lies behind all that is asked for."""
        return self._end is not None and path >= self._end

    def add(self, rows: Iterable[PathRow]) -> Page | None:
        """Adds visible rows in order; the page, if that ends it."""
        prefix, delimiter, limit = (
            self._request.prefix,
            self._request.delimiter,
            self._request.limit,
        )
        found = self.found
        for path, packed in rows:
            if path < self.skip_to:
                continue
            if self.is_behind(path):
                return Page(found, None)
            if len(found) >= limit:
                return Page(found, self.last)
            rolled = _common_prefix(path, prefix, delimiter) if delimiter else None
            if rolled is None:
                found.append(Listed(path, packed))
                self.last = path
                continue
            found.append(Listed(rolled, None))
            self.last = rolled
            past = prefix_end(rolled)
            if past is None:
                return Page(found, None)
            self.skip_to = past
        return None

    def pass_over(self, path: str) -> bool:
        """Notes that everything up to a path was looked at; whether the listing can go on after it.

        To go on after a deleted `dir/` would mean after all of `dir/`: so not before what lies in it.
        """
        if path < self.skip_to:
            return True
        self.last = max(self.last, path)
        return _common_prefix(path, self._request.prefix, self._request.delimiter) != path


def merge_page(
    request: PageRequest, layer_count: int
) -> Generator[NeedRows, Sequence[PathRow], Page]:
    """Builds one page; yields for rows, returns the page.

    The caller answers each `NeedRows` with rows of that layer from `start` on (any number above zero,
    or none when the layer has no more). What all layers have at hand is merged at once, so that rows
    which are hidden cost next to nothing.
    """
    layers = [_Layer(request.start) for _ in range(layer_count)]
    lines = _Lines(request)
    seen, may_end = 0, True
    while True:
        for number, layer in enumerate(layers):
            while not layer.done and not layer.rows:
                layer.accept((yield NeedRows(number, layer.next_start)))
        live = [layer for layer in layers if not layer.done]
        if not live or lines.is_behind(min(layer.rows[0][0] for layer in live)):
            return Page(lines.found, None)
        if lines.is_full or (seen >= request.rows_max and may_end):
            return Page(lines.found, lines.last)
        horizon = min(layer.rows[-1][0] for layer in live)  # no layer has more rows before it
        merged = _merged(live, horizon)
        seen += len(merged)
        page = lines.add(
            merged
            if request.with_markers
            else [row for row in merged if not row[1][1] & FLAG_MARKER]
        )
        if page is not None:
            return page
        if not lines.is_full:
            may_end = lines.pass_over(horizon)
        if lines.skip_to > horizon:
            for layer in live:
                layer.seek(lines.skip_to)


def _merged(live: Sequence[_Layer], horizon: str) -> Sequence[PathRow]:
    """The newest row of each path up to a path, in order."""
    if len(live) == 1:
        return live[0].take(horizon)
    newest: dict[str, bytes] = {}
    for layer in reversed(live):
        newest.update(layer.take(horizon))
    return sorted(newest.items())
