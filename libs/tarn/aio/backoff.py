"""How long to wait before trying again: longer each time, and never in step with others.

Exponential with a bound; a share of each pause is left to chance ("jitter"), so that callers that failed
together do not return together. The random generator is passed in and drawn from once per pause: a seed fixes
the schedule. Waiting is the caller's business, by its clock; what may be repeated and when it is given up, too.
"""

from __future__ import annotations

import random

__all__ = ["backoff_seconds", "doubled_seconds"]

_DOUBLINGS_MAX = 30
"""More would leave the range of floats in the end; any bound is reached long before."""


def doubled_seconds(attempt: int, *, first_s: float, most_s: float) -> float:
    """The pause after attempt 0, 1, 2, …: doubled each time up to `most_s`.

    Without chance: for a lone waiter, which has nobody to be in step with.
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
    """The pause after attempt 0, 1, 2, …: doubled each time up to `most_s`, a share of it by chance.

    Args:
        rng: drawn from once.
        attempt: how many have failed before this one.
        first_s: the longest pause after attempt 0.
        most_s: the longest pause ever.
        chance: the share that is left to chance, 0 to 1: pauses are in `[(1 - chance) * longest, longest]`.
    """
    pause = doubled_seconds(attempt, first_s=first_s, most_s=most_s)
    return pause * rng.uniform(1 - chance, 1.0)
