"""The promises of erasures hold beside writers and collections (docs/design/erase.md); without a guard they do not.

The runs are those of `python -m tests.sim --erase`. Each recorded seed of a guard is played with all guards, too.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.sim.erase_guards import ERASE_GUARDS
from tests.sim.jobs import broken_without, guard_seeds
from tests.sim.run import run_seed
from tests.support.faults.guards import Guard
from tests.support.faults.modes import Mode

pytestmark = pytest.mark.timeout(600)

_PLAYED = {0, 7}
# Once took an entry beneath a discarded one for a lost one; once had more discards than the checker can order.
_FOUND = {60262, 60181}
_SEEDS = sorted(_PLAYED.union(_FOUND, *(guard_seeds()[guard.name] for guard in ERASE_GUARDS)))


def test_no_promise_is_broken_beside_erasures() -> None:
    """And the runs do erase objects, also while clients work, entries lose their blocks, and some objects are equal."""
    counts: Counter[str] = Counter()
    for seed in _SEEDS:
        run = run_seed(seed, mode=Mode.ERASE)
        found = [*map(str, run.violations)]
        assert not found, f"make sim SEED={seed} ARGS=--erase\n" + "\n".join(found)
        counts += run.report.statistics
    assert counts["erasure: plans with a certificate"] >= len(_SEEDS), counts
    assert counts["erasure: certificate"] >= 1, counts  # while clients work
    assert counts["erasure: blocks deleted"] > len(_SEEDS), counts
    assert counts["erasure: entries without blocks"] > len(_SEEDS), counts
    assert counts["equal objects"] > len(_SEEDS), counts
    assert counts["erasure: entries discarded"] >= 1, counts


@pytest.mark.parametrize("guard", ERASE_GUARDS, ids=lambda guard: guard.name)
def test_a_missing_guard_of_erasures_is_detected(guard: Guard) -> None:
    seeds = guard_seeds()[guard.name]
    assert any(broken_without(guard, seed) for seed in seeds), (
        f"without {guard.name}, seeds {seeds} break none of {guard.protects}; "
        f"`make mutate-guards ARGS='--guard {guard.name}'` searches again"
    )
