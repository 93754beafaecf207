from __future__ import annotations

import pytest

from tarn.core.value import hot_value


@hot_value
class Point:
    x: int
    y: int = 0


@hot_value
class Named:
    name: str
    note: str = ""

    def __hash__(self) -> int:
        return 7


def test_equal_fields_make_equal_values_of_one_hash() -> None:
    assert Point(1) == Point(1, 0)
    assert Point(1) != Point(2)
    assert len({Point(1), Point(1), Point(2)}) == 2


def test_a_value_has_no_room_for_other_attributes() -> None:
    with pytest.raises(AttributeError):
        setattr(Point(1), "z", 1)  # noqa: B010 - the type checker would refuse the assignment


def test_a_hash_of_its_own_is_kept() -> None:
    assert hash(Named("a")) == 7
