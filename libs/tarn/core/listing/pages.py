"""Builds the pages of an ordered listing over layers, with prefix, delimiter and start position.

A layer is a sorted run of paths and packed entries. Layers are ordered newest first: the newest row of a path
wins, and a tombstone hides the rows beneath it. The merge asks for more rows of a layer only when it has used
those it has. It never reads rows that a common prefix has rolled up, but seeks past them.

Rows are kept as columns, a list of paths and a list of entries. A page has a thousand rows, and one object per
row would cost more than all other work on it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from tarn.core.listing.newest import PathRows, newest_rows
from tarn.core.listing.spans import path_after, prefix_end

__all__ = [
    "Leap",
    "MayLeap",
    "NeedRows",
    "Page",
    "PageRequest",
    "leaping_page",
]

_ROWS_AT_ONCE_MAX = 4000
_HIDDEN_OF = 32
"""The first read asks for one extra row per this many rows of the page, because some rows may be hidden."""
_ROWS_AGAIN_MIN = 32
"""Rows to request for the rest of a page, beside those that it lacks: some may be hidden, too."""
_FRONT_MIN = 32
"""Hidden rows at the start of a round that make it offer a leap: each listing of a queue finds a few more of them."""
_LOOK_ROWS = 256
"""Rows to request of a layer behind a full page, if those at hand and one more of each layer are hidden."""
_ROWS_PER_SEEK = 64
"""A seek takes about as long as reading this many rows."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The page of a listing to return.

    Attributes:
        prefix: list only paths that start with it.
        delimiter: roll up paths that are equal up to and including the first delimiter after the prefix;
            empty: roll up nothing.
        after: list only paths and common prefixes greater than this.
        limit: most lines (entries and common prefixes) of a page.
        rows_max: after about this many rows, end the page even if it is not full.
        with_tombstones: list tombstones too, that is the staged rows instead of the visible objects.
        rows_first: rows to request of each layer at first, unless `limit` is smaller.
        from_path: list only paths from this one on; not together with `after`.
    """

    prefix: str = ""
    delimiter: str = ""
    after: str = ""
    limit: int = 1000
    rows_max: int = 100_000
    with_tombstones: bool = False
    rows_first: int = 1032
    from_path: str = ""

    @property
    def start(self) -> str:
        """The smallest path that the page may contain."""
        if not self.after:
            return max(self.prefix, self.from_path)
        rolled = _common_prefix(self.after, self.prefix, self.delimiter)
        if rolled is not None and rolled == self.after:
            return prefix_end(rolled) or path_after(rolled)
        return max(self.prefix, path_after(self.after))

    @property
    def is_over(self) -> bool:
        """Whether no path can follow `after`: it is a common prefix of the greatest character only."""
        rolled = _common_prefix(self.after, self.prefix, self.delimiter)
        return rolled is not None and rolled == self.after and prefix_end(rolled) is None


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its lines in byte order.

    Attributes:
        paths: paths of entries, and common prefixes.
        entries: packed, one for each path; empty for a common prefix.
        next_after: `after` of the next page; None at the end of the listing. If many hidden rows follow a full page,
            the next page may be empty.
    """

    paths: list[str]
    entries: list[bytes]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class NeedRows:
    """The merge's request for rows: the first `count` rows of one layer from `start` on, up to and including `last`.

    If the answer has fewer, the layer has no more rows up to there. `last` None: to the end of the listing.
    """

    layer: int
    start: str
    count: int
    last: str | None = None


@dataclass(frozen=True, slots=True)
class MayLeap:
    """The merge's offer to take a part of the listing that the caller merges itself, by cheaper means.

    Attributes:
        start: the path at which the part must begin.
        runs: the paths that the last round took from each layer, in order of the layers; empty before the first.
        hidden: the number of them that were hidden.
        is_over: no row is left to leap over, or the page is complete. The caller can only learn from the round,
            and answers None.
    """

    start: str
    runs: Sequence[Sequence[str]]
    hidden: int
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Leap:
    """The visible rows of a part of the listing.

    Attributes:
        rows: in order.
        upto: the part ends with this path; None: with the listing.
        cost: how many rows a merge could have read in the same time.
    """

    rows: PathRows
    upto: str | None
    cost: int


def _common_prefix(path: str, prefix: str, delimiter: str) -> str | None:
    if not delimiter or not path.startswith(prefix):
        return None
    at = path.find(delimiter, len(prefix))
    return None if at < 0 else path[: at + len(delimiter)]


class _Layer:
    """One layer: the rows at hand, how far it was read, where the next rows begin, and whether there are no more."""

    __slots__ = ("entries", "exhausted", "has_tombstones", "next_start", "paths", "read_to")

    def __init__(self, start: str, *, has_tombstones: bool) -> None:
        self.has_tombstones = has_tombstones
        self.paths: Sequence[str] = ()
        self.entries: Sequence[bytes] = ()
        self.next_start = start
        self.read_to = ""
        self.exhausted = False

    def accept(self, rows: PathRows, wish: NeedRows) -> None:
        self.paths, self.entries = rows
        is_full = len(self.paths) == wish.count
        self.exhausted = not is_full and wish.last is None
        if is_full:
            self.read_to = self.paths[-1]
        elif wish.last is not None:
            self.read_to = wish.last
        if self.read_to:
            self.next_start = max(self.next_start, path_after(self.read_to))

    def take(self, last: str) -> PathRows:
        """Removes and returns the rows at hand up to and including the path `last`."""
        paths, entries = self.paths, self.entries
        if paths[-1] <= last:
            self.paths = self.entries = ()
            return paths, entries
        count = bisect_right(paths, last)
        self.paths, self.entries = paths[count:], entries[count:]
        return paths[:count], entries[:count]

    def seek(self, start: str) -> None:
        """Skips the rows before the path `start`."""
        count = bisect_left(self.paths, start)
        self.paths, self.entries = self.paths[count:], self.entries[count:]
        self.next_start = max(self.next_start, start)


class _Lines:
    """The lines of a page, as they are found.

    Attributes:
        last: where the listing continues after the lines found so far.
        skip_to: paths before it are rolled up already.
    """

    def __init__(self, request: PageRequest) -> None:
        self._request = request
        self._end = prefix_end(request.prefix)
        self._delimiter_end = prefix_end(request.delimiter)
        self.paths: list[str] = []
        self.entries: list[bytes] = []
        self.last = request.after
        self.skip_to = ""

    @property
    def is_full(self) -> bool:
        return len(self.paths) >= self._request.limit

    def page(self, next_after: str | None) -> Page:
        return Page(self.paths, self.entries, next_after)

    def is_behind(self, path: str) -> bool:
        """Whether a path lies after everything that was asked for."""
        return self._end is not None and path >= self._end

    def add(self, paths: Sequence[str], entries: Sequence[bytes]) -> Page | None:
        """Adds visible rows in order. Returns the page if they complete it."""
        stop = len(paths)
        if stop and self._end is not None and paths[-1] >= self._end:
            stop = bisect_left(paths, self._end)
        if self._request.delimiter:
            count = self._roll_up(paths, entries, stop)
        else:
            count = min(stop, self._request.limit - len(self.paths))
            self.paths += paths[:count]
            self.entries += entries[:count]
            self.last = paths[count - 1] if count else self.last
        if count < stop:
            return self.page(self.last)
        return self.page(None) if stop < len(paths) else None

    def _roll_up(self, paths: Sequence[str], entries: Sequence[bytes], stop: int) -> int:
        """Adds the first `stop` rows, rolled up. Returns how many rows it used before the page was full."""
        delimiter, prefix_length = self._request.delimiter, len(self._request.prefix)
        for number in range(stop):
            path = paths[number]
            if path < self.skip_to:
                continue
            if self.is_full:
                return number
            at = path.find(delimiter, prefix_length)
            if at < 0:
                self.last = path
                self.paths.append(path)
                self.entries.append(entries[number])
                continue
            self.last = rolled = path[: at + len(delimiter)]
            self.paths.append(rolled)
            self.entries.append(b"")
            # Equals `prefix_end(rolled)`, except for the few delimiters that no character is greater than.
            past = path[:at] + self._delimiter_end if self._delimiter_end else prefix_end(rolled)
            if past is None:
                self._end = path_after(rolled)
                return stop
            self.skip_to = past
        return stop

    def pass_over(self, path: str) -> bool:
        """Records that everything up to a path was read. Returns whether the listing can continue after it.

        False for a deleted `dir/`: continuing after it would skip everything inside `dir/`.
        """
        if path < self.skip_to:
            return True
        self.last = max(self.last, path)
        return _common_prefix(path, self._request.prefix, self._request.delimiter) != path


def leaping_page(
    request: PageRequest, staged_count: int, *, with_base: bool
) -> Generator[NeedRows | MayLeap, PathRows | Leap | None, Page]:
    """Builds one page. A generator: it yields requests for rows and returns the page.

    The caller answers each `NeedRows` with rows, and each `MayLeap` with a `Leap`, or with None to go on reading
    the layers. Rows that all layers have at hand are merged together, so hidden rows cost next to nothing.

    Args:
        request: what to list.
        staged_count: number of layers that may hold tombstones.
        with_base: whether there is one more layer beneath them, the committed one, which holds none.
    """
    if request.is_over:
        return Page([], [], None)
    merge = _Merge(request, staged_count, with_base=with_base)
    while True:
        page = yield from merge.leap()
        if page is None:
            yield from merge.read()
            page = merge.round()
            if merge.offer is not None and (page is not None or merge.offer.is_over):
                yield replace(merge.offer, is_over=True)
                merge.offer = None
        if page is not None:
            return page


class _Merge:
    """The state of `leaping_page`.

    Attributes:
        offer: the next offer of a leap; None: read the layers.
    """

    def __init__(self, request: PageRequest, staged_count: int, *, with_base: bool) -> None:
        self._request = request
        self._layers = [
            _Layer(request.start, has_tombstones=number < staged_count)
            for number in range(staged_count + with_base)
        ]
        self._staged_count = staged_count
        self._base = self._layers[-1] if with_base else None
        self._is_first_read = True
        self._lines = _Lines(request)
        self._seen, self._may_end = 0, True
        # Rounds behind a full page: one for the rows at hand, with one more of each layer, and one for each layer,
        # which is at its end or gives `_LOOK_ROWS` more.
        self._looks = 1 + len(self._layers)
        # One row more than a page has shows whether there is a next page. Of the others some may be hidden.
        count = request.limit + 1 + (request.limit // _HIDDEN_OF if staged_count else 0)
        self._count = self._count_max = min(count, request.rows_first)
        self._hides = not request.with_tombstones
        self._may_leap = staged_count > 0 and self._hides
        self.offer = MayLeap(request.start, (), 0) if self._may_leap else None

    def leap(self) -> Generator[MayLeap, PathRows | Leap | None, Page | None]:
        """Offers leaps until one is refused. Returns the page if they complete it."""
        lines = self._lines
        while self.offer is not None and not lines.is_full:
            leap = yield self.offer
            self.offer = None
            if leap is None:
                break
            assert isinstance(leap, Leap), "the answer to an offer"
            self._seen += leap.cost
            page = lines.add(*leap.rows)
            if page is not None or leap.upto is None or lines.is_behind(leap.upto):
                return page or lines.page(None)
            self._may_end = lines.is_full or lines.pass_over(leap.upto)
            if self._seen >= self._request.rows_max and self._may_end:
                return lines.page(lines.last)
            start = max(path_after(leap.upto), lines.skip_to)
            for layer in self._layers:
                layer.seek(start)
            self.offer = MayLeap(start, (), 0)
        return None

    def read(self) -> Generator[NeedRows, PathRows | Leap | None, None]:
        """Reads rows of the layers that have none at hand.

        The committed layer comes first. The first read of the others ends with its last row: most pages need no rows
        behind it. Later reads do not, because each round would read each of these layers then.
        """
        last: str | None = None
        if self._base is not None:
            yield from self._fill(len(self._layers) - 1, None)
            if self._is_first_read and not self._base.exhausted:
                last = self._base.read_to
        self._is_first_read = False
        for number in range(self._staged_count):
            yield from self._fill(number, last)

    def _fill(
        self, number: int, last: str | None
    ) -> Generator[NeedRows, PathRows | Leap | None, None]:
        layer = self._layers[number]
        if layer.paths or layer.exhausted:
            return
        count = self._count
        if self._lines.is_full:
            # Only whether a visible row follows matters; mostly the next one is.
            count = 1 if self._looks > len(self._layers) else _LOOK_ROWS
        wish = NeedRows(number, layer.next_start, count, last)
        rows = yield wish
        assert isinstance(rows, tuple), "the answer to a request for rows"
        layer.accept(rows, wish)

    def round(self) -> Page | None:
        """Merges the rows at hand. Returns the page if it is complete."""
        lines = self._lines
        live = [layer for layer in self._layers if layer.paths]
        if not live or lines.is_behind(min(layer.paths[0] for layer in live)):
            return lines.page(None)
        if lines.is_full:
            self._looks -= 1
        elif self._seen >= self._request.rows_max and self._may_end:
            return lines.page(lines.last)
        lasts = [layer.read_to for layer in self._layers if not layer.exhausted]
        # Up to here, no layer has rows that were not read yet.
        horizon = min(lasts) if lasts else max(layer.paths[-1] for layer in live)
        runs = [layer.take(horizon) if layer.paths else ((), ()) for layer in self._layers]
        may_hide = self._hides and any(layer.has_tombstones for layer in live)
        has_base = self._base is not None and bool(runs[-1][0])
        newest = newest_rows([run for run in runs if run[0]], may_hide=may_hide, has_base=has_base)
        merged, hidden = newest.count, newest.hidden
        self._seen += merged
        is_much = 2 * hidden >= min(merged, self._request.limit) or newest.front >= _FRONT_MIN
        if self._may_leap and is_much:
            taken = [run[0] for run in runs]
            self.offer = MayLeap(path_after(horizon), taken, hidden, is_over=not lasts)
        before = len(lines.paths)
        page = lines.add(*newest.rows)
        if page is not None:
            return page
        if not self._looks:
            return lines.page(lines.last if lasts else None)
        if not lines.is_full:
            self._may_end = lines.pass_over(horizon)
        self._count = self._count_again(merged, len(lines.paths) - before)
        if lines.skip_to > horizon:
            if self.offer is not None:
                self.offer = replace(self.offer, start=lines.skip_to)
            for layer in self._layers:
                layer.seek(lines.skip_to)
            if (len(lines.paths) - before) * _ROWS_PER_SEEK < merged:
                self._count = self._count_max = _ROWS_PER_SEEK
        return None

    def _count_again(self, merged: int, gained: int) -> int:
        """The number of rows to request next, after a round that merged `merged` rows into `gained` lines.

        As many as the page lacks by that measure. If it gained little, the layers hold many hidden rows, or the
        listing skips large folders: then up to twice as many as before.
        """
        self._count_max = min(2 * self._count_max, _ROWS_AT_ONCE_MAX)
        missing = self._request.limit + 1 - len(self._lines.paths)
        wanted = 5 * missing * merged // (4 * max(1, gained)) + _ROWS_AGAIN_MIN
        return min(self._count_max, wanted)
