"""Erasures of a run: how many processes plan and run them, and how often these die (docs/design/erase.md)."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["Erasing", "draw_erasing"]


@dataclass(frozen=True)
class Erasing:
    """The parameters of the erasures of a run.

    Attributes:
        erasers: number of processes, each of which makes plans and runs those of all.
        pause_seconds: mean pause of a process between two of them.
        crash_seconds: mean time between crashes of a process; 0: none.
        plan_share: share of the turns in which a process makes a plan; in the others it runs one.
    """

    erasers: int
    pause_seconds: float
    crash_seconds: float
    plan_share: float


def draw_erasing(seed: int) -> Erasing:
    """Draws the erasures of a seed, apart from everything else of its plan."""
    rng = random.Random(f"erasing {seed}")
    return Erasing(
        erasers=rng.choice([1, 2]),
        pause_seconds=rng.choice([0.3, 0.8]),
        crash_seconds=rng.choice([0.0, 2.0, 6.0]),
        plan_share=rng.choice([0.3, 0.6]),
    )
