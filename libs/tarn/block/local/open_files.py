"""Bounds the files that a store has open."""

from __future__ import annotations

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["OpenFiles"]


class OpenFiles:
    """Counts the descriptors that transfers hold. Above the limit a transfer fails at once instead of
    waiting: two transfers that each hold one and wait for another would wait for ever."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.count = 0

    def take(self) -> None:
        """Counts one more.

        Raises:
            TarnError: EXHAUSTED at the limit.
        """
        if self.count >= self._limit:
            text = f"{self.count} block files are open, which is the limit; try again later"
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text, files_max=str(self._limit))
        self.count += 1

    def give(self) -> None:
        """Counts one less."""
        self.count -= 1
