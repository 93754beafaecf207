"""Conditional deletes keep their promise beside faults; without a guard they do not (docs/design/protocol.md, rule 3).

The runs are those of `python -m tests.sim --deletes`. Each recorded seed of a guard is played with all guards, too.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.sim.delete_guards import DELETE_GUARDS
from tests.sim.jobs import broken_without, guard_seeds
from tests.sim.run import run_seed
from tests.support.faults.guards import Guard
from tests.support.faults.modes import Mode

pytestmark = pytest.mark.timeout(600)

_SEEDS = sorted({0, 7}.union(*(guard_seeds()[guard.name] for guard in DELETE_GUARDS)))


def test_no_promise_is_broken_beside_conditional_deletes() -> None:
    """And they do meet each other, creators, and versions that are gone."""
    counts: Counter[str] = Counter()
    for seed in _SEEDS:
        run = run_seed(seed, mode=Mode.DELETES)
        found = [*map(str, run.violations)]
        assert not found, f"make sim SEED={seed} ARGS=--deletes\n" + "\n".join(found)
        counts += run.report.statistics
    for what, least in (("delete ok", 5), ("delete fail", 2), ("put ok", 5)):
        assert counts[f"{what} of these conditional"] >= least * len(_SEEDS), counts


@pytest.mark.parametrize("guard", DELETE_GUARDS, ids=lambda guard: guard.name)
def test_a_missing_guard_of_conditional_deletes_is_detected(guard: Guard) -> None:
    seeds = guard_seeds()[guard.name]
    assert any(broken_without(guard, seed) for seed in seeds), (
        f"without {guard.name}, seeds {seeds} break none of {guard.protects}; "
        f"`make mutate-guards ARGS='--guard {guard.name}'` searches again"
    )
