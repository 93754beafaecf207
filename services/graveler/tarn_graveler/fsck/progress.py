"""How far a check has come; whoever shows it looks whenever it likes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Progress"]


@dataclass(slots=True)
class Progress:
    """Counts that only grow within a phase.

    Attributes:
        phase: what is being done, for people.
        done: things of this phase.
        total: of them, None while nobody knows.
        requests: to the stores, since the process began.
    """

    phase: str = "start"
    done: int = 0
    total: int | None = None
    requests: int = 0

    def begin(self, phase: str, total: int | None = None, done: int = 0) -> None:
        """The next phase."""
        self.phase, self.done, self.total = phase, done, total
