"""The log by path: equal to its definition on random histories, with and without rows; what it reads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from graveler_service import Service, reason_of
from lake import Lake, Replicas
from lake_histories import PATHS, Story, random_story
from lake_merges import branch_with, merge

from tarn.core.branch import Branch
from tarn.core.errors import Reason
from tarn.core.ids import CommitId
from tarn.core.listing import changed_paths
from tarn.core.listing.changed_paths import UNKNOWN_PATHS, ChangedPaths, Form, PathQuery
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Group
from tarn_graveler.branch.handle import BranchHandle, claims_nothing
from tarn_graveler.graph.walk import Span
from tarn_graveler.views import log as ancestry
from tarn_graveler.views.log import HistoryPage, LogFilter


async def log(
    lake: Lake, span: Span, paths: PathQuery, limit: int, committer: str = ""
) -> list[CommitId]:
    """All pages of a log by path."""
    found: list[CommitId] = []
    after: CommitId | None = None
    wanted = LogFilter(paths=paths, committer=committer)
    while True:
        page = await lake.graveler.history.page(
            lake.repository, span, limit, after=after, wanted=wanted
        )
        assert len(page.commits) <= limit
        found += [commit_id for commit_id, _ in page.commits]
        if page.next is None:
            return found
        span, after = Span(page.next.frontier, span.hiding, span.first_parent), page.next.after


async def forget_rows(lake: Lake) -> None:
    await settled(lake)
    await lake.kv.drop_partition(lake.graveler.repositories.keys_of(lake.repository).changed)


async def settled(lake: Lake) -> None:
    """Waits until rows that are written beside commits have landed."""
    for _ in range(20):
        await asyncio.sleep(0)


async def row_of(lake: Lake, commit_id: CommitId) -> ChangedPaths | None:
    await settled(lake)
    partition = lake.graveler.repositories.keys_of(lake.repository).changed
    (row,) = await lake.kv.get_many(partition, [RepositoryKeys.changed_paths(commit_id)])
    return None if row is None else ChangedPaths.decode(row.value)


async def compare(lake: Lake, story: Story, rng: random.Random, patched: Any) -> None:
    """Compares some random logs with their definition."""
    for _ in range(12):
        paths = tuple(rng.sample(PATHS, rng.choice((0, 1, 2))))
        prefixes = tuple(rng.sample(("", "d", "d/", "d/e/", "z/", "x"), rng.choice((0, 1, 2))))
        query, first_parent = PathQuery(paths, prefixes), rng.random() < 0.4
        committer = rng.choice(("", "", "bob"))
        left, right = rng.choice(story.heads), rng.choice(story.heads)
        span, hidden = Span.of(right, first_parent=first_parent), set()
        if rng.random() < 0.4:
            span = Span.between(left, right, first_parent=first_parent)
            hidden = story.ancestors(left)
        expected = [
            each
            for each in story.log(right, first_parent=first_parent)
            if each not in hidden
            and any(map(query.matches, story.changed(each, first_parent=first_parent)))
            and committer in {"", story.commits[each].committer}
        ]
        patched.setattr(ancestry, "_COMPARED_MAX", rng.choice((1, 64)))
        patched.setattr(ancestry, "FRONTIER_MAX", rng.choice((0, 128)))
        patched.setattr(ancestry, "_BATCH_MIN", rng.choice((1, 16)))
        assert await log(lake, span, query, rng.choice((1, 3, 100)), committer) == expected, query


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("paths_max", "marks_max"), [(512, 16_384), (0, 16_384), (0, 2), (0, -1)])
async def test_the_log_by_path_is_its_definition(
    lake: Lake, other: Lake, seed: int, paths_max: int, marks_max: int
) -> None:
    """With each form of the rows; then by another replica, with the rows and without."""
    rng = random.Random(f"{seed} {paths_max} {marks_max}")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(changed_paths, "_PATHS_MAX", paths_max)
        patched.setattr(changed_paths, "_MARKS_MAX", marks_max)
        story = await random_story(lake, seed)
        assert any(len(each.parents) > 1 for each in story.commits.values())
        await compare(lake, story, rng, patched)
        if seed % 2:
            await forget_rows(lake)
        await compare(other, story, rng, patched)


async def test_a_row_is_what_the_commit_changed(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.put("b", 1)
    first = await lake.commit()
    await lake.put("a", 1)  # the same object again: no change
    await lake.delete("b")
    await lake.delete("nothing")
    await lake.put("c", 1)
    second = await lake.commit()
    for made, paths in ((first, ("a", "b")), (second, ("b", "c"))):
        row = await row_of(lake, made.commit_id)
        assert row is not None
        assert (row.form, row.paths) == (Form.PATHS, paths)


async def test_a_merge_has_a_row_and_changes_nothing_but_along_first_parents(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.commit()
    source = await branch_with(lake, {"b": 1})
    await lake.put("c", 1)
    await lake.commit()
    merged = await merge(lake, source)
    row = await row_of(lake, merged.commit_id)
    assert row is not None
    assert (row.form, row.paths) == (Form.PATHS, ())
    query = PathQuery(("b",), ())
    assert await log(lake, Span.of(merged.commit_id), query, 10) == [source]
    line = Span.of(merged.commit_id, first_parent=True)
    assert await log(lake, line, query, 10) == [merged.commit_id]
    assert await log(lake, line, PathQuery(("c",), ()), 10) == list(merged.commit.parents[:1])


async def test_a_commit_that_was_built_on_a_compacted_listing_is_compared_with_its_parent(
    lake: Lake,
) -> None:
    """What the build changed is then not what the commit changed."""
    await lake.put("a", 1)
    await lake.commit()
    compacted = await lake.graveler.committed.build(lake.repository.storage_namespace, None, [])

    def compact(now: Branch, op_id: bytes) -> Branch:
        return replace(
            now,
            compacted_metarange_id=compacted.metarange_id,
            recent_op_ids=(op_id, *now.recent_op_ids),
        )

    await BranchHandle(lake.graveler.branches, lake.main).change(compact, claims_nothing)
    await lake.put("b", 1)
    made = await lake.commit()
    assert await row_of(lake, made.commit_id) is None
    assert await log(lake, Span.of(made.commit_id), PathQuery(("a",), ()), 1) == [
        made.commit_id,
        made.commit.parents[0],
    ]
    row = await row_of(lake, made.commit_id)
    assert row is not None
    assert row.paths == ("a", "b")


@pytest.mark.parametrize("has_row", [True, False])
async def test_a_merge_that_changes_paths_of_its_own_is_listed_for_these_only(
    lake: Lake, has_row: bool
) -> None:
    """Tarn makes no such merge; a history that another program wrote may hold one."""
    await lake.put("a", 1)
    base = await lake.commit()
    source = await branch_with(lake, {"b/1": 1, "c": 1})
    await lake.put("d", 1)
    await lake.put("b/1", 1)
    await lake.put("e/1", 1)
    await lake.put("c", 3)
    evil = (await lake.commit()).commit  # its listing is taken for the merge's
    commit = replace(evil, parents=(base.commit_id, source), generation=9)
    merged = await lake.graveler.commits.add(lake.repository, commit)
    if has_row:
        await lake.kv.set_many(
            lake.graveler.repositories.keys_of(lake.repository).changed,
            [Group(key := RepositoryKeys.changed_paths(merged), ((key, UNKNOWN_PATHS.encode()),))],
        )
    line = Span.of(merged, first_parent=True)
    for query, along_line in (
        (PathQuery((), ("b/",)), True),
        (PathQuery(("b/1",), ()), True),
        (PathQuery((), ("e/",)), True),
        (PathQuery(("c",), ()), True),
        (PathQuery(("a",), ("z",)), False),
    ):
        found = await log(lake, line, query, 10)
        assert (merged in found) == along_line, query
        expected = along_line and "b/1" not in query.paths and "b/" not in query.prefixes
        assert (merged in await log(lake, Span.of(merged), query, 10)) == expected, query


async def count_compared(lake: Lake, work: Callable[[], Awaitable[Any]]) -> int:
    """How often listings are compared."""
    count = 0
    committed = lake.graveler.committed
    places = {"page": committed.differences, "same_at": committed}
    originals = {name: getattr(place, name) for name, place in places.items()}

    def counting(name: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            if name == "page" or args[-1]:
                count += 1
            return await originals[name](*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patched:
        for name, place in places.items():
            patched.setattr(place, name, counting(name))
        await work()
    return count


async def history_of_files(lake: Lake, count: int) -> CommitId:
    for number in range(count):
        await lake.put(f"d{number % 3}/{number % 5}", number)
        await lake.commit(f"{number}")
    return (await lake.graveler.branches.fresh(lake.main)).branch.commit_id


async def test_with_rows_no_listing_is_compared(lake: Lake, other: Lake) -> None:
    head = await history_of_files(lake, 20)
    await settled(lake)
    paths = PathQuery(("d0/0",), ("d1/",))
    for replica in (lake, other):
        work = partial(log, replica, Span.of(head), paths, 100)
        assert not await count_compared(replica, work)


async def test_a_missing_row_is_made_once_and_remembered(
    lake: Lake, other: Lake, replicas: Replicas
) -> None:
    head = await history_of_files(lake, 6)
    await forget_rows(lake)
    query = PathQuery(("d0/0",), ())
    first = await count_compared(other, lambda: log(other, Span.of(head), query, 100))
    assert first >= 6
    await settled(other)
    async with replicas.replica() as graveler:
        third = replace(lake, graveler=graveler)
        assert not await count_compared(third, lambda: log(third, Span.of(head), query, 100))


async def test_a_damaged_row_is_made_again(lake: Lake, other: Lake) -> None:
    head = await history_of_files(lake, 2)
    await settled(lake)
    partition = lake.graveler.repositories.keys_of(lake.repository).changed
    key = RepositoryKeys.changed_paths(head)
    await lake.kv.set_many(partition, [Group(key, ((key, b"damaged"),))])
    query = PathQuery(("d1/1",), ())
    assert await log(other, Span.of(head), query, 10) == [head]
    row = await row_of(other, head)
    assert row is not None
    assert row.paths == ("d1/1",)


async def test_a_page_compares_a_bounded_number_of_listings(lake: Lake, other: Lake) -> None:
    head = await history_of_files(lake, 12)
    await forget_rows(lake)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ancestry, "_COMPARED_MAX", 3)
        wanted = LogFilter(paths=PathQuery(("none",), ()))
        pages: list[HistoryPage] = []

        async def page() -> None:
            pages.append(
                await other.graveler.history.page(
                    other.repository, Span.of(head), 100, wanted=wanted
                )
            )

        assert await count_compared(other, page) == 3
    assert pages[0].commits == []
    assert pages[0].next is not None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"paths": ["x"] * 101}, Reason.INVALID_ARGUMENT),
        ({"paths": ["x"] * 50, "prefixes": ["x"] * 51}, Reason.INVALID_ARGUMENT),
        ({"paths": [""]}, Reason.INVALID_ARGUMENT),
        ({"prefixes": ["x" * 1025]}, Reason.KEY_TOO_LONG),
    ],
)
async def test_paths_have_limits(service: Service, options: Any, reason: Reason) -> None:
    work = service.graveler.list_commits(service.admin, "lake", "main", **options)
    assert await reason_of(work) is reason


async def test_the_service_logs_by_path(service: Service) -> None:
    for path in ("a", "d/x", "a", "e"):
        await service.put(path, len(path) + (await count(service)))
        await service.graveler.create_commit(service.admin, "lake", "main", path)

    async def messages(**options: Any) -> list[str]:
        found, token = [], ""
        while True:
            page = await service.graveler.list_commits(
                service.admin, "lake", "main", page_size=1, page_token=token, **options
            )
            found += [each.message for each in page.commits]
            token = page.next_page_token
            if not token:
                return found

    assert await messages(paths=["a"]) == ["a", "a"]
    assert await messages(prefixes=["d"]) == ["d/x"]
    assert await messages(paths=["e"], prefixes=["d/"]) == ["e", "d/x"]
    assert await messages(prefixes=[""]) == ["e", "a", "d/x", "a"]


async def count(service: Service) -> int:
    return len((await service.graveler.list_commits(service.admin, "lake", "main")).commits)
