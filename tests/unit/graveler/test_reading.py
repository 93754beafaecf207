"""Reads with an outdated record, and errors that only such a record causes."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest
from lake import Lake

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.listing.pages import PageRequest
from tarn.kv.port import Partition, Row, Versioned


def refuse_reads_of(patch: pytest.MonkeyPatch, lake: Lake, lost: Partition) -> None:
    """Makes the store fail for one partition."""
    get_many, scan = lake.kv.get_many, lake.kv.scan

    def check(partition: Partition) -> None:
        if partition.name == lost.name:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "cannot be read")

    async def refused_get(
        partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        check(partition)
        return await get_many(partition, keys, settle=settle)

    async def refused_scan(
        partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        check(partition)
        return await scan(partition, start, end, limit)

    patch.setattr(lake.kv, "get_many", refused_get)
    patch.setattr(lake.kv, "scan", refused_scan)


async def listed(lake: Lake) -> list[str]:
    request = PageRequest(limit=100)
    return (await lake.graveler.reading.page(lake.repository, "main", request)).paths


async def test_an_error_that_only_a_stale_record_meets_is_not_told(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.put("x", 1)
    assert await other.get("x") == 1, "the record is cached"
    given_up = await lake.staging_rows()
    await lake.commit()
    refuse_reads_of(monkeypatch, lake, given_up)
    assert other.graveler.branches.cached(lake.main) is not None
    assert await other.get("x") == 1
    other.graveler.branches._known.clear()
    assert await listed(other) == ["x"]


async def test_a_listing_by_a_stale_record_is_made_again(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.put("x", 1)
    assert await listed(other) == ["x"]
    given_up = await lake.staging_rows()
    await lake.commit()
    refuse_reads_of(monkeypatch, lake, given_up)
    assert await listed(other) == ["x"]


async def test_an_error_of_the_record_as_it_is_is_reported(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.put("x", 1)
    assert await lake.get("x") == 1
    refuse_reads_of(monkeypatch, lake, await lake.staging_rows())
    with pytest.raises(TarnError) as raised:
        await lake.get("x")
    assert raised.value.kind is Kind.UNAVAILABLE


async def test_a_deleted_repository_is_known_to_be_gone_five_seconds_later(
    lake: Lake, other: Lake
) -> None:
    old = await other.graveler.repositories.get("lake")
    await lake.graveler.repositories.mark_deleted(old)
    lake.clock.advance(5)
    with pytest.raises(TarnError) as raised:
        await other.graveler.repositories.get("lake")
    assert raised.value.reason is Reason.REPOSITORY_NOT_FOUND
    assert raised.value.metadata == {"repository": "lake"}


async def test_a_read_that_is_cancelled_leaves_no_error_of_the_read_beside_it(
    lake: Lake,
) -> None:
    await lake.put("x", 1)
    assert await lake.get("x") == 1  # the record is cached
    told: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    beside = lake.kv.hold("get_many", lake.branch_key)
    row = lake.kv.hold("get_many", lake.row_key("x"))
    reader = loop.create_task(lake.get("x"))
    async with asyncio.timeout(5.0):
        await row.reached.wait()
        await beside.reached.wait()
    reader.cancel()
    await asyncio.wait([reader])
    lake.kv.lose("get_many", lake.branch_key, applied=False)
    beside.open()
    del reader
    for _ in range(20):
        await asyncio.sleep(0)
    gc.collect()
    assert told == []
