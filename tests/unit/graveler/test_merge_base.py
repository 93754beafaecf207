"""Merge bases on random histories, against the definition; how much is read; real commits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from commit_graphs import Graph, Node, graphs
from hypothesis import given
from hypothesis import strategies as st
from lake import Lake

from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId
from tarn_graveler.graph.merge_base import is_ancestor, merge_bases

MISSING = CommitId("0" * 64)

CRISS_CROSS: list[Node] = [(9, [], 0), (5, [0], 1), (4, [0], 1), (7, [1, 2], 2), (8, [2, 1], 2)]


async def bases_of(graph: Graph, left: int, right: int) -> list[int]:
    """The places of the merge bases of two commits, which both orders must give."""
    found = await merge_bases(graph.read, [graph.ids[left]], [graph.ids[right]], limit=32)
    again = await merge_bases(graph.read, [graph.ids[right]], [graph.ids[left]], limit=32)
    assert found == again
    return [graph.ids.index(each) for each in found]


@given(graphs(), st.data())
async def test_the_merge_bases_are_the_best_common_ancestors(
    graph: Graph, data: st.DataObject
) -> None:
    """Of groups, too: as if a commit had all of a group as parents."""
    groups = st.lists(st.sampled_from(graph.ids[::-1]), min_size=1, max_size=2)
    lefts, rights = data.draw(groups), data.draw(groups)
    best = graph.best_common_ancestors(lefts, rights)
    found = await merge_bases(graph.read, lefts, rights, limit=32)
    assert list(found) == sorted(best, key=graph.rank)
    assert len(graph.reads) == len(set(graph.reads)), "each commit is read once"
    assert await merge_bases(graph.read, rights, lefts, limit=32) == found
    if len(best) > 1:
        few = await merge_bases(graph.read, lefts, rights, limit=1)
        assert len(few) > 1, "the caller sees that there are more"
        assert set(few) <= best


@given(graphs(), st.data())
async def test_ancestors_are_those_of_the_definition(graph: Graph, data: st.DataObject) -> None:
    ancestor, descendant = (data.draw(st.sampled_from(graph.ids)) for _ in range(2))
    expected = ancestor in graph.ancestors(descendant)
    assert await is_ancestor(graph.read, ancestor, descendant) == expected
    assert len(graph.reads) <= len(set(graph.reads)) + 1


async def test_the_bases_of_a_criss_cross_are_ordered_by_time_and_then_by_id() -> None:
    assert await bases_of(Graph(CRISS_CROSS), 3, 4) == [2, 1]
    later = Graph([*CRISS_CROSS[:1], (5, [0], 2), *CRISS_CROSS[2:]])
    assert await bases_of(later, 3, 4) == [1, 2]


async def test_an_ancestor_of_another_common_ancestor_is_no_base_whatever_the_clocks_say() -> None:
    graph = Graph([(0, [], 99), (1, [0], 1), (2, [1], 2), (3, [1, 0], 2)])
    assert await bases_of(graph, 2, 3) == [1]


async def test_a_lower_base_is_found_behind_a_higher_one() -> None:
    """Both merged an old branch, by itself; its commit is older than the base on the trunk."""
    trunk: list[Node] = [(0, [], 0)] + [(n, [n - 1], n) for n in range(1, 10)]
    graph = Graph([*trunk, (10, [0], 5), (11, [9, 10], 0), (12, [9, 10], 0), (13, [9], 0)])
    assert await bases_of(graph, 11, 12) == [9, 10]
    # Here the old branch is merged on one side only. Nothing on the other side can meet it, so nothing below is read.
    graph.reads.clear()
    assert await merge_bases(graph.read, [graph.ids[11]], [graph.ids[13]], limit=32) == (
        graph.ids[9],
    )
    assert set(graph.reads) == {graph.ids[each] for each in (11, 13, 9, 10)}


async def test_unrelated_histories_have_none() -> None:
    graph = Graph([(0, [], 0), (1, [], 0), *((n, [n - 1], 0) for n in range(2, 50))])
    assert await bases_of(graph, 0, -1) == []
    assert not await is_ancestor(graph.read, graph.ids[0], graph.ids[-1])


async def test_a_root_whose_generation_is_too_high_has_no_ancestors() -> None:
    """A damaged row; a revert of a range would take commits for ones that are in the branch already."""
    graph = Graph([(0, [], 0), (1, [], 0)])
    root = graph.commits[graph.ids[1]]
    graph.commits[graph.ids[1]] = replace(root, generation=5)
    assert not await is_ancestor(graph.read, graph.ids[0], graph.ids[1])


async def test_commits_of_one_generation_are_read_together() -> None:
    wide: list[Node] = [(0, [], 0)] + [(n, [0], 0) for n in range(1, 40)]
    tips: list[Node] = [(40, list(range(1, 20)), 0), (41, list(range(20, 40)), 0)]
    graph = Graph(wide + tips)
    pair = [graph.ids[40]], [graph.ids[41]]
    assert await merge_bases(graph.read, *pair, limit=32) == (graph.ids[0],)
    assert graph.rounds == 3


async def test_a_fork_after_ten_thousand_commits_is_found_at_once() -> None:
    """And so is the base of two branches as far away as that."""
    count = 10_000
    trunk: list[Node] = [(0, [], 0)] + [(n, [n - 1], n) for n in range(1, count)]
    forks: list[Node] = [(count, [count - 1], 0), (count + 1, [count - 1], 0), (count + 2, [0], 0)]
    graph = Graph(trunk + forks)
    near, far = ([graph.ids[-3]], [graph.ids[-2]]), ([graph.ids[-3]], [graph.ids[-1]])
    assert await merge_bases(graph.read, *near, limit=32) == (graph.ids[count - 1],)
    assert len(graph.reads) == 3
    graph.reads.clear()
    assert await merge_bases(graph.read, *far, limit=32) == (graph.ids[0],)
    assert len(graph.reads) == count + 2
    graph.reads.clear()
    assert not await is_ancestor(graph.read, graph.ids[-2], graph.ids[-3])
    assert await is_ancestor(graph.read, graph.ids[count - 5], graph.ids[-3])
    assert len(graph.reads) < 20


async def test_a_parent_whose_generation_is_not_less_than_its_childs_is_corrupt() -> None:
    graph = Graph([(0, [], 0), (1, [0], 0), (2, [1], 0), (3, [0], 0)])
    wrong = graph.commits[graph.ids[1]]
    graph.commits[graph.ids[1]] = Commit(wrong.parents, wrong.metarange_id, "", "", 0, generation=2)
    with pytest.raises(TarnError) as raised:
        await merge_bases(graph.read, [graph.ids[2]], [graph.ids[3]], limit=32)
    assert raised.value.kind is Kind.CORRUPT
    assert graph.ids[1] in raised.value.message


async def test_real_commits_are_found_in_batches(lake: Lake, other: Lake) -> None:
    made = [(await lake.commit(str(number), allow_empty=True)) for number in range(4)]
    ids = [each.commit_id for each in made]
    commits = other.graveler.commits
    read = partial(commits.get_many, lake.repository)
    assert await merge_bases(read, [ids[1]], [ids[3]], limit=32) == (ids[1],)
    assert await is_ancestor(read, ids[0], ids[3])
    assert not await is_ancestor(read, ids[3], ids[0])
    order = [ids[2], ids[0], ids[2], ids[3]]
    found = await commits.get_many(lake.repository, order)
    assert [commit.message for commit in found] == ["2", "0", "2", "3"]
    with pytest.raises(TarnError) as raised:
        await commits.get_many(lake.repository, [ids[0], MISSING])
    assert raised.value.reason is Reason.COMMIT_NOT_FOUND
