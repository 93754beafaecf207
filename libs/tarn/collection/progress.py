"""The progress of a collection, for display."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CollectionProgress"]


@dataclass(slots=True)
class CollectionProgress:
    """The present step of a run.

    Attributes:
        step: the present step, in words.
        done: blocks, files or roots done in this step.
        total: how many there are; None if that is unknown.
    """

    step: str = ""
    done: int = 0
    total: int | None = None

    def begin(self, step: str, total: int | None = None) -> None:
        """Starts a step."""
        self.step, self.done, self.total = step, 0, total
