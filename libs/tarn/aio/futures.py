"""Futures whose outcome is no longer needed."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["ignore_outcome"]


def ignore_outcome(future: asyncio.Future[Any]) -> None:
    """Ignores the outcome of a future: asyncio does not report its error as never retrieved.

    Use it for work that cannot be cancelled and whose result is not needed, because its caller has left. Other
    callers may still await the future.
    """
    future.add_done_callback(_retrieve)


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
