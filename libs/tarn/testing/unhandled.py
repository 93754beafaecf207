"""Turns errors that asyncio would only log into failures of the test that caused them.

This is for code on the test's own event loop; `tarn.testing.servers.service_log` does the same for a
service in its own process.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["no_unhandled_errors"]


@asynccontextmanager
async def no_unhandled_errors() -> AsyncIterator[None]:
    """Raises, at the end of the block, the unretrieved errors of the running loop's futures, tasks and
    callbacks.

    Raises:
        AssertionError: with asyncio's descriptions; the first error is its cause.
    """
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    contexts: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    try:
        yield
        # Run due callbacks, and find futures that only the garbage collector sees.
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
