"""How long to wait before trying again: longer each time, never in step with others."""

from __future__ import annotations

import random

__all__ = ["backoff_seconds"]


def backoff_seconds(
    rng: random.Random, attempt: int, *, first_s: float = 0.05, most_s: float = 2.0
) -> float:
    """The pause after attempt 0, 1, 2, …: doubled each time up to `most_s`, half of it by chance."""
    pause: float = min(most_s, first_s * 2 ** min(attempt, 30))
    return pause * rng.uniform(0.5, 1.0)
