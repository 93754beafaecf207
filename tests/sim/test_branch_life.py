"""An upload may be refused as not found after its branch was removed, and not before."""

from __future__ import annotations

import pytest
from tests.sim.branch_life import BranchLife
from tests.support.check.history import History, OpKind, Outcome


def remove(history: History, branch: str, outcome: Outcome | None) -> None:
    op = history.begin("c", OpKind.REMOVE, branch)
    if outcome is not None:
        history.finish(op, outcome)


@pytest.mark.parametrize("earlier", [[], [Outcome.OK], [Outcome.FAIL]])
def test_removals_that_were_over_end_no_later_life(earlier: list[Outcome]) -> None:
    history = History()
    for outcome in earlier:
        remove(history, "lake/dev", outcome)
    life = BranchLife.of(history, "lake/dev")
    assert not life.may_be_over(history)
    remove(history, "lake/other", Outcome.OK)
    remove(history, "lake/dev", Outcome.FAIL)
    assert not life.may_be_over(history)
    remove(history, "lake/dev", Outcome.OK)
    assert life.may_be_over(history)


@pytest.mark.parametrize("outcome", [None, Outcome.INFO])
def test_a_removal_that_may_still_take_effect_may_end_a_life(outcome: Outcome | None) -> None:
    history = History()
    remove(history, "lake/dev", outcome)
    assert BranchLife.of(history, "lake/dev").may_be_over(history)
