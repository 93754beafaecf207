"""Bucket views keep their promise beside faults (docs/design/bucket-views.md); without a guard they do not.

The runs are those of `python -m tests.sim --views`. Each recorded seed of a guard is played with all guards, too.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.sim.jobs import broken_without, guard_seeds
from tests.sim.run import run_seed
from tests.sim.view_guards import VIEW_GUARDS
from tests.sim.views import Change, Views
from tests.support.check.history import History, OpKind, Outcome
from tests.support.faults.guards import Guard
from tests.support.faults.modes import Mode

from tarn.core.errors import Reason

pytestmark = pytest.mark.timeout(600)

_SEEDS = sorted({0, 7}.union(*(guard_seeds()[guard.name] for guard in VIEW_GUARDS)))


def test_no_promise_is_broken_through_views() -> None:
    """And users do meet views that were changed."""
    counts: Counter[str] = Counter()
    for seed in _SEEDS:
        run = run_seed(seed, mode=Mode.VIEWS)
        found = [*map(str, run.violations)]
        assert not found, f"make sim SEED={seed} ARGS=--views\n" + "\n".join(found)
        counts += run.report.statistics
    for what, least in (("changes", 5), ("ok", 50), ("moved", 5)):
        assert counts[f"views: {what}"] >= least * len(_SEEDS), counts


@pytest.mark.parametrize("guard", VIEW_GUARDS, ids=lambda guard: guard.name)
def test_a_missing_guard_of_views_is_detected(guard: Guard) -> None:
    seeds = guard_seeds()[guard.name]
    assert any(broken_without(guard, seed) for seed in seeds), (
        f"without {guard.name}, seeds {seeds} break none of {guard.protects}; "
        f"`make mutate-guards ARGS='--guard {guard.name}'` searches again"
    )


@pytest.mark.parametrize(
    ("version", "inv", "is_wrong"), [("a:1", 15, False), ("a:1", 25, True), ("a:2", 25, False)]
)
def test_a_version_may_be_used_until_its_replacement_is_answered(
    version: str, inv: float, is_wrong: bool
) -> None:
    history = History()
    views = Views([Change(1, 2, "a:1"), Change(10, 20, "a:2")])
    op = history.begin("v0", OpKind.GET, "lake/main", "k", inv=inv)
    history.finish(op, Outcome.OK)
    views.uses.append((op, version))
    assert bool(views.judge()) is is_wrong


def test_a_refusal_is_right_only_after_a_change_has_begun() -> None:
    history = History()
    early = history.begin("v0", OpKind.PUT, "lake/main", "k", 1)
    history.finish(early, Outcome.FAIL)
    views = Views([Change(0.1, 0.2, "a:1"), Change(history.tick(), version="a:2")])
    late = history.begin("v0", OpKind.PUT, "lake/main", "k", 2)
    history.finish(late, Outcome.FAIL)
    for op in (early, late):
        op.reason = Reason.BUCKET_MOVED
        views.uses.append((op, "a:1"))
    assert views.judge() == []
    assert (sorted(early.grounds), sorted(late.grounds)) == ([], [Reason.BUCKET_MOVED])
