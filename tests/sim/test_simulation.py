"""Real graveler replicas in bad weather keep the promises; without a guard they do not.

The same 200 seeds as `make sim`; `make mutate` switches every guard off, here the strongest are.
"""

import os
import subprocess
import sys

import pytest
from tests.sim.lake_guards import GUARDS, STRONGEST
from tests.sim.run import run_seed

from tarn.testing.guards import switched_off

_SEEDS = 200
_AT_A_TIME = 10


@pytest.mark.parametrize("first", range(0, _SEEDS, _AT_A_TIME))
def test_no_promise_is_broken(first: int) -> None:
    for seed in range(first, first + _AT_A_TIME):
        violations = run_seed(seed).violations
        assert not violations, f"make sim SEED={seed}\n" + "\n".join(map(str, violations))


@pytest.mark.parametrize("seed", [0, 1])
def test_a_seed_is_one_run_in_any_process(seed: int) -> None:
    here = run_seed(seed, is_traced=True).history.log
    code = (
        "from tests.sim.run import run_seed\n"
        f"print(*run_seed({seed}, is_traced=True).history.log, sep='\\n')"
    )
    there = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert there.stdout.splitlines() == "\n".join(here).splitlines()


@pytest.mark.parametrize("name", STRONGEST)
def test_a_guard_is_missed(name: str) -> None:
    guard = next(guard for guard in GUARDS if guard.name == name)
    with switched_off(guard):
        broken = next((seed for seed in range(guard.runs) if run_seed(seed).violations), None)
    assert broken is not None
    assert not run_seed(broken).violations, "the guard is on again"
