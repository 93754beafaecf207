"""The promises hold beside online deletion; without a guard of docs/design/online-deletion.md they do not.

The runs are those of `python -m tests.sim --online`. Each recorded seed of a guard is played with all guards, too.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.sim.jobs import broken_without, guard_seeds
from tests.sim.online_guards import ONLINE_GUARDS
from tests.sim.run import run_seed
from tests.support.faults.guards import Guard
from tests.support.faults.modes import Mode

pytestmark = pytest.mark.timeout(600)

_PLAYED = 4
_FOUND = {51032, 60326}
"""Seeds that found a mistake: one of the checker, and the alarm of a sweep whose lease had ended."""
_OF_GUARDS = {seed for guard in ONLINE_GUARDS for seed in guard_seeds()[guard.name]}
_SEEDS = sorted({*range(_PLAYED)} | _FOUND | _OF_GUARDS)


def test_no_promise_is_broken_beside_online_deletion() -> None:
    """And the runs do delete blocks, and keep copied ones."""
    outcomes: Counter[str] = Counter()
    for seed in _SEEDS:
        run = run_seed(seed, mode=Mode.ONLINE)
        found = [*map(str, run.violations)]
        assert not found, f"make sim SEED={seed} ARGS=--online\n" + "\n".join(found)
        outcomes += run.report.statistics
    assert outcomes["online: deleted"] > len(_SEEDS), outcomes
    assert outcomes["online: copied"], outcomes


@pytest.mark.parametrize("guard", ONLINE_GUARDS, ids=lambda guard: guard.name)
def test_a_missing_guard_of_online_deletion_is_detected(guard: Guard) -> None:
    seeds = guard_seeds()[guard.name]
    assert any(broken_without(guard, seed) for seed in seeds), (
        f"without {guard.name}, seeds {seeds} break none of {guard.protects}; "
        f"`make mutate-guards ARGS='--guard {guard.name}'` searches again"
    )


def test_a_run_with_online_deletion_is_the_same_each_time() -> None:
    first = run_seed(2, is_traced=True, mode=Mode.ONLINE).history.log
    assert run_seed(2, is_traced=True, mode=Mode.ONLINE).history.log == first
