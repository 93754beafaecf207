"""The pauses between attempts: exponential back-off with jitter.

The pause doubles up to a bound; a share of it is random ("jitter"), so that callers that failed together do not
return together. The random generator is passed in and drawn from once per pause, so a seed fixes the schedule. The
caller waits, by its own clock, and decides what may be repeated and when to give up.
"""

from __future__ import annotations

import random

__all__ = ["backoff_seconds", "doubled_seconds"]

_DOUBLINGS_MAX = 30
"""More doublings could exceed the range of floats; any bound is reached long before."""


def doubled_seconds(attempt: int, *, first_s: float, most_s: float) -> float:
    """Returns the pause after attempt 0, 1, 2, …: doubled each time up to `most_s`.

    It has no jitter: it is for a single waiter, which cannot collide with others.
    """
    pause: float = min(most_s, first_s * 2 ** min(attempt, _DOUBLINGS_MAX))
    return pause


def backoff_seconds(
    rng: random.Random,
    attempt: int,
    *,
    first_s: float = 0.05,
    most_s: float = 2.0,
    chance: float = 0.5,
) -> float:
    """Returns the pause after attempt 0, 1, 2, …: doubled each time up to `most_s`, with jitter.

    Args:
        rng: random generator; drawn from once.
        attempt: number of earlier failures.
        first_s: the longest pause after attempt 0.
        most_s: the longest pause.
        chance: the random share, 0 to 1: pauses are in `[(1 - chance) * longest, longest]`.
    """
    pause = doubled_seconds(attempt, first_s=first_s, most_s=most_s)
    return pause * rng.uniform(1 - chance, 1.0)
