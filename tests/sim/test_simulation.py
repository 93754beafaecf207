"""Real graveler replicas under injected faults keep the promises; without a guard they do not.

Plays some of the 200 seeds of `make sim`, and without each guard the seeds that detect its absence (recorded
by `make mutate-guards`), which are played with all guards, too.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from unittest import mock

import pytest
from tests.sim.jobs import broken_without, guard_seeds
from tests.sim.lake_guards import GUARDS
from tests.sim.least import KINDS, acknowledged, least_acknowledged, shortfalls
from tests.sim.plan import draw
from tests.sim.run import run_seed
from tests.support.faults.guards import Guard
from tests.support.faults.modes import Mode

from tarn.core.errors import Kind, Reason, TarnError
from tarn_graveler.branch.committing import Committing
from tarn_graveler.branch.conditional import ConditionalStaging
from tarn_graveler.branch.head_moves import HeadMoves
from tarn_graveler.branch.reading import Reading
from tarn_graveler.branch.staging import Staging
from tarn_graveler.uploads.state import Uploads
from tarn_graveler.versioning.merges import Merges

# pytest-timeout raises inside a simulated task, which then looks like a defect. Ten seeds take 10 s here.
pytestmark = pytest.mark.timeout(600)

_DRAWN = [guard for guard in GUARDS if guard.mode is Mode.DRAWN]
_SEEDS = sorted({*range(12), *(seed for guard in _DRAWN for seed in guard_seeds()[guard.name])})
_MORE_SEEDS = [seed for seed in range(40) if seed not in _SEEDS]
_SEEDS_OF_MAKE = 200
_AT_A_TIME = 9


@pytest.mark.parametrize(
    "seeds",
    [
        *(_SEEDS[at : at + _AT_A_TIME] for at in range(0, len(_SEEDS), _AT_A_TIME)),
        pytest.param(_MORE_SEEDS, marks=pytest.mark.long),
    ],
    ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}",
)
def test_no_promise_is_broken(seeds: Sequence[int]) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        run = run_seed(seed)
        found = [*map(str, run.violations), *run.shortfalls]
        assert not found, f"make sim SEED={seed}\n" + "\n".join(found)
        counts += acknowledged(run.history)
    assert shortfalls(counts, map(draw, seeds)) == []


_HEAD_MOVES = (20, 52, 116)


@pytest.mark.parametrize(
    ("owner", "name", "kind", "seeds"),
    [
        (Staging, "stage", "put", (3,)),
        (Staging, "unstage", "delete", (9,)),
        (Reading, "lookup", "get", (3,)),
        (Reading, "page", "list", (2,)),
        (ConditionalStaging, "stage", "conditional put", (5, 9, 21)),
        (Committing, "commit", "commit", (9,)),
        (Uploads, "finish_complete", "upload", (3, 9, 11)),
        (Merges, "merge", "merge", (4,)),
        (HeadMoves, "reset", "reset", _HEAD_MOVES),
        (HeadMoves, "move_to", "move", _HEAD_MOVES),
    ],
)
def test_a_kind_that_is_always_refused_is_reported(
    owner: object, name: str, kind: str, seeds: tuple[int, ...]
) -> None:
    """The seeds together require some operations of the kind."""

    async def refuse(*_: object, **__: object) -> None:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "refused by a test")

    assert least_acknowledged(map(draw, seeds))[kind] > 0
    counts: Counter[str] = Counter()
    with mock.patch.object(owner, name, refuse):
        for seed in seeds:
            counts += acknowledged(run_seed(seed).history)
    told = shortfalls(counts, map(draw, seeds))
    assert any(f"operations {kind!r}" in text for text in told)


def test_one_run_whose_writes_are_refused_falls_short() -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "refused by a test")

    with mock.patch.object(Staging, "stage", refuse):
        for seed in (1, 16):
            run = run_seed(seed)
            assert not run.violations
            assert "operations 'put'" in run.shortfalls[0]


def test_the_seeds_together_require_a_number_of_each_kind() -> None:
    least = least_acknowledged(map(draw, range(_SEEDS_OF_MAKE)))
    assert [kind for kind in KINDS if not least[kind]] == []


@pytest.mark.parametrize("seed", [2, 14])  # short ones, on either store
def test_a_seed_gives_the_same_run_in_any_process(seed: int) -> None:
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


def test_another_salt_is_another_run_of_the_same_plan() -> None:
    recorded, other = run_seed(18), run_seed(18, salt="faults")
    assert other.plan == recorded.plan
    assert other.history.log != recorded.history.log
    assert other.violations == []
    told = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--seed", "18", "--salt", "faults"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert told.stdout.splitlines()[: len(other.history.log)] == other.history.log


def test_every_guard_has_a_recorded_seed() -> None:
    assert [guard.name for guard in GUARDS if not guard_seeds().get(guard.name)] == []


@pytest.mark.parametrize("guard", _DRAWN, ids=lambda guard: guard.name)
def test_a_disabled_guard_is_detected(guard: Guard) -> None:
    """A recorded seed breaks a promise without the guard. It keeps all promises with it:
    `test_no_promise_is_broken` plays it."""
    seeds = guard_seeds()[guard.name]
    assert any(broken_without(guard, seed) for seed in seeds), (
        f"without {guard.name}, seeds {seeds} break none of {guard.protects}. If a plan or the "
        f"simulator has changed, seeds give other runs: `make mutate-guards ARGS='--guard {guard.name}'` searches "
        "again and writes tests/sim/guard_seeds.json. If it finds none, no seed detects that this guard is missing."
    )
