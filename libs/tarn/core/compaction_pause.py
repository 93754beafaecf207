"""A pause of all background compactions of an installation."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CompactionPause"]


@dataclass(frozen=True, slots=True)
class CompactionPause:
    """The last change of the pause: it began, or a user ended it.

    Attributes:
        user_id: who began or ended it.
        time_us: when, in microseconds since 1970.
        end_us: when it ends by itself, in microseconds since 1970; 0: it does not.
        is_resumed: a user ended it.
    """

    user_id: str
    time_us: int
    end_us: int = 0
    is_resumed: bool = False

    def holds(self, now_us: int) -> bool:
        """Returns whether compactors are paused at a time."""
        return not self.is_resumed and (not self.end_us or now_us < self.end_us)
