"""Errors that asyncio would only log, as failures of the test that caused them.

A service under test in its own process is looked at by `tarn.testing.servers.service_log`; this is the same for
code that runs on the test's own loop.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["no_unhandled_errors"]


@asynccontextmanager
async def no_unhandled_errors() -> AsyncIterator[None]:
    """Raises at the end of the block what nobody retrieved of the running loop's futures and tasks, and
    what failed in its callbacks: `AssertionError` with asyncio's descriptions, the first error its cause.
    """
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    contexts: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    try:
        yield
        # Callbacks that are due, and futures that only the collector finds.
        await asyncio.sleep(0)
        gc.collect()
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(before)
    if contexts:
        errors = [
            error for each in contexts if isinstance(error := each.get("exception"), Exception)
        ]
        told = "\n".join(f"{each.get('message')}: {each}" for each in contexts)
        text = f"{len(contexts)} errors that asyncio would only log:\n{told}"
        raise AssertionError(text) from (errors[0] if errors else None)
