"""Listings over layers, compared with the listing of a dict."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.layered_pages import merge_page

from tarn.core.entry import TOMBSTONE, Entry, pack
from tarn.core.listing.pages import (
    Leap,
    MayLeap,
    NeedRows,
    Page,
    PageRequest,
    leaping_page,
)
from tarn.core.listing.spans import prefix_end

Layer = dict[str, bytes]
Line = tuple[str, bytes]

ENTRY = [pack(Entry(n, 0, bytes(16), bytes(16))) for n in range(4)]


def run(
    request: PageRequest, layers: Sequence[Layer], wishes: list[NeedRows] | None = None
) -> Page:
    """Returns one page; records the requests of the merge."""
    rows = [sorted(layer.items()) for layer in layers]
    # A last layer without tombstones may be the committed one.
    with_base = TOMBSTONE not in layers[-1].values()
    merge = merge_page(request, len(layers) - with_base, with_base=with_base)
    try:
        wish = next(merge)
        while True:
            if wishes is not None:
                wishes.append(wish)
            found = [
                row
                for row in rows[wish.layer]
                if row[0] >= wish.start and (wish.last is None or row[0] <= wish.last)
            ][: wish.count]
            wish = merge.send(([path for path, _ in found], [packed for _, packed in found]))
    except StopIteration as done:
        page: Page = done.value
        return page


def lines_of(page: Page) -> list[Line]:
    return list(zip(page.paths, page.entries, strict=True))


def run_all(request: PageRequest, layers: Sequence[Layer]) -> list[Line]:
    lines: list[Line] = []
    after = request.after
    while True:
        step = replace(request, after=after)
        page = run(step, layers)
        assert len(page.paths) <= request.limit
        lines += lines_of(page)
        if page.next_after is None:
            return lines
        # Not `next_after` itself: a prefix may be listed after a page that ended inside of it.
        went_on = PageRequest(request.prefix, request.delimiter, page.next_after)
        assert went_on.start > step.start
        after = page.next_after


def expected(request: PageRequest, layers: Sequence[Layer]) -> list[Line]:
    merged: Layer = {}
    for layer in reversed(layers):
        merged.update(layer)
    lines: list[Line] = []
    for path in sorted(merged):
        if (
            merged[path] == TOMBSTONE
            or not path.startswith(request.prefix)
            or path <= request.after
        ):
            continue
        at = path.find(request.delimiter, len(request.prefix)) if request.delimiter else -1
        if at < 0:
            lines.append((path, merged[path]))
            continue
        rolled = path[: at + len(request.delimiter)]
        if rolled != request.after and (not lines or lines[-1][0] != rolled):
            lines.append((rolled, b""))
    return lines


PATHS = st.text("ab/\0\U0010ffff\ud7ff\ue000é", min_size=1, max_size=5)
LAYERS = st.lists(
    st.dictionaries(PATHS, st.sampled_from([*ENTRY, TOMBSTONE]), max_size=12),
    min_size=1,
    max_size=4,
)


@given(
    layers=LAYERS,
    prefix=st.sampled_from(["", "a", "a/", "b/a", "é", "\U0010ffff"]),
    delimiter=st.sampled_from(["", "/", "a", "//", "\U0010ffff"]),
    limit=st.integers(1, 6),
    rows_first=st.integers(1, 3),
    rows_max=st.integers(1, 20),
)
def test_pages_together_are_the_listing(
    layers: list[Layer], prefix: str, delimiter: str, limit: int, rows_first: int, rows_max: int
) -> None:
    request = PageRequest(prefix, delimiter, "", limit, rows_max, rows_first=rows_first)
    assert run_all(request, layers) == expected(request, layers)


@given(
    layers=st.lists(
        st.dictionaries(PATHS, st.sampled_from([ENTRY[0], TOMBSTONE]), min_size=6, max_size=12),
        min_size=1,
        max_size=3,
    ),
    delimiter=st.sampled_from(["", "/"]),
    limit=st.integers(1, 3),
)
def test_a_full_page_says_truly_whether_another_line_follows(
    layers: list[Layer], delimiter: str, limit: int
) -> None:
    """As long as few hidden rows follow."""
    request = PageRequest("", delimiter, limit=limit)
    left = expected(request, layers)
    while left:
        page = run(request, layers)
        assert lines_of(page) == left[:limit]
        left = left[limit:]
        assert (page.next_after is None) == (not left)
        request = replace(request, after=page.next_after or "")


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize(("count", "is_found"), [(1, True), (200, True), (5000, False)])
def test_behind_a_full_page_only_so_many_hidden_rows_are_passed(
    is_committed: bool, count: int, is_found: bool
) -> None:
    """Behind more, the page says that another one follows, which is empty."""
    deleted = dict.fromkeys((f"b{number:04}" for number in range(count)), TOMBSTONE)
    committed = dict.fromkeys(["a", *deleted] if is_committed else ["a"], ENTRY[1])
    wishes: list[NeedRows] = []
    page = run(PageRequest(limit=1), [deleted, committed], wishes)
    assert (page.paths, page.next_after) == (["a"], None if is_found else "a")
    assert sum(wish.count for wish in wishes) <= 2 * (2 + 1 + 2 * 256)
    rest = run(PageRequest(limit=1, after="a"), [deleted, committed])
    assert (rest.paths, rest.next_after) == ([], None)
    live = run(PageRequest(limit=1), [deleted, {**committed, "c": ENTRY[1]}])
    assert (live.paths, live.next_after) == (["a"], "a")


FEW = st.dictionaries(st.integers(0, 99), st.sampled_from([*ENTRY, TOMBSTONE]), max_size=3)


@given(
    few=st.lists(FEW, min_size=1, max_size=4),
    limit=st.sampled_from([30, 33, 1000]),
    delimiter=st.sampled_from(["", "/"]),
)
def test_few_rows_over_many_are_listed_as_any_others(
    few: list[dict[int, bytes]], limit: int, delimiter: str
) -> None:
    """Every second path is committed."""
    staged = [{f"{number // 9}/{number:02}": row for number, row in each.items()} for each in few]
    committed = {f"{number // 9}/{number:02}": ENTRY[0] for number in range(0, 100, 2)}
    request = PageRequest("", delimiter, "", limit)
    assert run_all(request, [*staged, committed]) == expected(request, [*staged, committed])


@given(layers=LAYERS, after=PATHS, delimiter=st.sampled_from(["", "/", "\U0010ffff"]))
def test_after_leaves_out_what_is_not_greater(
    layers: list[Layer], after: str, delimiter: str
) -> None:
    request = PageRequest("", delimiter, after, 5)
    wanted = expected(request, layers)
    if delimiter and after.endswith(delimiter) and after.find(delimiter) == len(after) - 1:
        wanted = [line for line in wanted if not line[0].startswith(after)]
    assert run_all(request, layers) == wanted


def test_rows_behind_what_another_layer_still_has_wait_for_it() -> None:
    layers = [{"a": ENTRY[0], "b": ENTRY[1]}, {"z": ENTRY[2]}]
    request = PageRequest(rows_first=1)
    assert run_all(request, layers) == expected(request, layers)


def test_nothing_follows_a_common_prefix_that_no_text_is_greater_than() -> None:
    layer = {"\U0010ffff": ENTRY[0], "\U0010ffffa": ENTRY[1]}
    request = PageRequest(delimiter="\U0010ffff", rows_first=1)
    assert run_all(request, [layer]) == [("\U0010ffff", b"")]
    behind = PageRequest(delimiter="\U0010ffff", after="\U0010ffff")
    assert run_all(behind, [{**layer, "a": ENTRY[2]}]) == []


def test_a_common_prefix_is_seeked_past_not_read() -> None:
    wishes: list[NeedRows] = []
    layer = {f"dir/{n}": ENTRY[0] for n in range(9)} | {"e": ENTRY[1]}
    page = run(PageRequest(delimiter="/", limit=2), [layer], wishes)
    assert lines_of(page) == [("dir/", b""), ("e", ENTRY[1])]
    assert wishes == [NeedRows(0, "", 3), NeedRows(0, "dir0", 6)]


def test_large_folders_are_not_read_through() -> None:
    wishes: list[NeedRows] = []
    layer = {f"{folder:02}/{n:04}": ENTRY[0] for folder in range(20) for n in range(5000)}
    page = run(PageRequest(delimiter="/"), [layer], wishes)
    assert page.paths == [f"{folder:02}/" for folder in range(20)]
    assert max(wish.count for wish in wishes[1:]) <= 128


def test_a_layer_that_gave_fewer_rows_than_asked_for_is_not_asked_again() -> None:
    wishes: list[NeedRows] = []
    layers: list[Layer] = [{"b": TOMBSTONE, "x": ENTRY[0]}, dict.fromkeys("abc", ENTRY[1]), {}]
    page = run(PageRequest(limit=3), layers, wishes)
    assert page == Page(["a", "c", "x"], [ENTRY[1], ENTRY[1], ENTRY[0]], None)
    assert [wish.layer for wish in wishes] == [2, 0, 1]


def test_staged_rows_behind_the_page_are_not_read() -> None:
    wishes: list[NeedRows] = []
    layers: list[Layer] = [{"b": ENTRY[0], "x": ENTRY[0]}, dict.fromkeys("abcde", ENTRY[1])]
    page = run(PageRequest(limit=2), layers, wishes)
    assert page == Page(["a", "b"], [ENTRY[1], ENTRY[0]], "b")
    assert wishes == [NeedRows(1, "", 3), NeedRows(0, "", 3, "c")]


def test_the_rest_of_a_page_is_read_without_much_beside_it() -> None:
    """40 of the first 1,032 rows are hidden, so the page lacks 8 lines, and the row behind it."""
    wishes: list[NeedRows] = []
    committed = dict.fromkeys((f"{number:04}" for number in range(5000)), ENTRY[1])
    hidden = dict.fromkeys((f"{number:04}" for number in range(0, 400, 10)), TOMBSTONE)
    page = run(PageRequest(), [hidden, committed], wishes)
    assert len(page.paths) == 1000
    assert [(wish.layer, wish.count) for wish in wishes] == [(1, 1032), (0, 1032), (1, 43), (0, 43)]


def test_behind_a_full_page_one_row_is_read() -> None:
    """The merge may not end its page before it knows whether there is another one."""
    merge = leaping_page(PageRequest(limit=2), 1, with_base=True)
    assert isinstance(next(merge), MayLeap)
    wish = merge.send(Leap((["a", "b"], [ENTRY[0]] * 2), "b", 1))
    assert wish == NeedRows(1, "b\0", 1)
    assert merge.send((["c"], [ENTRY[1]])) == NeedRows(0, "b\0", 1, "c")
    assert merge.send(((), ())) == MayLeap("b\0", (), 0, is_over=True)
    with pytest.raises(StopIteration) as done:
        merge.send(None)
    assert done.value.value == Page(["a", "b"], [ENTRY[0]] * 2, "b")


def offers_of(staged: Layer, committed: Layer) -> list[MayLeap]:
    """Returns the offers of leaps of one page, after the first one; all are refused."""
    layers = [sorted(each.items()) for each in (staged, committed)]
    merge, offers = leaping_page(PageRequest(), 1, with_base=True), []
    wish = next(merge)
    try:
        while True:
            if isinstance(wish, MayLeap):
                offers.append(wish)
                wish = merge.send(None)
                continue
            rows = [row for row in layers[wish.layer] if row[0] >= wish.start][: wish.count]
            wish = merge.send(([path for path, _ in rows], [packed for _, packed in rows]))
    except StopIteration:
        return offers[1:]


@pytest.mark.parametrize(("hidden", "step", "count"), [(31, 1, 0), (32, 1, 1), (32, 2, 0)])
@pytest.mark.parametrize("more", [0, 300])
def test_hidden_rows_at_the_start_are_offered_to_be_learnt(
    hidden: int, step: int, count: int, more: int
) -> None:
    """Also if many rows are staged behind them, so that rows are merged by another way."""
    committed = dict.fromkeys((f"{number:04}" for number in range(3000)), ENTRY[1])
    staged = dict.fromkeys((f"{number:04}" for number in range(0, hidden * step, step)), TOMBSTONE)
    staged |= dict.fromkeys((f"{number:04}x" for number in range(500, 500 + more)), ENTRY[2])
    offers = offers_of(staged, committed)
    assert [(offer.hidden, offer.is_over) for offer in offers] == [(hidden, True)] * count


def test_only_the_first_read_of_a_layer_ends_with_the_committed_rows() -> None:
    wishes: list[NeedRows] = []
    committed = dict.fromkeys((f"{number:02}" for number in range(20)), ENTRY[1])
    hidden = dict.fromkeys((f"{number:02}" for number in range(9)), TOMBSTONE)
    page = run(PageRequest(limit=2), [hidden | {"x": ENTRY[0]}, committed], wishes)
    assert page.paths == ["09", "10"]
    assert [wish.last for wish in wishes if wish.layer == 0] == ["02", None, None]


def test_a_page_that_ends_at_a_deleted_folder_does_not_hide_what_is_in_it() -> None:
    layer = {"dir/": TOMBSTONE, "dir/a": ENTRY[0], "e": ENTRY[1]}
    request = PageRequest(delimiter="/", limit=1, rows_max=1)
    assert run_all(request, [layer]) == [("dir/", b""), ("e", ENTRY[1])]


def test_a_page_of_tombstones_only_ends_early_and_says_where_to_resume() -> None:
    layer = {f"{n:03d}": TOMBSTONE for n in range(50)}
    page = run(PageRequest(limit=4, rows_max=10), [layer])
    assert page == Page([], [], "014")


def test_prefix_end_skips_code_points_that_no_path_can_hold() -> None:
    assert prefix_end("a\ud7ff") == "a\ue000"
    assert prefix_end("a\ud7fe") == "a\ud7ff"
    assert prefix_end("a\U0010ffff") == "b"
    assert prefix_end("\U0010ffff") is None


@given(st.text(max_size=4), st.text(max_size=6))
def test_prefix_end_bounds_exactly_the_strings_with_the_prefix(prefix: str, other: str) -> None:
    end = prefix_end(prefix)
    assert end is None or end > prefix + other
    if other >= prefix and not other.startswith(prefix):
        assert end is not None
        assert other >= end


def test_with_tombstones_lists_staged_rows() -> None:
    page = run(PageRequest(with_tombstones=True), [{"a": TOMBSTONE, "b": ENTRY[0]}])
    assert lines_of(page) == [("a", TOMBSTONE), ("b", ENTRY[0])]
