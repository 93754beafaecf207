"""A repository that is deleted and created again under its name, seen by a replica that has the old one cached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from lake import MAIN, Lake, create_repository
from lake_merges import head, refused
from permits import permit_for

from tarn.core.errors import Reason
from tarn.core.ids import TagId
from tarn.kv.records import Repository
from tarn_graveler.handlers.repositories import RepositoryHandler
from tarn_proto.graveler.v1 import repository_service_pb2 as pb

V1 = TagId("v1")
CACHE_SECONDS = 5.0


async def again(lake: Lake) -> Lake:
    """Deletes the repository and creates it again, with other contents."""
    handler = RepositoryHandler(lake.graveler)
    request = pb.DeleteRepositoryRequest(repository_id="lake")
    await handler.DeleteRepository(request, permit_for(request, lake.repository))
    return await fill(
        replace(lake, repository=await create_repository(lake.graveler, "lake")), size=2
    )


async def fill(lake: Lake, size: int) -> Lake:
    await lake.put("a", size)
    await lake.commit()
    await lake.put("a", 10 * size)
    await lake.commit()
    await lake.graveler.tags.create(lake.repository, V1, await head(lake))
    return lake


async def stale(other: Lake) -> Repository:
    """The record of the repository that the other replica has cached."""
    return await other.graveler.repositories.get("lake")


@pytest.mark.parametrize("ref", ["main", "main@", "main~1", "main@{0}", "main@{1}", "v1", "v1~1"])
async def test_no_ref_of_the_old_life_is_read_as_one_of_the_new(
    lake: Lake, other: Lake, ref: str
) -> None:
    await fill(lake, size=1)
    old = await stale(other)
    assert await replace(other, repository=old).get("a", ref) in (1, 10)
    new = await again(lake)
    assert await stale(other) == old, "still cached"
    seen = replace(other, repository=old)
    reason = await refused(seen.get("a", ref))
    assert reason in (Reason.REPOSITORY_NOT_FOUND, Reason.BRANCH_NOT_FOUND)
    assert await stale(other) == new.repository, "that read found out"
    assert await replace(other, repository=await stale(other)).get("a", ref) in (2, 20)


async def test_lists_and_reflogs_of_the_old_life_are_refused(lake: Lake, other: Lake) -> None:
    await fill(lake, size=1)
    old = await stale(other)
    await again(lake)
    graveler = other.graveler
    works: list[Callable[[], Awaitable[object]]] = [
        lambda: graveler.tags.get(old, V1),
        lambda: graveler.iterators.tags(old).page(10),
        lambda: graveler.iterators.branches(old).page(10),
        lambda: graveler.iterators.commits(old).page(10),
        lambda: graveler.reflog.page(old, MAIN, "", 10),
        lambda: graveler.reflog.deleted(old, "", "", 10),
        lambda: graveler.reflog.deletion(old, MAIN),
    ]
    for work in works:
        assert await refused(work()) is Reason.REPOSITORY_NOT_FOUND


async def test_a_replica_knows_the_new_life_after_its_cache_time(lake: Lake, other: Lake) -> None:
    await fill(lake, size=1)
    old = await stale(other)
    old_head = await head(lake)
    new = await again(lake)
    lake.clock.advance(CACHE_SECONDS - 0.1)
    assert await stale(other) == old
    lake.clock.advance(0.1)
    assert await stale(other) == new.repository
    seen = replace(other, repository=await stale(other))
    assert await seen.get("a", "v1") == 20
    assert await refused(seen.get("a", old_head)) is Reason.COMMIT_NOT_FOUND


async def test_the_reflog_of_the_old_life_is_not_continued(lake: Lake) -> None:
    await fill(lake, size=1)
    new = await again(lake)
    found = (await new.graveler.reflog.page(new.repository, MAIN, "", 10)).entries
    assert [each.sequence for each in found] == [3, 2, 1]


async def test_a_lost_mark_does_not_let_a_deletion_go_on_without_it(lake: Lake) -> None:
    for applied in (True, False):
        keys = lake.graveler.repositories.keys_of(lake.repository)
        lake.kv.lose("set_if", keys.CLOSED, applied=applied)
        await lake.graveler.repositories.close(lake.repository)
        (row,) = await lake.kv.get_many(keys.refs, [keys.CLOSED])
        assert row is not None
        await lake.kv.delete_if(keys.refs, keys.CLOSED, row.predicate)
