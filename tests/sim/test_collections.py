"""The promises hold beside garbage collections; without a guard of docs/design/collection.md they do not.

The runs are those of `python -m tests.sim --collect`. Each recorded seed of a guard is played with all guards, too.
"""

from __future__ import annotations

from unittest import mock

import pytest
from tests.sim.collection_guards import COLLECTION_GUARDS
from tests.sim.collectors import CollectorProcess
from tests.sim.jobs import broken_without, guard_seeds
from tests.sim.least import DELETED, SWEPT, collected_too_little
from tests.sim.plan import draw, with_collectors
from tests.sim.run import run_seed
from tests.support.faults.guards import Guard
from tests.support.faults.modes import Mode

pytestmark = pytest.mark.timeout(600)

_PLAYED = 5
_SEEDS = sorted(
    {*range(_PLAYED), *(seed for guard in COLLECTION_GUARDS for seed in guard_seeds()[guard.name])}
)


@pytest.mark.parametrize("seed", _SEEDS)
def test_no_promise_is_broken_beside_collections(seed: int) -> None:
    run = run_seed(seed, mode=Mode.COLLECT)
    found = [*map(str, run.violations), *run.shortfalls]
    assert not found, f"make sim SEED={seed} ARGS=--collect\n" + "\n".join(found)


@pytest.mark.parametrize("guard", COLLECTION_GUARDS, ids=lambda guard: guard.name)
def test_a_missing_guard_of_collections_is_detected(guard: Guard) -> None:
    seeds = guard_seeds()[guard.name]
    assert any(broken_without(guard, seed) for seed in seeds), (
        f"without {guard.name}, seeds {seeds} break none of {guard.protects}; "
        f"`make mutate-guards ARGS='--guard {guard.name}'` searches again"
    )


def test_garbage_that_is_left_is_reported() -> None:
    """A collector that deletes nothing breaks no promise to readers."""
    with mock.patch.object(CollectorProcess, "step", _marks_only):
        run = run_seed(0, mode=Mode.COLLECT)
    assert any("is garbage, and was not deleted" in str(each) for each in run.violations)


async def _marks_only(self: CollectorProcess, repository_id: str) -> str:
    """Says that it has swept."""
    return "sweep"


def test_runs_that_sweep_too_rarely_are_reported() -> None:
    plans = [with_collectors(draw(seed)) for seed in range(4)]
    assert collected_too_little({DELETED: 4, SWEPT: 4}, plans) == []
    assert len(collected_too_little({DELETED: 4, SWEPT: 3}, plans)) == 1
    assert len(collected_too_little({DELETED: 3, SWEPT: 4}, plans)) == 1
    assert collected_too_little({}, plans[:1]) == []
    assert collected_too_little({}, [draw(0), draw(1)]) == []


def test_a_run_with_collections_is_the_same_each_time() -> None:
    first = run_seed(2, is_traced=True, mode=Mode.COLLECT).history.log
    assert run_seed(2, is_traced=True, mode=Mode.COLLECT).history.log == first
