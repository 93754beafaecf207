"""The branch protocol: every promise holds in every interleaving, and each guard is needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.models.branch_model import GUARDS, HOLDS, MISSED_BY, Scenario, check, reach
from tests.models.branch_state import StoreState


@pytest.mark.parametrize("scenario", HOLDS, ids="+".join)
def test_with_all_guards_every_promise_holds(scenario: Scenario) -> None:
    found = check(scenario)
    assert found.broken is None, found.steps
    assert found.is_complete


def head(lake: StoreState) -> int:
    return lake.commits[lake.record.commit][0]


# A model without steps keeps every promise, so each process must be able to finish its work.
REACHED: dict[str, tuple[Scenario, Callable[[StoreState], bool]]] = {
    "a put is committed and its token dropped": (
        ("put", "commit"),
        lambda lake: lake.acked == {1} and head(lake) == 1 and not any(lake.tokens),
    ),
    "a put is sealed under way and written again": (
        ("put", "commit"),
        lambda lake: lake.acked == {1} and lake.tokens[:2] == (1, 1),
    ),
    "two commits are made": (("put", "commit", "commit"), lambda lake: {2, 3} <= lake.published),
    "a commit is told that another one took everything": (
        ("put", "commit", "commit"),
        lambda lake: 3 in lake.refused and head(lake) == 1,
    ),
    "a delete hides what is committed": (
        ("put", "delete", "commit"),
        lambda lake: head(lake) == 1 and lake.visible() == 2 and 2 in lake.acked,
    ),
    "one of two creates wins and the other one is refused": (
        ("create", "create"),
        lambda lake: lake.acked == {1} and lake.refused == {2},
    ),
    "one of two conditional deletes wins and the other one is refused": (
        ("put", "then delete if", "delete if"),
        lambda lake: lake.acked == {1, 2} and lake.refused == {3},
    ),
    "a commit takes a conditional delete of what was committed": (
        ("put", "then commit", "then delete if", "then commit"),
        lambda lake: 3 in lake.acked and head(lake) == 3 and not any(lake.tokens),
    ),
    "a commit builds on a compacted metarange": (
        ("put", "compact", "commit"),
        lambda lake: lake.published >= {3} and head(lake) == 1 and lake.record.base is None,
    ),
    "a compaction folds a put beneath a newer seal": (
        ("put", "compact", "commit"),
        lambda lake: lake.record.base == 1 and len(lake.record.sealed) == 1,
    ),
    "a compaction that finds all changes undone leaves no compacted metarange": (
        ("put", "then compact", "then delete", "then compact"),
        lambda lake: lake.acked == {1, 3} and lake.visible() == 0,
    ),
    "a put is reset": (
        ("put", "reset"),
        lambda lake: lake.acked == {1} and lake.excused == {1} and lake.visible() == 0,
    ),
    "a merge brings the key": (("put", "merge"), lambda lake: 2 in lake.acked and head(lake) == 2),
    "an answer is lost and the change comes late": (
        ("put", "commit", "lost"),
        lambda lake: bool(lake.late) and lake.acked == {1} and len(lake.commits) > 1,
    ),
}


@pytest.mark.parametrize("what", REACHED)
def test_every_process_can_finish_its_work(what: str) -> None:
    scenario, goal = REACHED[what]
    assert reach(scenario, goal).broken == "reached"


def test_every_guard_has_a_scenario() -> None:
    assert set(MISSED_BY) == set(GUARDS)


@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_a_promise_is_broken(guard: str) -> None:
    scenario, promise = MISSED_BY[guard]
    found = check(scenario, guard)
    assert found.broken is not None
    assert found.broken.startswith(promise), found.broken
    assert found.steps


def test_the_overlap_rule_loses_a_write_that_a_compaction_took() -> None:
    """One commit is enough: tokens that left the record may be in a compacted metarange."""
    found = check(("put", "commit", "compact"), "no overlap rule")
    assert found.broken is not None


def test_a_merge_that_seals_only_before_its_last_step_lets_two_writers_win() -> None:
    """A conditional write may verify the record after the seal, while its row lands after the merge."""
    found = check(("create", "merge early"))
    assert found.broken is not None
    assert found.broken.startswith("two winners")
