"""The same work on many items, a few at a time."""

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
    """Does some work on every item, at most `concurrency` at a time, begun in the order of the items.

    - Items are taken when they are needed, so they may come from a query that pages.
    - The first failure cancels what is under way, and is raised when that has ended; no further item is taken.
      It is raised by itself, not in a group.
    - A caller that is cancelled cancels the work and waits for its end.

    Raises:
        Exception: what `work` or the iterator raised first.
    """
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    with collapse_error_groups():
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
