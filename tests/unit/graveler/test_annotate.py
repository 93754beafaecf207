"""Annotate on random histories, against its definition; what it reads; the service."""

from __future__ import annotations

import random

import pytest
from graveler_service import Service
from lake import Lake
from lake_histories import PATHS, Story, random_story
from lake_merges import branch_with, merge
from tests.support.choices import DEST_WINS

from tarn.core.ids import CommitId
from tarn.core.listing import changed_paths
from tarn_graveler.views import annotating


def origin(story: Story, commit_id: CommitId, path: str) -> CommitId:
    """The definition: back to the first parent that has the same content, as long as there is one."""
    while True:
        size = story.contents[commit_id][path]
        for parent in story.commits[commit_id].parents:
            if story.contents[parent].get(path) == size:
                commit_id = parent
                break
        else:
            return commit_id


async def annotated(
    lake: Lake, start: CommitId, *, prefix: str = "", limit: int = 1000
) -> dict[str, tuple[CommitId, bool]]:
    """All pages."""
    found: dict[str, tuple[CommitId, bool]] = {}
    after: str | None = ""
    while after is not None:
        page = await lake.graveler.annotating.page(
            lake.repository, start, prefix=prefix, after=after, limit=limit
        )
        assert len(page.lines) <= limit
        for line in page.lines:
            assert line.path not in found
            assert line.commit_id in page.commits
            found[line.path] = line.commit_id, line.is_final
        after = page.next_after
    assert list(found) == sorted(found)
    return found


async def forget_rows(lake: Lake) -> None:
    await lake.kv.drop_partition(lake.graveler.repositories.keys_of(lake.repository).changed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("paths_max", "marks_max"), [(512, 16_384), (0, 16_384), (0, 3), (0, -1)])
async def test_annotate_is_its_definition(
    lake: Lake, other: Lake, seed: int, paths_max: int, marks_max: int
) -> None:
    rng = random.Random(f"{seed} {paths_max} {marks_max}")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(changed_paths, "_PATHS_MAX", paths_max)
        patched.setattr(changed_paths, "_MARKS_MAX", marks_max)
        patched.setattr(annotating, "_BATCH", rng.choice((1, 256)))
        story = await random_story(lake, 100 + seed)
        if seed == 3:
            await forget_rows(lake)
        for start in story.heads:
            for prefix in ("", rng.choice(("d", "d/", "z/é", "no"))):
                paths = [path for path in PATHS if path.startswith(prefix)]
                expected = {
                    path: (origin(story, start, path), True)
                    for path in sorted(paths)
                    if path in story.contents[start]
                }
                for replica in (lake, other):
                    limit = rng.choice((1, 2, 1000))
                    assert await annotated(replica, start, prefix=prefix, limit=limit) == expected


@pytest.mark.parametrize(("steps", "work"), [(1, 2_000), (20_000, 1), (20_000, 30)])
async def test_a_search_that_is_not_finished_names_a_commit_to_continue_with(
    lake: Lake, steps: int, work: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(annotating, "_BATCH", 1)
        patched.setattr(changed_paths, "_PATHS_MAX", 0)
        patched.setattr(changed_paths, "_MARKS_MAX", -1)
        story = await random_story(lake, 7)
        patched.setattr(annotating, "_STEPS_MAX", steps)
        patched.setattr(annotating, "_WORK_MAX", work)
        start = story.heads[0]
        unfinished = 0
        for path in story.contents[start]:
            at, is_final = (await annotated(lake, start, prefix=path))[path]
            for _ in range(100):
                if is_final:
                    break
                unfinished += 1
                assert story.contents[at][path] == story.contents[start][path]
                assert origin(story, at, path) == origin(story, start, path)
                at, is_final = (await annotated(lake, at, prefix=path))[path]
            assert (at, is_final) == (origin(story, start, path), True)
        assert unfinished


async def test_a_version_that_a_merge_dropped_is_not_named(lake: Lake) -> None:
    await lake.put("a", 1)
    first = (await lake.commit()).commit_id
    source = await branch_with(lake, {"a": 2, "b": 1})
    await lake.put("a", 3)
    ours = (await lake.commit()).commit_id
    merged = await merge(lake, source, choice=DEST_WINS)
    assert await annotated(lake, merged.commit_id) == {"a": (ours, True), "b": (source, True)}
    assert await annotated(lake, first) == {"a": (first, True)}


async def test_pages_of_the_service_keep_their_commit(service: Service) -> None:
    for path in ("a", "b", "c"):
        await service.put(path, 1)
        await service.graveler.create_commit(service.admin, "lake", "main", f"add {path}\nmore")
    page = await service.graveler.annotate_paths(service.admin, "lake", "main", page_size=1)
    assert [(line.path, line.commit.subject) for line in page.lines] == [("a", "add a")]
    await service.put("b", 2)
    await service.graveler.create_commit(service.admin, "lake", "main", "change b")
    page = await service.graveler.annotate_paths(
        service.admin, "lake", "main", page_token=page.next_page_token
    )
    assert [(line.path, line.commit.subject, line.is_final) for line in page.lines] == [
        ("b", "add b", True),
        ("c", "add c", True),
    ]
    assert not page.next_page_token
