"""Three-way merges of runs, against plain dicts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from merges_by_definition import (
    Conflict,
    Trio,
    merge_by_definition,
    rewritten,
    trios,
)
from tests.support.listings import Listing, run_of, sample_entry

from tarn.core.listing.changes import apply_changes
from tarn.core.listing.choice import REFUSE, Choice, ChoiceRule, Side
from tarn.core.listing.run import Run, concat_runs
from tarn.core.listing.three_way import CONFLICT_SCHEMA, RunMerge, merge_runs

ONE, TWO, THREE = (sample_entry(number) for number in (1, 2, 3))
ONE_AGAIN = rewritten(ONE)


def merged(trio: Trio, choice: Choice = REFUSE) -> RunMerge:
    return merge_runs(run_of(trio.base), run_of(trio.source), run_of(trio.dest), choice)


def result_of(trio: Trio, merge: RunMerge) -> Listing:
    rows: Run = concat_runs(apply_changes(run_of(trio.dest), merge.changes, exact=True).runs)
    return dict(zip(rows.paths.to_pylist(), rows.values.to_pylist(), strict=True))


def conflicts_of(batch: pa.RecordBatch) -> list[Conflict]:
    return [
        (row["path"], row["base"] or b"", row["source"] or b"", row["dest"] or b"")
        for row in batch.to_pylist()
    ]


def with_halves(side: Side) -> Choice:
    """Refuses some paths, and gives the others to a side."""
    return Choice(side, (ChoiceRule("k*", Side.REFUSE), ChoiceRule("*a*", Side.DEST)))


def chosen(choice: Choice, path: str) -> Side:
    return Side(int(choice.sides(pa.array([path]))[0]))


@given(trios(), st.sampled_from([*map(Choice, Side), *map(with_halves, Side)]))
def test_a_merge_of_runs_is_a_merge_of_dicts(trio: Trio, choice: Choice) -> None:
    merge = merged(trio, choice)
    model = merge_by_definition(trio, lambda path: chosen(choice, path))
    assert merge.conflicts.schema.equals(CONFLICT_SCHEMA)
    assert conflicts_of(merge.conflicts) == model.refused
    assert result_of(trio, merge) == model.result
    assert merge.source_count == model.taken[Side.SOURCE]
    assert merge.dest_count == model.taken[Side.DEST]


@given(trios())
def test_changes_hold_only_what_changes_the_destination(trio: Trio) -> None:
    changes = merged(trio).changes
    values = dict(zip(changes.paths.to_pylist(), changes.values.to_pylist(), strict=True))
    result = merge_by_definition(trio).result
    assert sorted(values) == [
        path for path in sorted(trio.dest | result) if trio.dest.get(path) != result.get(path)
    ]


@given(trios())
def test_both_directions_find_the_same_conflicts(trio: Trio) -> None:
    there = conflicts_of(merged(trio).conflicts)
    back = conflicts_of(merged(Trio(trio.base, trio.dest, trio.source)).conflicts)
    assert there == [(path, base, source, dest) for path, base, dest, source in back]


@given(trios())
def test_merging_again_changes_nothing(trio: Trio) -> None:
    choice = Choice(Side.SOURCE)
    result = result_of(trio, merged(trio, choice))
    again = Trio(trio.source, trio.source, result)
    assert result_of(again, merged(again)) == result


@pytest.mark.parametrize(
    ("base", "source", "dest", "expected"),
    [
        pytest.param(ONE, TWO, ONE, TWO, id="only the source changed"),
        pytest.param(ONE, ONE, TWO, TWO, id="only the destination changed"),
        pytest.param(b"", ONE, b"", ONE, id="only the source added"),
        pytest.param(b"", b"", ONE, ONE, id="only the destination added"),
        pytest.param(ONE, b"", ONE, b"", id="only the source removed"),
        pytest.param(ONE, ONE, b"", b"", id="only the destination removed"),
        pytest.param(ONE, TWO, TWO, TWO, id="both changed alike"),
        pytest.param(b"", ONE, ONE, ONE, id="both added alike"),
        pytest.param(ONE, b"", b"", b"", id="both removed"),
        pytest.param(TWO, ONE_AGAIN, ONE, ONE, id="both wrote one object: the destination's"),
        pytest.param(b"", ONE, ONE_AGAIN, ONE_AGAIN, id="both added one object"),
        pytest.param(ONE, TWO, THREE, None, id="both changed"),
        pytest.param(b"", ONE, TWO, None, id="both added"),
        pytest.param(ONE, b"", TWO, None, id="removed and changed"),
        pytest.param(ONE, TWO, b"", None, id="changed and removed"),
        pytest.param(ONE, ONE_AGAIN, ONE, ONE_AGAIN, id="the source wrote it again"),
        pytest.param(ONE, ONE, ONE_AGAIN, ONE_AGAIN, id="the destination wrote it again"),
        pytest.param(ONE, ONE_AGAIN, TWO, TWO, id="written again is no change against a change"),
        pytest.param(ONE, TWO, ONE_AGAIN, TWO, id="a change against written again"),
        pytest.param(ONE, ONE_AGAIN, b"", b"", id="written again against removed"),
        pytest.param(ONE, b"", ONE_AGAIN, b"", id="removed against written again"),
    ],
)
def test_a_three_way_merge_of_one_path_follows_the_table(
    base: bytes, source: bytes, dest: bytes, expected: bytes | None
) -> None:
    trio = Trio(*({"p": value} if value else {} for value in (base, source, dest)))
    merge = merged(trio)
    assert conflicts_of(merge.conflicts) == (
        [] if expected is not None else [("p", base, source, dest)]
    )
    after = dest if expected is None else expected
    assert result_of(trio, merge) == ({"p": after} if after else {})
    model = merge_by_definition(trio)
    assert model.result == result_of(trio, merge)
