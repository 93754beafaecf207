"""Outcomes of futures that no caller waits for any more."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["ignore_outcome"]


def ignore_outcome(future: asyncio.Future[Any]) -> None:
    """Lets a future end unheard: its error, if it gets one, is not reported by asyncio as never retrieved.

    For work that cannot be taken back and whose result is of no use, because its caller has left. The future
    may still be awaited by others.
    """
    future.add_done_callback(_retrieve)


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
