"""Listings of a block store that may be longer than one page.

Pages are separate reads. A block that was there before the first page was requested, and is not deleted, is yielded
exactly once, in byte order of the path. One that is written or deleted meanwhile may be yielded or not. The caller may
delete what it was given.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from tarn.block.port import BlockInfo, ReadBlocks

__all__ = ["blocks_below", "pages_below"]

_PAGE: Final = 1_000
"""What an S3 server lists with one request."""


async def pages_below(
    blocks: ReadBlocks, namespace: str, prefix: str, limit: int = _PAGE
) -> AsyncIterator[list[BlockInfo]]:
    """Yields the blocks whose path starts with `prefix` in pages of up to `limit`, none of them empty.

    The next page is read when the caller asks for it, and only if the last page was full.
    """
    after = ""
    while True:
        page = await blocks.list_page(namespace, prefix, after, limit)
        if page:
            yield page
        if len(page) < limit:
            return
        after = page[-1].path


async def blocks_below(
    blocks: ReadBlocks, namespace: str, prefix: str, limit: int = _PAGE
) -> AsyncIterator[BlockInfo]:
    """Yields the blocks whose path starts with `prefix` one by one; each read fetches up to `limit`."""
    async for page in pages_below(blocks, namespace, prefix, limit):
        for info in page:
            yield info
