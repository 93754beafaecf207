"""The iterator over ancestors returns the items of a sorted list, after any earlier reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lake import Lake, create_repository

from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId
from tarn.kv.records import Repository
from tarn_graveler.cursors.cursor import Cursor
from tarn_graveler.graph.walk import Span, order_of
from tarn_graveler.iterators import commits as commits_module
from tarn_graveler.iterators.commits import AncestorSource
from tarn_graveler.records.commits import Commits

NUMBERS = count()
EXAMPLES = settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
GRAPHS = st.lists(
    st.tuples(st.lists(st.integers(0, 20), max_size=3), st.integers(0, 2)), min_size=1, max_size=14
)
CALLS = st.lists(
    st.tuples(st.sampled_from(["next", "page", "seek", "seek_behind"]), st.integers(1, 5)),
    min_size=1,
    max_size=12,
)

Made = dict[CommitId, Commit]


async def make(lake: Lake, graph: Sequence[tuple[list[int], int]]) -> tuple[Lake, Made]:
    """Makes the commits of a graph in a new repository; parents are places of earlier commits."""
    repository = await create_repository(lake.graveler, f"r{next(NUMBERS)}")
    lake = replace(lake, repository=repository)
    first = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    made = {first: await lake.graveler.commits.get(repository, first)}
    for places, time_us in graph:
        known = list(made)
        parents = tuple(dict.fromkeys(known[place % len(known)] for place in places))
        generation = 1 + max((made[each].generation for each in parents), default=-1)
        commit = Commit(
            parents, made[first].metarange_id, "ann", f"{next(NUMBERS)}", time_us, generation, ()
        )
        made[await lake.graveler.commits.add(repository, commit)] = commit
    return lake, made


def listed(made: Made, start: CommitId, *, first_parent: bool = False) -> list[CommitId]:
    """The ancestors of a commit, by definition."""
    found, left = {start}, [start]
    while left:
        parents = made[left.pop()].parents[: 1 if first_parent else None]
        left += set(parents) - found
        found |= set(parents)
    return sorted(found, key=lambda each: order_of(each, made[each]))


@EXAMPLES
@given(GRAPHS, CALLS, st.booleans(), st.data())
async def test_calls_return_what_a_sorted_list_has(
    lake: Lake,
    graph: list[tuple[list[int], int]],
    calls: list[tuple[str, int]],
    first_parent: bool,
    data: st.DataObject,
) -> None:
    lake, made = await make(lake, graph)
    start = data.draw(st.sampled_from(list(made)))
    prefix = data.draw(st.sampled_from(["", "", "0", start[:1], start]))
    limit = data.draw(st.none() | st.integers(0, 8))
    span = Span.of(start, first_parent=first_parent)
    every = [
        each for each in listed(made, start, first_parent=first_parent) if each.startswith(prefix)
    ]
    iterators = lake.graveler.iterators
    assert [key async for key, _ in iterators.ancestors(lake.repository, span, prefix=prefix)] == (
        every
    )
    cursor = iterators.ancestors(lake.repository, span, prefix=prefix, limit=limit)
    left, returned = every, 0
    for call, number in calls:
        if call.startswith("seek"):
            place = data.draw(st.sampled_from(list(made)))  # also those that are not listed
            getattr(cursor, call)(place)
            at = order_of(place, made[place])
            left = [
                each
                for each in every
                if order_of(each, made[each]) > at or (each == place and call == "seek")
            ]
            continue
        if call == "next":
            item = await anext(cursor, None)
            found, over = ([], True) if item is None else ([item[0]], False)
        else:
            page = await cursor.page(number)
            assert len(page.items) <= number
            assert all(made[key] == commit for key, commit in page.items)
            found, over = [key for key, _ in page.items], page.next_after is None
        assert found == left[: len(found)]
        left, returned = left[len(found) :], returned + len(found)
        assert limit is None or returned <= limit
        assert not over or not left or returned == limit


@EXAMPLES
@given(GRAPHS, st.integers(1, 4))
async def test_pages_continue_without_the_cursor(
    lake: Lake, graph: list[tuple[list[int], int]], size: int
) -> None:
    lake, made = await make(lake, graph)
    start = list(made)[-1]
    found: list[CommitId] = []
    after: str | None = ""
    while after is not None:
        cursor = lake.graveler.iterators.ancestors(lake.repository, Span.of(start))
        cursor.seek_behind(after)
        page = await cursor.page(size)
        found += [key for key, _ in page.items]
        after = page.next_after
    assert found == listed(made, start)


class Read(Commits):
    """Counts reads, and fails on request."""

    def __init__(self, commits: Commits) -> None:
        self._inner = commits
        self.read: list[CommitId] = []
        self.fails_at: CommitId | None = None

    async def get(self, repository: Repository, commit_id: CommitId) -> Commit:
        return (await self.get_many(repository, [commit_id]))[0]

    async def get_many(
        self, repository: Repository, commit_ids: Sequence[CommitId]
    ) -> list[Commit]:
        self.read += commit_ids
        if self.fails_at in commit_ids:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "try again")
        return await self._inner.get_many(repository, commit_ids)


LINE = [([number], 0) for number in range(30)]


@pytest.mark.parametrize("place", [5, 6, 8])
async def test_a_walk_that_failed_is_walked_again(lake: Lake, place: int) -> None:
    lake, made = await make(lake, LINE)
    line = listed(made, list(made)[-1])
    commits = Read(lake.graveler.commits)
    cursor = Cursor(AncestorSource(commits, lake.repository, Span.of(line[0])))
    first = [key for key, _ in (await cursor.page(5)).items]
    commits.fails_at = line[place]
    with pytest.raises(TarnError):
        await cursor.page(10)
    commits.fails_at = None
    assert first + [key async for key, _ in cursor] == line


async def test_a_read_continues_the_walk_of_the_last_one(lake: Lake) -> None:
    lake, made = await make(lake, LINE)
    line = listed(made, list(made)[-1])
    commits = Read(lake.graveler.commits)
    cursor = Cursor(AncestorSource(commits, lake.repository, Span.of(line[0])))
    await cursor.page(10)
    commits.read.clear()
    assert [key for key, _ in (await cursor.page(3)).items] == line[10:13]
    assert not set(commits.read) & set(line[:10])
    cursor.seek(line[20])
    assert (await anext(cursor))[0] == line[20]
    assert not set(commits.read) & set(line[:10])
    cursor.seek(line[2])
    assert (await anext(cursor))[0] == line[2], "backward: walked again"


async def test_a_read_passes_a_bounded_number_of_commits(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits_module, "_STEPS_MAX", 4)
    lake, made = await make(lake, LINE)
    line = listed(made, list(made)[-1])
    cursor = lake.graveler.iterators.ancestors(lake.repository, Span.of(line[0]), prefix=line[-1])
    assert (await cursor.page(5)).items == []
    assert [key async for key, _ in cursor] == line[-1:]


async def test_a_place_that_is_no_commit_is_refused(lake: Lake) -> None:
    lake, made = await make(lake, [])
    cursor = lake.graveler.iterators.ancestors(lake.repository, Span.of(next(iter(made))))
    cursor.seek("0" * 64)
    with pytest.raises(TarnError) as raised:
        await anext(cursor)
    assert raised.value.reason is Reason.COMMIT_NOT_FOUND
