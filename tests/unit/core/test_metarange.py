"""Metaranges: order, search and id."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.listings import paths

from tarn.core.errors import Kind, TarnError
from tarn.core.ids import RangeId
from tarn.core.listing.metarange import EMPTY_METARANGE, Metarange, RangeInfo

ONE = RangeInfo(RangeId("ab" * 32), "a", "c", 3, 300, 30)
TWO = RangeInfo(RangeId("cd" * 32), "é", "ü\0", 2, 200, -1)


def test_the_id_is_golden() -> None:
    assert (
        Metarange((ONE, TWO)).metarange_id
        == "9789353bfa7bab8ca95488b02cfbe4660599d96210f8cfcaa0dd2c3927242b5c"
    )


def test_the_empty_metarange_has_a_fixed_id() -> None:
    assert (
        EMPTY_METARANGE.metarange_id
        == "45e1872c4d0af28739ffd2b24a45796b93f333f68e2604646d52791ff2325ab7"
    )
    assert (EMPTY_METARANGE.count, EMPTY_METARANGE.object_bytes) == (0, 0)


def test_totals_are_sums() -> None:
    assert Metarange((ONE, TWO)).count == 5
    assert Metarange((ONE, TWO)).object_bytes == 29


@pytest.mark.parametrize(
    "changed",
    [
        RangeInfo(RangeId("ab" * 32), "a", "c", 3, 300, 31),
        RangeInfo(RangeId("ab" * 32), "a", "c", 3, 301, 30),
        RangeInfo(RangeId("ab" * 32), "a", "c", 4, 300, 30),
        RangeInfo(RangeId("ab" * 32), "a", "cc", 3, 300, 30),
        RangeInfo(RangeId("ab" * 32), "aa", "c", 3, 300, 30),
        RangeInfo(RangeId("ac" * 32), "a", "c", 3, 300, 30),
    ],
)
def test_every_field_is_in_the_id(changed: RangeInfo) -> None:
    assert Metarange((changed,)).metarange_id != Metarange((ONE,)).metarange_id


@given(st.lists(paths(), unique=True, min_size=2, max_size=20), paths())
def test_range_of_is_the_only_range_that_can_hold_a_path(names: list[str], path: str) -> None:
    names = sorted(names[: len(names) // 2 * 2])
    pairs = list(zip(names[::2], names[1::2], strict=True))
    metarange = Metarange(tuple(RangeInfo(ONE.range_id, low, high, 2, 2, 2) for low, high in pairs))
    place = metarange.range_of(path)
    assert all(high < path for _, high in pairs[:place])
    assert all(high >= path for _, high in pairs[place:])


@pytest.mark.parametrize(
    "ranges",
    [
        (TWO, ONE),
        (ONE, ONE),
        (ONE, RangeInfo(TWO.range_id, "c", "d", 2, 2, 2)),
        (RangeInfo(ONE.range_id, "b", "a", 2, 2, 2),),
    ],
)
def test_ranges_out_of_order_are_refused(ranges: tuple[RangeInfo, ...]) -> None:
    with pytest.raises(TarnError, match="out of order") as caught:
        Metarange(ranges)
    assert caught.value.kind is Kind.CORRUPT


@pytest.mark.parametrize("spelling", ["AB" * 32, "ab" * 31, "ab" * 33, "ab" * 31 + "a ", ""])
def test_another_spelling_of_a_range_id_is_refused(spelling: str) -> None:
    with pytest.raises(TarnError, match="invalid id") as caught:
        Metarange((RangeInfo(RangeId(spelling), "a", "b", 2, 2, 2),))
    assert caught.value.kind is Kind.CORRUPT
