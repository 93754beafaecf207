"""Jobs for the processes of a pool: they take seeds and names, and return plain values."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.sim.lake_guards import GUARDS
from tests.sim.rare_guards import RARE_GUARDS
from tests.sim.run import Run, run_seed
from tests.sim.world import SALT
from tests.support.faults.guards import Guard, switched_off
from tests.support.faults.modes import Mode

__all__ = [
    "Detection",
    "broken_without",
    "detect",
    "detected_at",
    "guard_seeds",
    "keep_guard_seeds",
    "play",
]

Detection = tuple[str, list[int], str]
"""A guard, the seeds that detect its absence, and the invariants that broke."""

_SEEDS = Path(__file__).with_name("guard_seeds.json")
_KEPT = 1


def play(
    seed: int, *, mode: Mode = Mode.DRAWN, salt: str = SALT
) -> tuple[int, list[str], Counter[str]]:
    """Plays a seed; returns the broken promises, the shortfalls, and the statistics."""
    run = run_seed(seed, mode=mode, salt=salt)
    stories = [*map(str, run.violations), *run.shortfalls]
    return seed, stories, run.report.statistics


def detect(name: str, wanted: int = _KEPT) -> Detection:
    """Plays seeds without a guard until `wanted` of them broke a promise that they keep with it."""
    guard = next(each for each in (*GUARDS, *RARE_GUARDS) if each.name == name)
    seeds: list[int] = []
    broken: set[str] = set()
    for seed in _order(guard):
        found = detected_at(guard, seed)
        broken |= found
        if found:
            seeds.append(seed)
        if len(seeds) == wanted:
            break
    return name, seeds, " ".join(sorted(broken))


def _order(guard: Guard) -> Iterator[int]:
    """Yields the recorded seeds, then all others."""
    known = guard_seeds().get(guard.name, [])
    yield from known
    yield from (seed for seed in range(guard.runs) if seed not in known)


def detected_at(guard: Guard, seed: int) -> set[str]:
    """Returns the guard's invariants that a seed breaks without it; none if it breaks any with it, too."""
    broken = broken_without(guard, seed)
    return broken if broken and not _run(guard, seed).violations else set()


def broken_without(guard: Guard, seed: int) -> set[str]:
    """Returns the guard's invariants that a seed breaks without it.

    Other invariants do not count: a weakening that no longer fits the code may break them.
    """
    with switched_off(guard):
        broken = _run(guard, seed).violations
    return {each.invariant for each in broken} & set(guard.protects.split())


def _run(guard: Guard, seed: int) -> Run:
    return run_seed(seed, mode=guard.mode)


def guard_seeds() -> dict[str, list[int]]:
    """Returns the recorded seeds that detect each missing guard (`make mutate-guards` writes them)."""
    known: dict[str, list[int]] = json.loads(_SEEDS.read_text())
    return known


def keep_guard_seeds(found: Mapping[str, Sequence[int]]) -> None:
    """Records the seeds for CI; guards that are not in `found` keep their recorded seeds."""
    names = [guard.name for guard in GUARDS]
    known = {**guard_seeds(), **found}
    lines = [f"  {json.dumps(name)}: {json.dumps([*known.get(name, [])])}" for name in names]
    # Other processes read the file meanwhile, so it is replaced as a whole.
    new = _SEEDS.with_suffix(".new")
    new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    new.replace(_SEEDS)
