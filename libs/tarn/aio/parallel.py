"""The same work on many items, with bounded concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from tarn.aio.first_error import collapse_error_groups

__all__ = ["for_each"]

T = TypeVar("T")


async def for_each(
    items: Iterable[T], work: Callable[[T], Awaitable[None]], concurrency: int
) -> None:
    """Calls `work` for every item, at most `concurrency` at a time, in the order of the items.

    - Items are taken when they are needed, so they may come from a paged query.
    - The first failure cancels the running calls, and is raised when they have ended; no further item is taken.
      It is raised as such, not in a group.
    - A caller that is cancelled cancels the calls and waits for their end.

    Raises:
        Exception: the first error of `work` or of the iterator.
    """
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    with collapse_error_groups():
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
