"""Folds of several merge bases, against plain dicts."""

from __future__ import annotations

import pytest
from hypothesis import given
from merges_by_definition import fold_by_definition, folds, rewritten
from tests.support.listings import Listing, listings, run_of, sample_entry

from tarn.core.entry import identity_of
from tarn.core.ids import RangeId
from tarn.core.listing.choice import REFUSE
from tarn.core.listing.metarange import RangeInfo
from tarn.core.listing.run import Run
from tarn.core.listing.three_way import merge_runs
from tarn.core.listing.virtual import UNDECIDED, FoldStep, decided, fold_rows, reduced

ONE, TWO, THREE = (sample_entry(number) for number in (1, 2, 3))
PAIR = [FoldStep(0, 1, 2)]


def rows_of(run: Run) -> Listing:
    return dict(zip(run.paths.to_pylist(), run.values.to_pylist(), strict=True))


def folded(listings: list[Listing], steps: list[FoldStep]) -> Listing:
    return rows_of(fold_rows([run_of(each) for each in listings], steps))


def at_p(*values: bytes) -> list[Listing]:
    return [{"p": value} if value else {} for value in values]


@given(folds())
def test_a_fold_of_runs_is_a_fold_of_dicts(fold: tuple[list[Listing], list[FoldStep]]) -> None:
    assert folded(*fold) == fold_by_definition(*fold)


@given(folds())
def test_a_fold_is_the_same_in_both_orders_of_each_pair(
    fold: tuple[list[Listing], list[FoldStep]],
) -> None:
    """But for the address of a version that both have."""
    many, steps = fold
    swapped = [FoldStep(step.base, step.right, step.left) for step in steps]
    there, back = folded(many, steps), folded(many, swapped)
    assert {path: identity_of(value) for path, value in there.items()} == {
        path: identity_of(value) for path, value in back.items()
    }


@pytest.mark.parametrize(
    ("base", "left", "right", "expected"),
    [
        pytest.param(ONE, TWO, ONE, TWO, id="one side changed it"),
        pytest.param(ONE, TWO, TWO, TWO, id="both changed it alike"),
        pytest.param(ONE, TWO, THREE, UNDECIDED, id="both changed it"),
        pytest.param(ONE, b"", THREE, UNDECIDED, id="removed and changed"),
        pytest.param(b"", ONE, TWO, UNDECIDED, id="both added it"),
        pytest.param(ONE, b"", ONE, b"", id="removed"),
        pytest.param(ONE, rewritten(ONE), TWO, TWO, id="written again and changed"),
        pytest.param(None, ONE, TWO, UNDECIDED, id="without a known base, a difference"),
        pytest.param(None, ONE, b"", UNDECIDED, id="without a known base, one has it"),
        pytest.param(None, ONE, rewritten(ONE), rewritten(ONE), id="without a base, alike"),
    ],
)
def test_a_virtual_merge_base_decides_one_path(
    base: bytes | None, left: bytes, right: bytes, expected: bytes
) -> None:
    step = FoldStep(None if base is None else 0, 1, 2)
    found = folded(at_p(base or b"", left, right), [step])
    assert found == ({"p": expected} if expected else {})


@pytest.mark.parametrize("third", [ONE, TWO, THREE, b""])
def test_an_undecided_path_stays_undecided_in_later_steps(third: bytes) -> None:
    """For any third ancestor, and also if the base of the later step is the undecided result itself."""
    for base in (0, 1, 3, 4, None):
        for sides in ((4, 3), (3, 4)):
            steps = [*PAIR, FoldStep(base, *sides)]
            assert folded(at_p(ONE, TWO, THREE, third), steps) == {"p": UNDECIDED}


@pytest.mark.parametrize(
    ("source", "dest", "is_conflict"),
    [
        (TWO, TWO, False),
        (TWO, rewritten(TWO), False),
        (b"", b"", False),
        (TWO, THREE, True),
        (TWO, b"", True),
        (b"", TWO, True),
        (ONE, TWO, True),
    ],
)
def test_of_an_undecided_path_both_sides_must_have_one_version(
    source: bytes, dest: bytes, *, is_conflict: bool
) -> None:
    base, theirs, ours = (run_of(each) for each in at_p(UNDECIDED, source, dest))
    merged = merge_runs(base, theirs, ours, REFUSE)
    assert merged.conflicts.num_rows == is_conflict
    assert not len(merged.changes)


@given(listings(), listings(), listings(), listings())
def test_a_decided_base_has_the_entries_of_the_side_at_undecided_paths(
    base: Listing, left: Listing, right: Listing, side: Listing
) -> None:
    fold = fold_by_definition([base, left, right], PAIR)
    expected = {path: value for path, value in fold.items() if value != UNDECIDED}
    open_paths = fold.keys() - expected.keys()
    expected |= {path: value for path, value in side.items() if path in open_paths}
    assert rows_of(decided(run_of(fold), run_of(side))) == expected


# ---- by ids


def ranges(*names: str) -> tuple[RangeInfo, ...]:
    return tuple(RangeInfo(RangeId(name * 64), name, name, 1, 1, 1) for name in names)


A, B, C, NONE = ranges("a"), ranges("b"), ranges("c"), ranges()


@pytest.mark.parametrize(
    ("listings", "expected"),
    [
        ((A, A, B), B),
        ((A, B, A), B),
        ((A, B, B), B),
        ((A, A, NONE), NONE),
        ((A, B, C), None),
        ((A, NONE, C), None),
    ],
)
def test_ids_decide_where_two_of_three_are_equal(
    listings: tuple[tuple[RangeInfo, ...], ...], expected: tuple[RangeInfo, ...] | None
) -> None:
    fold = reduced(listings, PAIR)
    if expected is None:
        assert fold.parts == listings
        assert fold.steps == tuple(PAIR)
    else:
        assert fold.parts == (expected,)
        assert fold.steps == ()


def test_only_the_ranges_that_the_rest_of_a_fold_needs_are_left() -> None:
    steps = [*PAIR, FoldStep(0, 4, 3), FoldStep(5, 5, 4)]
    fold = reduced([A, A, B, C], steps)
    assert fold.parts == (A, B, C)
    # The first step gave B; the second needs rows. The third has an undecided path wherever the second has.
    assert fold.steps == (FoldStep(0, 1, 2), FoldStep(3, 3, 1))
    assert reduced([A, A, B, A], steps[:2]).parts == (B,)


def test_without_a_known_base_only_equal_ranges_are_decided() -> None:
    step = [FoldStep(None, 0, 1)]
    assert reduced([A, A], step).parts == (A,)
    assert reduced([A, B], step).steps == tuple(step)
