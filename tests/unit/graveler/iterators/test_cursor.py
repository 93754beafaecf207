"""A cursor over any source returns the items of a sorted list, for every mix of calls."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.errors import Kind, Reason, TarnError
from tarn_graveler.cursors.cursor import Chunk, Cursor, behind, chunks_of

KEYS = st.text("ab\0é\U0001f333", min_size=1, max_size=3)


class SortedList:
    """Keys in order; a key that ends in `b` is a row that is passed over. A read may fail."""

    def __init__(self, keys: set[str]) -> None:
        self.rows = sorted(keys)
        self.asked: list[tuple[str, int]] = []
        self.fails = False

    @property
    def listed(self) -> list[str]:
        return [key for key in self.rows if not key.endswith("b")]

    async def read(self, start: str, count: int) -> Chunk[str, int]:
        self.asked.append((start, count))
        if self.fails:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "try again")
        first = bisect_left(self.rows, start)
        rows = self.rows[first : first + count]
        items = [(key, len(key)) for key in rows if not key.endswith("b")]
        return Chunk(items, rows[-1] if first + count < len(self.rows) else None)


CALLS = st.lists(
    st.one_of(
        st.just(("next", "", 0)),
        st.tuples(st.just("page"), st.just(""), st.integers(1, 4)),
        st.tuples(st.sampled_from(["seek", "seek_behind", "fail"]), KEYS, st.just(0)),
    ),
    max_size=30,
)


@given(st.sets(KEYS, max_size=40), CALLS, st.none() | st.integers(0, 12))
async def test_calls_return_what_a_sorted_list_has(
    keys: set[str], calls: list[tuple[str, str, int]], limit: int | None
) -> None:
    source = SortedList(keys)
    cursor = Cursor(source, limit=limit)
    left = source.listed
    returned = 0
    for call, key, count in calls:
        if call == "seek":
            cursor.seek(key)
            left = [each for each in source.listed if each >= key]
        elif call == "seek_behind":
            cursor.seek_behind(key)
            left = [each for each in source.listed if each > key]
        elif call == "page":
            page = await cursor.page(count)
            found = [each for each, _ in page.items]
            assert len(found) <= count
            assert found == left[: len(found)]
            left = left[len(found) :]
            returned += len(found)
            assert limit is None or returned <= limit
            if page.next_after is None:
                assert not left or returned == limit
            else:
                assert all(each > page.next_after for each in left)
        else:
            source.fails = call == "fail"
            try:
                found = [(await anext(cursor))[0]]
            except StopAsyncIteration:
                assert not left or returned == limit
            except TarnError:
                assert source.fails, "nothing is lost by it: the next call repeats the read"
            else:
                assert found == left[:1]
                left = left[1:]
                returned += 1
            source.fails = False


@given(st.sets(KEYS, max_size=40), st.integers(1, 5))
async def test_pages_that_continue_at_their_tokens_are_the_list(keys: set[str], size: int) -> None:
    source = SortedList(keys)
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        cursor = Cursor(source)  # as a replica that has not seen the page before
        cursor.seek_behind(after)
        page = await cursor.page(size)
        found += [key for key, _ in page.items]
        after = page.next_after
    assert found == source.listed
    assert len(source.asked) <= len(keys) // size + 1


async def test_reads_grow_and_begin_small_again_after_a_seek() -> None:
    source = SortedList({f"{number:05}" for number in range(5000)})
    cursor = Cursor(source)
    assert [key async for key, _ in cursor] == source.rows
    assert [count for _, count in source.asked] == [16, 32, 64, 128, 256, 512, *[1000] * 4]
    cursor.seek("04000")
    assert await anext(cursor) == ("04000", 5)
    assert source.asked[-1] == ("04000", 16)


async def test_a_limit_is_never_read_past() -> None:
    source = SortedList({f"{number:05}" for number in range(100)})
    assert len([item async for item in Cursor(source, limit=3)]) == 3
    assert source.asked == [("", 3)]


async def test_all_chunks_are_the_list() -> None:
    source = SortedList({f"{number:05}" for number in range(2500)})
    found = [key async for chunk in chunks_of(source) for key, _ in chunk]
    assert found == source.rows
    assert [start for start, _ in source.asked] == ["", behind("00999"), behind("01999")]


@pytest.mark.parametrize("key", ["", "a"])
async def test_nothing_is_behind_an_empty_source(key: str) -> None:
    cursor = Cursor(SortedList(set()))
    cursor.seek_behind(key)
    assert [item async for item in cursor] == []
    assert (await cursor.page(5)).next_after is None
