"""The pages from which an expiry is planned: a ref that comes while they are read protects its commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from expired_lake import RULE, commit
from lake import Lake

from tarn.core.head_change import UNATTRIBUTED
from tarn.core.ids import BranchId, CommitId, TagId
from tarn.kv.keys import RepositoryKeys
from tarn.kv.records import encode_branch
from tarn_graveler.branch.head_moves import NewHead

Act = Callable[[Lake, CommitId], Awaitable[object]]


async def make_branch(lake: Lake, commit_id: CommitId) -> None:
    await lake.graveler.branches.create(lake.branch(BranchId("new")), commit_id, UNATTRIBUTED)


async def make_tag(lake: Lake, commit_id: CommitId) -> None:
    await lake.graveler.tags.create(lake.repository, TagId("new"), commit_id)


async def move_branch(lake: Lake, commit_id: CommitId) -> None:
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    new = NewHead(commit_id, await lake.graveler.commits.get(lake.repository, commit_id))
    await lake.graveler.moves.move_to(lake.main, new, head, force=True)


@pytest.mark.parametrize("limit", [1, 1000])
@pytest.mark.parametrize("act", [make_branch, make_tag, move_branch])
async def test_a_ref_that_comes_after_the_commits_protects_its_commit(
    lake: Lake, act: Act, limit: int
) -> None:
    first = await commit(lake, "a", 1)
    await commit(lake, "b", 2)
    await commit(lake, "c", 3)
    await lake.kv.drop_partition(lake.graveler.repositories.keys_of(lake.repository).reflog)
    before, after = set[str](), set[str]()
    cursor, seen = "", 0
    while True:
        page, cursor = await lake.graveler.history_pages.page(lake.repository, cursor, limit)
        seen += len(page.commits)
        (after if seen == _COMMITS else before).update(page.protected_commit_ids)
        if page.commits and seen == _COMMITS:
            await act(lake, first)
        if not cursor:
            break
    assert first not in before, "nothing but the new ref protects it"
    assert first in after


_COMMITS = 4
"""Those of the test, and the first one of the repository."""


async def test_a_branch_that_is_being_created_protects_its_commit(lake: Lake) -> None:
    """By itself: not only by the entry of the reflog that its record has at first."""
    first = await commit(lake, "a", 1)
    await commit(lake, "b", 2)
    await commit(lake, "c", 3)
    refs = lake.graveler.repositories.keys_of(lake.repository).refs
    main = (await lake.graveler.branches.fresh(lake.main)).branch
    new = encode_branch(replace(main, commit_id=first, outbox=()), is_pending=True)
    history = lake.graveler.history_pages
    page, _ = await history.page(lake.repository, "", 10)
    assert first not in page.protected_commit_ids
    await lake.kv.set_if(refs, RepositoryKeys.branch("new"), new, None)
    page, _ = await history.page(lake.repository, "", 10)
    assert first in page.protected_commit_ids
    assert [head.branch_id for head in page.heads] == ["main"], "it has no history to keep yet"


async def test_the_life_of_a_tag_that_a_page_shows_can_expire(lake: Lake) -> None:
    tag = await lake.graveler.tags.create(lake.repository, TagId("v1"), await commit(lake, "a", 1))
    page, cursor = await lake.graveler.history_pages.page(lake.repository, "", 10)
    while not page.tags:
        page, cursor = await lake.graveler.history_pages.page(lake.repository, cursor, 10)
    (found,) = page.tags
    assert (found.tag_id, found.commit_id) == ("v1", tag.commit_id)
    assert await lake.graveler.tags.expire(lake.repository, TagId("v1"), found.nonce, RULE)
