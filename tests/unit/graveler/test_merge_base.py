"""Merge bases on random histories, against the definition; how much is read; real commits."""

from __future__ import annotations

from functools import partial

import pytest
from commit_graphs import Graph, Node, graphs
from hypothesis import given
from hypothesis import strategies as st
from lake import Lake

from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId
from tarn_graveler.history.merge_base import is_ancestor, merge_base

MISSING = CommitId("0" * 64)

CRISS_CROSS: list[Node] = [(9, [], 0), (5, [0], 1), (4, [0], 1), (7, [1, 2], 2), (8, [2, 1], 2)]


@given(graphs(), st.data())
async def test_the_merge_base_is_the_first_of_the_best_common_ancestors(
    graph: Graph, data: st.DataObject
) -> None:
    left, right = graph.ids[-1], data.draw(st.sampled_from(graph.ids[::-1][1:4] + graph.ids[-1:]))
    best = graph.best_common_ancestors(left, right)
    expected = min(best, key=graph.rank, default=None)
    found = await merge_base(graph.read, left, right)
    assert found == expected
    reads = graph.reads.copy()
    assert await merge_base(graph.read, right, left) == expected
    # Each commit is read once, and nothing behind the base but parents of what precedes it.
    assert len(reads) == len(set(reads))
    floor = graph.commits[expected].generation if expected is not None else -1
    needed = {left, right} | {
        parent
        for commit in graph.commits.values()
        if commit.generation > floor
        for parent in commit.parents
    }
    assert set(reads) <= needed


@given(graphs(), st.data())
async def test_ancestors_are_those_of_the_definition(graph: Graph, data: st.DataObject) -> None:
    ancestor, descendant = (data.draw(st.sampled_from(graph.ids)) for _ in range(2))
    expected = ancestor in graph.ancestors(descendant)
    assert await is_ancestor(graph.read, ancestor, descendant) == expected
    assert len(graph.reads) <= len(set(graph.reads)) + 1


async def test_of_a_criss_cross_the_later_then_the_smaller_id_is_taken() -> None:
    tie = Graph(CRISS_CROSS)
    for left, right in ((3, 4), (4, 3)):
        assert await merge_base(tie.read, tie.ids[left], tie.ids[right]) == tie.ids[2]
    later = Graph([*CRISS_CROSS[:1], (5, [0], 2), *CRISS_CROSS[2:]])
    assert await merge_base(later.read, later.ids[3], later.ids[4]) == later.ids[1]


async def test_the_generation_counts_before_the_time() -> None:
    """Clocks are not trusted: an ancestor whose clock was ahead is not the base."""
    graph = Graph([(0, [], 99), (1, [0], 1), (2, [1], 2), (3, [1, 0], 2)])
    assert await merge_base(graph.read, graph.ids[2], graph.ids[3]) == graph.ids[1]


async def test_unrelated_histories_have_none() -> None:
    graph = Graph([(0, [], 0), (1, [], 0), *((n, [n - 1], 0) for n in range(2, 50))])
    assert await merge_base(graph.read, graph.ids[0], graph.ids[-1]) is None
    assert not await is_ancestor(graph.read, graph.ids[0], graph.ids[-1])


async def test_commits_of_one_generation_are_read_together() -> None:
    wide: list[Node] = [(0, [], 0)] + [(n, [0], 0) for n in range(1, 40)]
    tips: list[Node] = [(40, list(range(1, 20)), 0), (41, list(range(20, 40)), 0)]
    graph = Graph(wide + tips)
    assert await merge_base(graph.read, graph.ids[40], graph.ids[41]) == graph.ids[0]
    assert graph.rounds == 3


async def test_a_fork_after_a_hundred_thousand_commits_is_found_at_once() -> None:
    """And so is the base of two branches as far away as that."""
    count = 100_000
    trunk: list[Node] = [(0, [], 0)] + [(n, [n - 1], n) for n in range(1, count)]
    forks: list[Node] = [(count, [count - 1], 0), (count + 1, [count - 1], 0), (count + 2, [0], 0)]
    graph = Graph(trunk + forks)
    assert await merge_base(graph.read, graph.ids[-3], graph.ids[-2]) == graph.ids[count - 1]
    assert len(graph.reads) == 3
    graph.reads.clear()
    assert await merge_base(graph.read, graph.ids[-3], graph.ids[-1]) == graph.ids[0]
    assert len(graph.reads) == count + 2
    graph.reads.clear()
    assert not await is_ancestor(graph.read, graph.ids[-2], graph.ids[-3])
    assert await is_ancestor(graph.read, graph.ids[count - 5], graph.ids[-3])
    assert len(graph.reads) < 20


async def test_a_parent_that_is_no_earlier_than_its_child_is_damage() -> None:
    graph = Graph([(0, [], 0), (1, [0], 0), (2, [1], 0), (3, [0], 0)])
    wrong = graph.commits[graph.ids[1]]
    graph.commits[graph.ids[1]] = Commit(wrong.parents, wrong.metarange_id, "", "", 0, generation=2)
    with pytest.raises(TarnError) as raised:
        await merge_base(graph.read, graph.ids[2], graph.ids[3])
    assert raised.value.kind is Kind.CORRUPT
    assert graph.ids[1] in raised.value.message


async def test_real_commits_are_found_in_batches(lake: Lake, other: Lake) -> None:
    made = [(await lake.commit(str(number), allow_empty=True)) for number in range(4)]
    ids = [each.commit_id for each in made]
    commits = other.graveler.commits
    read = partial(commits.get_many, lake.repository)
    assert await merge_base(read, ids[1], ids[3]) == ids[1]
    assert await is_ancestor(read, ids[0], ids[3])
    assert not await is_ancestor(read, ids[3], ids[0])
    order = [ids[2], ids[0], ids[2], ids[3]]
    found = await commits.get_many(lake.repository, order)
    assert [commit.message for commit in found] == ["2", "0", "2", "3"]
    with pytest.raises(TarnError) as raised:
        await commits.get_many(lake.repository, [ids[0], MISSING])
    assert raised.value.reason is Reason.COMMIT_NOT_FOUND
