"""The journal: a rebuild from the bucket keeps its promises in every interleaving, and each guard is needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.models.journal_model import (
    HOLDS,
    JOURNAL_GUARDS,
    LONG,
    MISSED_BY,
    Scenario,
    check,
    reach,
)
from tests.models.journal_state import StoreState


@pytest.mark.parametrize("scenario", HOLDS, ids="+".join)
def test_with_all_guards_every_promise_holds(scenario: Scenario) -> None:
    found = check(scenario)
    assert found.broken is None, found.steps
    assert found.is_complete


@pytest.mark.long
@pytest.mark.parametrize("scenario", LONG, ids="+".join)
def test_larger_scenarios_break_no_promise(scenario: Scenario) -> None:
    found = check(scenario, states_max=300_000)
    assert found.broken is None, found.steps


def told(lake: StoreState, value: int) -> bool:
    return any(event.value == value for event in lake.told[-1].rows)


# A model without steps keeps every promise, so each process must be able to finish its work.
REACHED: dict[str, tuple[Scenario, Callable[[StoreState], bool]]] = {
    "a put is committed, its event drained, and its token dropped": (
        ("put", "commit", "drain"),
        lambda lake: lake.commits == {1} and told(lake, 1) and lake.dropped == {0},
    ),
    "a put is written to two tokens, and both events are drained": (
        ("put", "commit", "drain"),
        lambda lake: len(lake.told[0].rows) == 2 and lake.acked == {1},
    ),
    "a row lands in a token that the record has lost, and is drained by the last scan": (
        ("put", "reset", "drain"),
        lambda lake: told(lake, 1) and 1 not in lake.acked and (0, 1) not in lake.shown,
    ),
    "a compaction is drained": (
        ("put", "compact", "drain"),
        lambda lake: any(each.record and each.record.base for each in lake.told[0].changes),
    ),
    "another branch of the name is drained": (
        ("put", "remake", "drain"),
        lambda lake: any(each.life == 1 for each in lake.told[0].changes) and lake.dropped == {0},
    ),
    "one of two creates wins": (("create", "create"), lambda lake: lake.acked == {2}),
    "a sweep deletes a block": (
        ("put", "then put", "sweep", "drain"),
        lambda lake: lake.blocks == {1} and lake.acked == {1, 2},
    ),
    "a write is acknowledged by the restored store, and drained": (
        ("put", "restore", "then put", "drain"),
        lambda lake: len(lake.told) == 2 and told(lake, 3) and 3 in lake.acked,
    ),
    "a write is acknowledged by the rebuilt store, and drained": (
        ("put", "rebuild", "then put", "drain"),
        lambda lake: len(lake.told) == 2 and lake.kept == {1} and told(lake, 3) and 3 in lake.acked,
    ),
    "a holder of the store that was lost writes its file later": (
        ("put", "restore", "drain", "drain"),
        lambda lake: len(lake.told) == 2 and bool(lake.told[0].rows) and not lake.acked,
    ),
}


@pytest.mark.parametrize("what", REACHED)
def test_every_process_can_finish_its_work(what: str) -> None:
    scenario, goal = REACHED[what]
    assert reach(scenario, goal).broken == "reached"


def test_every_guard_has_a_scenario() -> None:
    assert set(MISSED_BY) == set(JOURNAL_GUARDS)


@pytest.mark.parametrize("guard", JOURNAL_GUARDS)
def test_without_a_guard_a_promise_is_broken(guard: str) -> None:
    scenario, promise = MISSED_BY[guard]
    found = check(scenario, guard)
    assert found.broken is not None
    assert found.broken.startswith(promise), found.broken
