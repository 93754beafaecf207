"""Pages of branches, tags and repositories, as the services read them."""

from __future__ import annotations

from typing import Any

import pytest
from lake import Lake, create_repository

from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId, CommitId, TagId
from tarn_graveler.cursors.cursor import Cursor

NAMES = ["aaa", "abc", "bbb", "bbb-1", "bbb-2", "ccc"]


async def page(lake: Lake, sort: str, prefix: str, after: str, limit: int) -> list[str]:
    iterators, repository = lake.graveler.iterators, lake.repository
    cursors: dict[str, Cursor[Any, Any]] = {
        "branches": iterators.branches(repository, prefix=prefix),
        "tags": iterators.tags(repository, prefix=prefix),
        "repositories": iterators.repositories(prefix=prefix),
    }
    cursors[sort].seek_behind(after)
    return [name for name, _ in (await cursors[sort].page(limit)).items]


async def make(lake: Lake, sort: str, name: str) -> None:
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    if sort == "branches":
        await lake.graveler.branches.create(lake.branch(BranchId(name)), CommitId(head))
    elif sort == "tags":
        await lake.graveler.tags.create(lake.repository, TagId(name), CommitId(head))
    else:
        await create_repository(lake.graveler, name)


@pytest.mark.parametrize("sort", ["branches", "tags", "repositories"])
async def test_a_page_has_the_names_of_its_prefix_behind_a_name(lake: Lake, sort: str) -> None:
    for name in NAMES:
        await make(lake, sort, name)
    bs = ["bbb", "bbb-1", "bbb-2"]
    assert await page(lake, sort, "bbb", "", 10) == bs
    assert await page(lake, sort, "bbb", "", 2) == bs[:2]
    assert await page(lake, sort, "bbb", "bbb", 10) == bs[1:]
    assert await page(lake, sort, "bbb", "bbb-2", 10) == []
    assert await page(lake, sort, "bbb", "aaa", 10) == bs, "a name before the prefix is no limit"
    assert await page(lake, sort, "bbb", "ccc", 10) == []
    own = {"branches": ["main"], "tags": [], "repositories": ["lake"]}[sort]
    assert await page(lake, sort, "", "", 10) == NAMES + own
    assert await page(lake, sort, "", "bbb-1", 10) == NAMES[4:] + own


async def test_a_branch_that_is_gone_cannot_be_ended_with_its_repository(lake: Lake) -> None:
    with pytest.raises(TarnError) as raised:
        await lake.graveler.branches.mark_deleted(lake.branch(BranchId("gone")))
    assert raised.value.reason is Reason.BRANCH_NOT_FOUND
    assert "branch gone does not exist in repository lake" in raised.value.message


async def test_ending_a_branch_again_tells_the_same_tokens(lake: Lake) -> None:
    first = await lake.graveler.branches.mark_deleted(lake.main)
    again = await lake.graveler.branches.mark_deleted(lake.main)
    assert first.tokens == again.tokens
    assert again.is_deleted
