"""Listings of a block store that are longer than one page."""

from __future__ import annotations

import pytest
from tests.support.clock import ManualClock

from tarn.block.mem import MemBlockStore
from tarn.block.paging import blocks_below, pages_below
from tarn.block.port import BlockInfo, BlockKey

NAMESPACE = "mem://lake"


class Listed(MemBlockStore):
    """Counts its listings."""

    listings = 0

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        self.listings += 1
        return await super().list_page(namespace, prefix, after, limit)


async def listed(count: int) -> Listed:
    blocks = Listed(ManualClock())
    for number in range(count):
        await blocks.put(BlockKey(NAMESPACE, f"data/{number:03}"), b"")
    await blocks.put(BlockKey(NAMESPACE, "other/a"), b"")
    return blocks


@pytest.mark.parametrize(("count", "listings"), [(0, 1), (1, 1), (3, 2), (4, 2), (6, 3), (7, 3)])
async def test_all_blocks_below_a_prefix_are_yielded_once_and_in_order(
    count: int, listings: int
) -> None:
    """A page that is not full is the last."""
    blocks = await listed(count)
    paths = [info.path async for info in blocks_below(blocks, NAMESPACE, "data/", 3)]
    assert paths == [f"data/{number:03}" for number in range(count)]
    assert blocks.listings == listings


async def test_pages_that_are_deleted_leave_nothing_out() -> None:
    blocks = await listed(8)
    sizes = []
    async for page in pages_below(blocks, NAMESPACE, "data/", 3):
        sizes.append(len(page))
        await blocks.delete_many(NAMESPACE, [info.path for info in page])
    assert sizes == [3, 3, 2]
    assert [info.path async for info in blocks_below(blocks, NAMESPACE, "")] == ["other/a"]
