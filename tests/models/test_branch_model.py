"""The branch protocol: every promise holds in every interleaving, and each guard is needed."""

from __future__ import annotations

import pytest
from tests.models.branch_model import GUARDS, HOLDS, MISSED_BY, Scenario, check


@pytest.mark.parametrize("scenario", HOLDS, ids="+".join)
def test_with_all_guards_every_promise_holds(scenario: Scenario) -> None:
    found = check(scenario)
    assert found.broken is None, found.steps
    assert found.is_complete
    assert found.states > 500  # a model that does nothing keeps every promise


def test_every_guard_has_a_scenario() -> None:
    assert set(MISSED_BY) == set(GUARDS)


@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_a_promise_is_broken(guard: str) -> None:
    found = check(MISSED_BY[guard], guard)
    assert found.broken is not None
    assert found.steps


def test_the_overlap_rule_loses_a_write_that_a_compaction_took() -> None:
    """Two commits are not needed: tokens that are gone from the record may be in a compacted metarange."""
    found = check(("put", "commit", "compact"), "no overlap rule")
    assert found.broken is not None


def test_a_merge_that_seals_only_before_its_last_step_lets_two_writers_win() -> None:
    """A conditional write may verify the record after the seal, and its row lands after the merge."""
    found = check(("create", "merge early"))
    assert found.broken is not None
    assert found.broken.startswith("two winners")


def test_without_merges_a_condition_need_not_be_judged_beneath_an_own_row() -> None:
    """What a verified record lacked cannot come beneath a token that it names, except by a merge."""
    found = check(("create", "create", "commit"), "beneath own row")
    assert found.broken is None, found.steps
    assert found.is_complete
