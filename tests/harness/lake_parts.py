"""Resets of prefixes and objects on a lake in memory."""

from __future__ import annotations

from typing import Any

from lake import Lake

from tarn.core.entry import unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.listing.pages import PageRequest
from tarn.core.listing.spans import PathSpan

__all__ = ["failing", "listing", "reset", "reset_path"]


async def reset(lake: Lake, prefix: str) -> None:
    await lake.graveler.part_resets.reset(lake.main, PathSpan.of_prefix(prefix))


async def reset_path(lake: Lake, path: str) -> None:
    await lake.graveler.part_resets.reset(lake.main, PathSpan.of_path(path))


async def listing(lake: Lake, ref: str = "main") -> dict[str, int]:
    request = PageRequest(limit=100)
    page = await lake.graveler.reading.page(lake.repository, ref, request)
    return {
        path: unpack(packed).size for path, packed in zip(page.paths, page.entries, strict=True)
    }


async def failing(*_: object) -> Any:
    raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the bucket is unavailable")
