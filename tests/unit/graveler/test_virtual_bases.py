"""Folds of merge bases on random histories, against a recursive merge of dictionaries; merges of such histories."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from commit_graphs import Graph, Node, graphs
from hypothesis import given
from hypothesis import strategies as st
from lake import MAIN, Lake
from recursive_merge import LEVELS, RecursiveMerge, folded
from tests.support.choices import DEST_WINS, SOURCE_WINS

from tarn.block.merging import ConflictPage
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId, CommitId
from tarn.core.listing.choice import REFUSE, Choice
from tarn.core.listing.virtual import FoldStep, VirtualBase
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.graph import virtual_bases
from tarn_graveler.graph.virtual_bases import LEVELS_MAX, NESTED_MAX, fold_of
from tarn_graveler.versioning.merges import MergeRequest
from tarn_graveler.views.diffing import DiffSides

SIDE = BranchId("side")
Contents = Mapping[str, int]
Changes = Mapping[str, int | None]


# ---- folds


def evaluated(fold: VirtualBase, contents: Mapping[CommitId, Contents]) -> Contents:
    """The content of a fold; the listings of a graph's commits have the ids of the commits."""
    results: list[Contents] = [
        {} if each is None else contents[CommitId(each)] for each in fold.listings
    ]
    for step in fold.steps:
        base = None if step.base is None else results[step.base]
        results.append(folded(base, results[step.left], results[step.right]))
    return results[-1]


@given(graphs(), st.data())
async def test_a_fold_is_the_recursive_merge_of_the_merge_bases(
    graph: Graph, data: st.DataObject
) -> None:
    """Any commits stand in for merge bases, so that almost every history folds, many of them within a fold."""
    bases = tuple(
        sorted(
            data.draw(st.lists(st.sampled_from(graph.ids), min_size=2, max_size=4, unique=True)),
            key=graph.rank,
        )
    )
    versions = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3))
    contents = {each: data.draw(versions) for each in graph.ids}
    fold = await fold_of(graph.read, bases)
    parents = {each: commit.parents for each, commit in graph.commits.items()}
    assert evaluated(fold, contents) == RecursiveMerge(parents, contents, graph.rank).base(bases)
    assert await fold_of(graph.read, bases) == fold
    assert len(set(fold.listings)) == len(fold.listings)
    assert len(fold.steps) < len(bases) + NESTED_MAX


def ladder_nodes(rungs: int) -> list[Node]:
    """Two branches that merge each other's commit before, again and again: rung n is commits 2n + 1 and 2n + 2."""
    nodes: list[Node] = [(0, [], 0), (1, [0], 0), (2, [0], 0)]
    for at in range(1, rungs):
        one, two = 2 * at - 1, 2 * at
        nodes += [(2 * at + 1, [one, two], 0), (2 * at + 2, [two, one], 0)]
    return nodes


def ladder(rungs: int) -> Graph:
    return Graph(ladder_nodes(rungs))


async def test_folds_end_after_four_levels() -> None:
    """Beyond, what differs is undecided: the paths that both lines of the fourth level decided differently."""
    assert LEVELS == LEVELS_MAX
    for rungs, steps in ((1, 1), (2, 2), (4, 4), (5, 4), (9, 4)):
        graph = ladder(rungs)
        fold = await fold_of(graph.read, (graph.ids[-2], graph.ids[-1]))
        assert len(fold.steps) == steps
        assert [step.base is None for step in fold.steps] == [rungs > LEVELS_MAX] + [False] * (
            steps - 1
        )


@given(st.data())
async def test_a_pair_that_is_folded_on_two_levels_is_folded_for_each(data: st.DataObject) -> None:
    """Commits 7 and 8 are folded on the third level for the pair (11, 12), on the second for commit 13 beside it. Only
    the second fold goes deep enough to know the base of 3 and 4.
    """
    graph = Graph([*ladder_nodes(6), (13, [7, 8], 0)])
    bases = tuple(graph.ids[number] for number in (11, 12, 13))
    fold = await fold_of(graph.read, bases)
    assert len(fold.steps) == 4 + 3 + 1
    versions = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3))
    contents = {each: data.draw(versions) for each in graph.ids}
    parents = {each: commit.parents for each, commit in graph.commits.items()}
    assert evaluated(fold, contents) == RecursiveMerge(parents, contents, graph.rank).base(bases)


async def test_the_number_of_nested_merges_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = ladder(4)
    monkeypatch.setattr(virtual_bases, "NESTED_MAX", 2)
    fold = await fold_of(graph.read, (graph.ids[-2], graph.ids[-1]))
    assert len(fold.steps) == 3
    assert fold.steps[0].base is None
    # A base of more merge bases than may be folded is not known either: three of them need two merges.
    wide: list[Node] = [(0, [], 0), *((n, [0], 0) for n in (1, 2, 3))]
    wide += [(4, [1, 2, 3], 0), (5, [3, 2, 1], 0)]
    for most, known in ((2, True), (1, False)):
        monkeypatch.setattr(virtual_bases, "NESTED_MAX", most)
        fold = await fold_of(Graph(wide).read, (Graph(wide).ids[4], Graph(wide).ids[5]))
        assert (fold.steps[-1].base is not None) == known


async def test_a_base_with_too_many_merge_bases_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide: list[Node] = [(0, [], 0), *((n, [0], 0) for n in (1, 2, 3))]
    graph = Graph([*wide, (4, [1, 2, 3], 0), (5, [3, 2, 1], 0)])
    monkeypatch.setattr(virtual_bases, "BASES_MAX", 2)
    fold = await fold_of(graph.read, (graph.ids[4], graph.ids[5]))
    assert fold.steps == (FoldStep(None, 0, 1),)


async def test_the_third_is_merged_from_the_merge_base_of_the_first_two_together() -> None:
    """The second and the third left commit 1; the first has only commit 0 in common with them."""
    nodes: list[Node] = [(0, [], 0), (1, [0], 0), (2, [0], 0), (3, [2], 0)]
    graph = Graph([*nodes, (4, [3], 0), (5, [1], 0), (6, [1], 0)])
    fold = await fold_of(graph.read, (graph.ids[4], graph.ids[5], graph.ids[6]))
    bases = [step.base for step in fold.steps]
    listed = [each if each is None else graph.ids.index(CommitId(each)) for each in fold.listings]
    assert [listed[base] for base in bases if base is not None] == [0, 1]


async def test_a_pair_without_a_common_ancestor_is_folded_from_nothing() -> None:
    graph = Graph([(0, [], 0), (1, [], 0)])
    fold = await fold_of(graph.read, (graph.ids[0], graph.ids[1]))
    assert None in fold.listings
    assert fold.steps == (FoldStep(fold.listings.index(None), 0, 1),) or fold.steps[0].base == 1


# ---- merges over a store


async def committed(lake: Lake, branch: BranchId, changes: Changes) -> CommitId:
    for path, size in changes.items():
        if size is None:
            await lake.delete(path, branch=branch)
        else:
            await lake.put(path, size, branch)
    request = CommitRequest("bob", "changes")
    return (await lake.graveler.committing.commit(lake.branch(branch), request)).commit_id


async def head(lake: Lake, branch: BranchId) -> CommitId:
    return (await lake.graveler.branches.fresh(lake.branch(branch))).branch.commit_id


async def merge(
    lake: Lake, source: CommitId, into: BranchId, choice: Choice = REFUSE, **options: bool
) -> NewHead:
    request = MergeRequest(source, "ann", "merge", choice=choice, **options)  # type: ignore[arg-type]
    return await lake.graveler.merges.merge(lake.branch(into), request)


async def content(lake: Lake, branch: BranchId = MAIN) -> dict[str, int]:
    found = {path: await lake.get(path, f"{branch}@") for path in "abcdefgh"}
    return {path: size for path, size in found.items() if size is not None}


async def crossed(
    lake: Lake, base: Changes, main: Changes, side: Changes, choices: tuple[Choice, Choice]
) -> tuple[CommitId, CommitId]:
    """Changes both branches, and merges them into each other; returns the two merge bases that follow."""
    await committed(lake, MAIN, base)
    await lake.graveler.branches.create(lake.branch(SIDE), await head(lake, MAIN))
    one, two = await committed(lake, MAIN, main), await committed(lake, SIDE, side)
    await merge(lake, two, MAIN, choices[0])
    await merge(lake, one, SIDE, choices[1])
    return one, two


async def conflicts(lake: Lake) -> ConflictPage:
    """The conflicts of the merge of the side branch into main, which are the same the other way round."""
    dest, source = await head(lake, MAIN), await head(lake, SIDE)
    merges = lake.graveler.merges
    there = await merges.preview(lake.repository, dest, source, REFUSE, 100)
    back = await merges.preview(lake.repository, source, dest, REFUSE, 100)
    assert there.bases == back.bases
    page, other = there.merge.conflicts, back.merge.conflicts
    assert (page.paths, page.bases, page.undecided) == (other.paths, other.bases, other.undecided)
    assert (page.sources, page.dests) == (other.dests, other.sources)
    return page


async def refused(
    lake: Lake, source: CommitId, into: BranchId, *, squash: bool = False
) -> TarnError:
    before = await head(lake, into)
    with pytest.raises(TarnError) as caught:
        await merge(lake, source, into, squash=squash)
    assert await head(lake, into) == before
    return caught.value


async def test_what_two_merges_decided_differently_is_a_conflict(lake: Lake) -> None:
    """Each branch kept its own version of `a`. One merge base has the one, the other has the other."""
    one, two = await crossed(lake, {"a": 1, "b": 1}, {"a": 2}, {"a": 3}, (DEST_WINS, DEST_WINS))
    assert (await content(lake), await content(lake, SIDE)) == ({"a": 2, "b": 1}, {"a": 3, "b": 1})
    page = await conflicts(lake)
    assert (page.paths, page.bases, page.undecided) == (["a"], [b""], [True])
    for source, into in ((await head(lake, SIDE), MAIN), (await head(lake, MAIN), SIDE)):
        for squash in (False, True):
            error = await refused(lake, source, into, squash=squash)
            assert error.reason is Reason.MERGE_CONFLICT
            assert "a" in error.message
    preview = await lake.graveler.merges.preview(
        lake.repository, await head(lake, MAIN), await head(lake, SIDE), SOURCE_WINS, 10
    )
    assert set(preview.bases) == {one, two}
    assert (preview.merge.changes.updated, preview.merge.conflict_count) == (1, 0)
    await merge(lake, await head(lake, SIDE), MAIN, SOURCE_WINS)
    assert await content(lake) == {"a": 3, "b": 1}


@pytest.mark.parametrize(
    ("main", "side", "expected"),
    [
        pytest.param({}, {}, ["a"], id="each side kept its version"),
        pytest.param({"a": 5}, {"a": 5}, [], id="both have the same version now"),
        pytest.param({"a": None}, {"a": None}, [], id="both removed it"),
        pytest.param({"a": None}, {}, ["a"], id="one side removed it, the other did not touch it"),
        pytest.param({"a": 1}, {}, ["a"], id="one side has the version of the common base"),
        pytest.param({"a": 3}, {}, [], id="one side took over the other's version"),
        pytest.param({"b": 7}, {"b": 7, "c": 1}, ["a"], id="other paths are merged"),
    ],
)
async def test_an_undecided_path_is_no_conflict_if_both_sides_have_one_version(
    lake: Lake, main: Changes, side: Changes, expected: list[str]
) -> None:
    await crossed(lake, {"a": 1, "b": 1}, {"a": 2}, {"a": 3}, (DEST_WINS, DEST_WINS))
    for branch, changes in ((MAIN, main), (SIDE, side)):
        if changes:
            await committed(lake, branch, changes)
    assert (await conflicts(lake)).paths == expected
    ours, theirs = await content(lake), await content(lake, SIDE)
    await merge(lake, await head(lake, SIDE), MAIN, SOURCE_WINS)
    assert await content(lake) == {**ours, **theirs}


async def test_a_change_that_one_merge_base_brought_is_no_conflict(lake: Lake) -> None:
    """Only one merge base changed `a` and `b`, so their version is decided, and later changes are compared with it."""
    await crossed(lake, {"a": 1, "b": 1, "c": 1}, {"a": 2}, {"b": 3}, (REFUSE, REFUSE))
    await committed(lake, MAIN, {"a": 4, "c": None})
    await committed(lake, SIDE, {"b": 5})
    assert (await conflicts(lake)).paths == []
    await merge(lake, await head(lake, SIDE), MAIN)
    assert await content(lake) == {"a": 4, "b": 5}


async def test_a_change_against_a_decided_base_is_an_ordinary_conflict(lake: Lake) -> None:
    await crossed(lake, {"a": 1}, {"a": 2}, {"b": 3}, (REFUSE, REFUSE))
    await committed(lake, MAIN, {"a": 4})
    await committed(lake, SIDE, {"a": 5})
    page = await conflicts(lake)
    assert (page.paths, page.undecided) == (["a"], [False])
    assert page.bases[0], "the version of the merge base that changed it"


async def test_a_criss_cross_after_a_criss_cross(lake: Lake) -> None:
    """The merge bases of the second one have two merge bases themselves, between which `a` is undecided."""
    await crossed(lake, {"a": 1, "b": 1}, {"a": 2}, {"a": 3}, (DEST_WINS, DEST_WINS))
    one = await committed(lake, MAIN, {"b": 2})
    two = await committed(lake, SIDE, {"c": 2})
    await merge(lake, two, MAIN, DEST_WINS)
    await merge(lake, one, SIDE, DEST_WINS)
    page = await conflicts(lake)
    assert (page.paths, page.undecided) == (["a"], [True])
    await committed(lake, SIDE, {"b": 9, "c": None})
    assert (await conflicts(lake)).paths == ["a"]
    await merge(lake, await head(lake, SIDE), MAIN, DEST_WINS)
    assert await content(lake) == {"a": 2, "b": 9}


async def test_two_branches_that_merged_the_same_three_features(lake: Lake) -> None:
    """The tips of the features are three merge bases; two of them changed `a`."""
    await committed(lake, MAIN, {"a": 1})
    for name in ("side", "f1", "f2", "f3"):
        branch = lake.branch(BranchId(name))
        await lake.graveler.branches.create(branch, await head(lake, MAIN))
    await committed(lake, SIDE, {"h": 1})
    tips = [
        await committed(lake, BranchId(name), changes)
        for name, changes in (("f1", {"a": 2}), ("f2", {"b": 2}), ("f3", {"a": 3, "c": 2}))
    ]
    for tip in tips:
        await merge(lake, tip, MAIN, SOURCE_WINS)
        await merge(lake, tip, SIDE, DEST_WINS)
    assert (await content(lake), await content(lake, SIDE)) == (
        {"a": 3, "b": 2, "c": 2},
        {"a": 2, "b": 2, "c": 2, "h": 1},
    )
    page = await conflicts(lake)
    assert (page.paths, page.undecided) == (["a"], [True])
    bases = await lake.graveler.merges.preview(
        lake.repository, await head(lake, MAIN), await head(lake, SIDE), REFUSE, 1
    )
    assert set(bases.bases) == set(tips)


async def test_a_difference_from_several_merge_bases_shows_what_a_merge_would_bring(
    lake: Lake,
) -> None:
    """`a` is undecided, so it is compared with the left ref; `b` is decided by the fold."""
    one, two = await crossed(
        lake, {"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 3}, (DEST_WINS, DEST_WINS)
    )
    await committed(lake, SIDE, {"c": 4})
    await committed(lake, MAIN, {"d": 4})
    diffing, repository = lake.graveler.diffing, lake.repository
    left, right = await head(lake, MAIN), await head(lake, SIDE)
    sides = await diffing.from_merge_base(repository, DiffSides(left, right))
    assert set(sides.bases) == {one, two}
    assert sides.shown_left == sides.bases[0]
    page = await diffing.commits(repository, sides, prefix="", after="", limit=10)
    assert page.paths == ["a", "c"]
    assert page.lefts == [await entry(lake, "main@", "a"), b""]
    folders = await diffing.folders(repository, sides, prefix="", delimiter="/", after="", limit=10)
    assert (folders.total.added, folders.total.updated) == (1, 1)


async def entry(lake: Lake, ref: str, path: str) -> bytes:
    commit = await lake.graveler.refs.commit_of(lake.repository, ref)
    page = await lake.graveler.diffing.commits(
        lake.repository, DiffSides(None, commit), prefix=path, after="", limit=1
    )
    return page.rights[0]


async def test_every_replica_folds_alike_and_remembers_it(lake: Lake, other: Lake) -> None:
    await crossed(lake, {"a": 1}, {"a": 2}, {"a": 3}, (DEST_WINS, DEST_WINS))
    pair = await head(lake, MAIN), await head(lake, SIDE)
    folds = []
    for each, order in ((lake, pair), (other, pair[::-1])):
        found = virtual_bases.MergeBases(each.graveler.commits)
        bases = await found.of(each.repository, *order)
        fold = await found.listing(each.repository, bases)
        assert await found.listing(each.repository, bases) is fold, "remembered"
        folds.append(fold)
    assert folds[0] == folds[1]


async def test_more_merge_bases_than_can_be_folded_refuse_the_merge_and_a_way_out_works(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await committed(lake, MAIN, {"a": 1})
    for name in ("side", "f1", "f2", "f3"):
        branch = lake.branch(BranchId(name))
        await lake.graveler.branches.create(branch, await head(lake, MAIN))
    await committed(lake, SIDE, {"h": 1})
    older = CommitId("")
    for at, name in enumerate(("f1", "f2", "f3")):
        tip = await committed(lake, BranchId(name), {"bcd"[at]: 2})
        await merge(lake, tip, MAIN)
        new = await merge(lake, tip, SIDE)
        older = new.commit_id if at == 1 else older
    monkeypatch.setattr(virtual_bases, "BASES_MAX", 2)
    source, dest = await head(lake, SIDE), await head(lake, MAIN)
    sides = DiffSides(dest, source)
    works: list[Callable[[], object]] = [
        lambda: merge(lake, source, MAIN),
        lambda: merge(lake, source, MAIN, SOURCE_WINS),
        lambda: lake.graveler.merges.preview(lake.repository, dest, source, REFUSE, 1),
        lambda: lake.graveler.diffing.from_merge_base(lake.repository, sides),
    ]
    for work in works:
        with pytest.raises(TarnError) as caught:
            await work()  # type: ignore[misc]
        assert caught.value.reason is Reason.TOO_MANY_MERGE_BASES
        assert "Merge an older commit of the source first" in caught.value.message
    assert await head(lake, MAIN) == dest
    await merge(lake, older, MAIN)
    await merge(lake, source, MAIN)
    assert await content(lake) == {"a": 1, "b": 2, "c": 2, "d": 2, "h": 1}
