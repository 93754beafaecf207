"""The progress of a check; a display may read it at any time."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CheckProgress"]


@dataclass(slots=True)
class CheckProgress:
    """Counters that only grow within a phase.

    Attributes:
        phase: name of the phase, for people.
        done: processed items of this phase.
        total: number of items of this phase; None while it is unknown.
        requests: requests to the stores since the process began.
    """

    phase: str = "start"
    done: int = 0
    total: int | None = None
    requests: int = 0

    def begin(self, phase: str, total: int | None = None, done: int = 0) -> None:
        """Begins the next phase."""
        self.phase, self.done, self.total = phase, done, total
