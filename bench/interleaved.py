"""Compares the CPU time of variants of one thing on a busy machine: short batches in turns, and ratios within a round.

Another process slows all variants of a round down alike, and CPU time leaves out what it takes itself. Every round has
the baseline twice: how much these two differ is what the method cannot tell.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping

__all__ = ["BASELINE", "CONTROL", "Batch", "difference", "median_difference", "rounds"]

Batch = Callable[[], Awaitable[float]]
"""Runs one batch and returns its CPU seconds."""

BASELINE = "baseline"
CONTROL = "the baseline again"


async def rounds(
    baseline: Batch, variants: Mapping[str, Batch], seconds: float
) -> dict[str, list[float]]:
    """Runs all variants in rounds, each round in another order; returns the CPU seconds of each batch by variant."""
    batches = {BASELINE: baseline, CONTROL: baseline, **variants}
    order, rng = list(batches), random.Random(1)
    for batch in batches.values():
        await batch()
    spent: dict[str, list[float]] = {name: [] for name in batches}
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(spent[BASELINE]) < 2:
        rng.shuffle(order)
        for name in order:
            spent[name].append(await batches[name]())
    return spent


def difference(spent: Mapping[str, list[float]], name: str) -> str:
    """Tells how much more a variant takes than the baseline, in percent of it: median of the rounds, its standard
    error, and quartiles; and the same of the fastest quarter of all batches."""
    ratios = _percents(spent, name)
    low, middle, high = statistics.quantiles(ratios, n=4)
    error = 1.2533 * (high - low) / 1.349 / len(ratios) ** 0.5
    fast, baseline = (statistics.quantiles(spent[each], n=4)[0] for each in (name, BASELINE))
    return (
        f"{middle:+.2f} ± {error:.2f} % (quartiles {low:+.1f} to {high:+.1f} %); "
        f"first quartiles {(fast / baseline - 1) * 100:+.2f} %"
    )


def median_difference(spent: Mapping[str, list[float]], name: str) -> float:
    """Returns the median of the rounds, in percent of the baseline."""
    return statistics.median(_percents(spent, name))


def _percents(spent: Mapping[str, list[float]], name: str) -> list[float]:
    pairs = zip(spent[name], spent[BASELINE], spent[CONTROL], strict=True)
    if name == CONTROL:
        return [(again / first - 1) * 100 for again, first, _ in pairs]
    return [(one * 2 / (first + again) - 1) * 100 for one, first, again in pairs]
