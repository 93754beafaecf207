"""Listings over layers against the listing of a plain dict."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.entry import MARKER, Entry, pack
from tarn.core.listing import Listed, Page, PageRequest, merge_page, prefix_end

Layer = dict[str, bytes]

ENTRY = [pack(Entry(n, 0, bytes(16), bytes(16))) for n in range(4)]


def run(request: PageRequest, layers: Sequence[Layer], rows_at_once: int) -> Page:
    rows = [sorted(layer.items()) for layer in layers]
    merge = merge_page(request, len(layers))
    try:
        wish = next(merge)
        while True:
            found = [row for row in rows[wish.layer] if row[0] >= wish.start]
            wish = merge.send(found[:rows_at_once])
    except StopIteration as done:
        page: Page = done.value
        return page


def run_all(request: PageRequest, layers: Sequence[Layer], rows_at_once: int) -> list[Listed]:
    lines: list[Listed] = []
    after = request.after
    while True:
        step = PageRequest(
            request.prefix, request.delimiter, after, request.limit, request.rows_max
        )
        page = run(step, layers, rows_at_once)
        assert len(page.lines) <= request.limit
        lines += page.lines
        if page.next_after is None:
            return lines
        # Not `next_after` itself: a prefix may be listed after a page that ended inside of it.
        went_on = PageRequest(request.prefix, request.delimiter, page.next_after)
        assert went_on.start > step.start
        after = page.next_after


def expected(request: PageRequest, layers: Sequence[Layer]) -> list[Listed]:
    merged: Layer = {}
    for layer in reversed(layers):
        merged.update(layer)
    lines: list[Listed] = []
    for path in sorted(merged):
        if merged[path] == MARKER or not path.startswith(request.prefix) or path <= request.after:
            continue
        at = path.find(request.delimiter, len(request.prefix)) if request.delimiter else -1
        if at < 0:
            lines.append(Listed(path, merged[path]))
            continue
        rolled = path[: at + len(request.delimiter)]
        if rolled != request.after and (not lines or lines[-1].path != rolled):
            lines.append(Listed(rolled, None))
    return lines


PATHS = st.text("ab/\0\U0010ffff\ud7ff\ue000é", min_size=1, max_size=5)
LAYERS = st.lists(
    st.dictionaries(PATHS, st.sampled_from([*ENTRY, MARKER]), max_size=12), min_size=1, max_size=4
)


@given(
    layers=LAYERS,
    prefix=st.sampled_from(["", "a", "a/", "b/a", "é", "\U0010ffff"]),
    delimiter=st.sampled_from(["", "/", "a", "//"]),
    limit=st.integers(1, 6),
    rows_at_once=st.integers(1, 5),
    rows_max=st.integers(1, 20),
)
def test_pages_together_are_the_listing(
    layers: list[Layer], prefix: str, delimiter: str, limit: int, rows_at_once: int, rows_max: int
) -> None:
    request = PageRequest(prefix, delimiter, "", limit, rows_max)
    assert run_all(request, layers, rows_at_once) == expected(request, layers)


@given(layers=LAYERS, after=PATHS, delimiter=st.sampled_from(["", "/"]))
def test_after_leaves_out_what_is_not_greater(
    layers: list[Layer], after: str, delimiter: str
) -> None:
    request = PageRequest("", delimiter, after, 5)
    wanted = expected(request, layers)
    if delimiter and after.endswith(delimiter) and after.find(delimiter) == len(after) - 1:
        wanted = [line for line in wanted if not line.path.startswith(after)]
    assert run_all(request, layers, 3) == wanted


def test_a_common_prefix_is_seeked_past_not_read() -> None:
    asked: list[str] = []
    merge = merge_page(PageRequest(delimiter="/"), 1)
    wish = next(merge)
    asked.append(wish.start)
    wish = merge.send([("dir/a", ENTRY[0])])
    asked.append(wish.start)
    with pytest.raises(StopIteration):
        merge.send([])
    assert asked == ["", "dir0"]


def test_a_page_that_ends_at_a_deleted_folder_does_not_hide_what_is_in_it() -> None:
    layer = {"dir/": MARKER, "dir/a": ENTRY[0], "e": ENTRY[1]}
    request = PageRequest(delimiter="/", rows_max=1)
    assert run_all(request, [layer], 1) == [Listed("dir/", None), Listed("e", ENTRY[1])]


def test_a_page_of_markers_only_ends_early_and_says_where_to_go_on() -> None:
    layer = {f"{n:03d}": MARKER for n in range(50)}
    page = run(PageRequest(rows_max=10), [layer], 5)
    assert page == Page([], "009")


@given(st.text(max_size=4), st.text(max_size=6))
def test_prefix_end_bounds_exactly_the_strings_with_the_prefix(prefix: str, other: str) -> None:
    end = prefix_end(prefix)
    assert end is None or end > prefix + other
    if other >= prefix and not other.startswith(prefix):
        assert end is not None
        assert other >= end


def test_with_markers_lists_what_is_staged() -> None:
    page = run(PageRequest(with_markers=True), [{"a": MARKER, "b": ENTRY[0]}], 10)
    assert [line.path for line in page.lines] == ["a", "b"]
