"""What a process of a pool is given: seeds and names in, plain values out."""

from collections import Counter

from tests.sim.lake_guards import GUARDS
from tests.sim.run import run_seed

from tarn.testing.guards import switched_off

__all__ = ["miss", "play"]


def play(seed: int) -> tuple[int, list[str], Counter[str]]:
    """Plays a seed: the promises that it broke, what it fell short of, and its statistics."""
    run = run_seed(seed)
    stories = [*map(str, run.violations), *run.shortfalls]
    return seed, stories, run.report.statistics


def miss(name: str) -> tuple[str, int | None, str]:
    """Plays seeds in order without a guard until one breaks a promise: which one, and what."""
    guard = next(guard for guard in GUARDS if guard.name == name)
    with switched_off(guard):
        for seed in range(guard.runs):
            broken = {violation.invariant for violation in run_seed(seed).violations}
            if broken:
                return name, seed, " ".join(sorted(broken))
    return name, None, ""
