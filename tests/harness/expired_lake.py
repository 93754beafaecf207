"""Commits of a lake that expire, and the roots that are left."""

from __future__ import annotations

from lake import Lake

from tarn.core.expiry import Expiry
from tarn.core.ids import CommitId

__all__ = ["RULE", "commit", "expire", "listing_of", "roots"]

RULE = "branches main: keep_days 7"


async def commit(lake: Lake, path: str, size: int) -> CommitId:
    await lake.put(path, size)
    return (await lake.commit(f"{path}={size}")).commit_id


async def expire(lake: Lake, *commit_ids: CommitId) -> int:
    expiry = Expiry(RULE, lake.clock.now_us())
    return await lake.graveler.expired.expire(
        lake.repository, [(each, expiry) for each in commit_ids]
    )


async def roots(lake: Lake) -> tuple[set[str], set[str]]:
    """The listings that are roots with all that they refer to, and those that are in use without their objects."""
    whole: set[str] = set()
    emptied: set[str] = set()
    cursor = ""
    while True:
        page = await lake.graveler.roots.page(lake.repository, cursor, 3)
        whole |= page.metarange_ids.keys() - page.emptied_ids.keys()
        emptied |= page.emptied_ids.keys()
        cursor = page.cursor
        if not cursor:
            return whole, emptied - whole


async def listing_of(lake: Lake, commit_id: CommitId) -> str:
    return (await lake.graveler.commits.get(lake.repository, commit_id)).metarange_id
