"""The three bounded maps, compared with simple models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clock import ManualClock

from tarn.aio.bounded_map import BoundedMap
from tarn.aio.lru_cache import LruCache
from tarn.aio.ttl_cache import TtlCache

KEYS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("get"), KEYS),
        st.tuples(st.just("put"), KEYS),
        st.tuples(st.just("pop"), KEYS),
        st.tuples(st.just("wait"), st.integers(1, 4)),
        st.tuples(st.just("clear"), st.just(0)),
    ),
    max_size=60,
)


@given(size_max=st.integers(1, 4), steps=STEPS)
def test_a_bounded_map_evicts_the_oldest_entry(size_max: int, steps: list[tuple[str, int]]) -> None:
    entries, model = BoundedMap[int, int](size_max), list[tuple[int, int]]()
    for number, (step, key) in enumerate(steps):
        if step == "get":
            assert entries.get(key) == dict(model).get(key)
        elif step == "put":
            model = [*(each for each in model if each[0] != key), (key, number)][-size_max:]
            entries.put(key, number)
        elif step == "pop":
            model = [each for each in model if each[0] != key]
            entries.pop(key)
        elif step == "clear":
            model = []
            entries.clear()
        assert len(entries) == len(model)


@given(size_max=st.integers(1, 12), steps=STEPS)
def test_an_lru_cache_evicts_the_least_recently_used_entry(
    size_max: int, steps: list[tuple[str, int]]
) -> None:
    """Values are sizes, 1 to 7, so a single one may exceed the limit of all together."""
    entries, model = (
        LruCache[int, int](size_max, size_of=lambda size: size),
        list[tuple[int, int]](),
    )
    for number, (step, key) in enumerate(steps):
        found = dict(model).get(key)
        if step == "get":
            assert entries.get(key) == found
            if found is not None:
                model = [*(each for each in model if each[0] != key), (key, found)]
        elif step == "put":
            size = number % 7 + 1
            model = [*(each for each in model if each[0] != key), (key, size)]
            while len(model) > 1 and sum(size for _, size in model) > size_max:
                del model[0]
            entries.put(key, size)
        elif step == "pop":
            model = [each for each in model if each[0] != key]
            entries.pop(key)
        elif step == "clear":
            model = []
            entries.clear()
        assert len(entries) == len(model)
        assert entries.size == sum(size for _, size in model)


@given(size_max=st.integers(1, 4), steps=STEPS)
def test_a_ttl_cache_returns_no_expired_entry(size_max: int, steps: list[tuple[str, int]]) -> None:
    clock = ManualClock()
    entries, model = TtlCache[int, int](clock, size_max), list[tuple[int, tuple[int, float]]]()
    for number, (step, key) in enumerate(steps):
        found = dict(model).get(key)
        rest = [each for each in model if each[0] != key]
        if step == "get":
            alive = found is not None and found[1] > clock.monotonic()
            assert entries.get(key) == (found[0] if alive and found else None)
            model = [*rest, (key, found)] if alive and found else rest
        elif step == "put":
            end = clock.monotonic() + number % 5
            model = [*rest, (key, (number, end))][-size_max:]
            entries.put(key, number, end)
        elif step == "pop":
            model = rest
            entries.pop(key)
        elif step == "wait":
            clock.advance(key)
        else:
            model = []
            entries.clear()
        assert len(entries) == len(model)


def test_without_sizes_each_entry_counts_as_one() -> None:
    entries = LruCache[str, str](2)
    for key in "abc":
        entries.put(key, key)
    assert [entries.get(key) for key in "abc"] == [None, "b", "c"]


@pytest.mark.parametrize("count", [1, 1000])
def test_a_full_map_makes_room_for_one_and_not_for_all(count: int) -> None:
    """If a full map were emptied, all entries would be read from the store again at once."""
    entries = BoundedMap[int, int](count)
    for key in range(count + 1):
        entries.put(key, key)
    assert len(entries) == count
    assert entries.get(0) is None
