"""Lanes of history: every line goes from a commit to a parent, and none gets lost on its way."""

from __future__ import annotations

from commit_graphs import Graph, graphs
from hypothesis import given

from tarn.core.lanes import Lanes, lanes


def test_a_merge_opens_a_column_and_the_common_parent_closes_it() -> None:
    assert list(lanes([("m", "ab"), ("b", "r"), ("a", "r"), ("r", "")])) == [
        Lanes(at=0, count=1, is_first=True, joining=(), parents=2),
        Lanes(at=1, count=2, is_first=False, joining=(), parents=1),
        Lanes(at=0, count=2, is_first=False, joining=(), parents=1),
        Lanes(at=0, count=2, is_first=False, joining=(1,), parents=0),
    ]


def test_columns_right_of_a_commit_make_room_and_follow() -> None:
    wide = Lanes(at=1, count=4, is_first=False, joining=(2,), parents=3)
    assert wide.above() == [1, 2]
    assert wide.below() == [1, 2, 3]
    assert wide.passing() == [(0, 0), (3, 4)]
    last = Lanes(at=0, count=2, is_first=True, joining=(), parents=0)
    assert (last.above(), last.below(), last.passing()) == ([], [], [(1, 0)])


@given(graphs())
def test_the_lines_lead_from_each_commit_to_its_parents(graph: Graph) -> None:
    """Followed row by row as they are drawn, without looking at what `lanes` remembers."""
    ids = sorted(graph.ids, key=graph.rank)
    known = [(each, graph.commits[each].parents) for each in ids]
    open_lines: dict[int, set[str]] = {}  # The commits whose lines are in a column.
    reached: dict[str, set[str]] = {}
    for (commit_id, parents), around in zip(known, lanes(known), strict=True):
        assert set(open_lines) == set(range(around.count)) - (
            {around.at} if around.is_first else set()
        )
        reached[commit_id] = set().union(*(open_lines[each] for each in around.above()))
        below = {bottom: open_lines[top] for top, bottom in around.passing()}
        assert not set(below) & set(around.below())
        open_lines = below | {each: {commit_id} for each in around.below()}
        assert sorted(open_lines) == list(range(around.count_below))
        assert len(around.below()) == len(parents)
    assert open_lines == {}
    for commit_id in ids:
        children = {each for each in ids if commit_id in graph.commits[each].parents}
        assert reached[commit_id] == children
