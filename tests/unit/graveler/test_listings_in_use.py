"""Which listings a repository needs: those to which a ref or a reflog leads."""

from __future__ import annotations

from lake import Lake, keep_tokens

from tarn.core.commit import Commit
from tarn.core.ids import BranchId, CommitId, MetarangeId, TagId
from tarn_graveler.branch.committing import CommitRequest


async def in_use(lake: Lake, *listings: MetarangeId) -> set[MetarangeId]:
    return await lake.graveler.listings_in_use.among(lake.repository, frozenset(listings))


async def abandoned(lake: Lake, generation: int = 1) -> tuple[CommitId, MetarangeId]:
    """Adds a commit on the first one, to which no ref leads."""
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    listing = MetarangeId(f"{generation:064x}")
    commit = Commit((head,), listing, "ann", "", 0, generation, ())
    return await lake.graveler.commits.add(lake.repository, commit), listing


async def test_a_commit_is_needed_if_a_branch_or_a_descendant_of_it_is(lake: Lake) -> None:
    _, lost = await abandoned(lake)
    await lake.put("a", 1)
    old = (await lake.commit()).commit.metarange_id
    await lake.put("a", 2)
    head = (await lake.commit()).commit.metarange_id
    unknown = MetarangeId("e" * 64)
    assert await in_use(lake, lost, old, head, unknown) == {old, head}
    assert await in_use(lake, lost) == set()
    assert await in_use(lake) == set()


async def test_a_tag_needs_its_commit(lake: Lake) -> None:
    commit_id, listing = await abandoned(lake)
    assert await in_use(lake, listing) == set()
    await lake.graveler.tags.create(lake.repository, TagId("v1"), commit_id)
    assert await in_use(lake, listing) == {listing}


async def test_two_commits_with_one_listing_need_it_if_one_is_in_use(lake: Lake) -> None:
    await lake.put("a", 1)
    used = (await lake.commit()).commit
    twin = Commit((), used.metarange_id, "ann", "", 0, 0, ())
    await lake.graveler.commits.add(lake.repository, twin)
    assert await in_use(lake, used.metarange_id) == {used.metarange_id}


async def test_a_branch_needs_the_compacted_listing_on_which_it_builds_and_no_pin(
    lake: Lake,
) -> None:
    await lake.put("a", 1)
    compacted = (await lake.graveler.compacting.compact(lake.main)).compacted
    assert compacted is not None
    assert await in_use(lake, compacted) == {compacted}
    await lake.graveler.moves.reset(lake.main)
    assert await in_use(lake, compacted) == set()


async def test_a_reflog_needs_the_heads_that_it_names(lake: Lake) -> None:
    """Those of a deleted branch, from which it can be restored."""
    dev = lake.branch(BranchId("dev"))
    start = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    await lake.graveler.branches.create(dev, start)
    await lake.put("a", 1, branch=dev.branch_id)
    made = await lake.graveler.committing.commit(dev, CommitRequest("ann", ""))
    listing = made.commit.metarange_id
    assert await in_use(lake, listing) == {listing}
    await lake.graveler.branches.delete(dev, keep_tokens)
    assert await in_use(lake, listing) == {listing}
    partition = lake.graveler.repositories.keys_of(lake.repository).reflog
    rows = await lake.kv.scan(partition, b"", None, 100)
    await lake.kv.delete_many(partition, [key for key, _ in rows])
    assert await in_use(lake, listing) == set()
