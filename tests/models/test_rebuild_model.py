"""Rebuilds of a lost store whose processes go on keep their promises in every interleaving; each guard is needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.models.rebuild_model import (
    HOLDS,
    LONG,
    MISSED_BY,
    REBUILD_GUARDS,
    Scenario,
    check,
    reach,
)
from tests.models.rebuild_state import LakeState


@pytest.mark.parametrize("scenario", HOLDS, ids="+".join)
def test_with_all_guards_every_promise_holds(scenario: Scenario) -> None:
    found = check(scenario)
    assert found.broken is None, found.steps
    assert found.is_complete


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", LONG, ids="+".join)
def test_larger_scenarios_break_no_promise(scenario: Scenario) -> None:
    found = check(scenario, states_max=100_000)
    assert found.broken is None, found.steps


def opened(lake: LakeState) -> set[int]:
    return {at for at, store in enumerate(lake.stores) if at and store.is_open}


# A model without steps keeps every promise, so each process must be able to finish its work.
REACHED: dict[str, tuple[Scenario, Callable[[LakeState], bool]]] = {
    "a rebuilt store opens with what was drained, and drains": (
        ("drained", "put 0", "drain 0", "rebuild", "put 1", "drain 1"),
        lambda lake: lake.epochs[-1].contents == (1, 3, 6) and lake.epochs[-1].store == 1,
    ),
    "a write that was not drained is lost": (
        ("drained", "put 0", "rebuild"),
        lambda lake: opened(lake) == {1} and (1, 3) in lake.shown and 3 not in lake.due,
    ),
    "a rebuild that died after it began its epoch is repeated": (
        ("drained", "rebuild", "rebuild"),
        lambda lake: opened(lake) == {2} and len(lake.epochs) == 3,
    ),
    "a forgotten process deletes a block while a rebuild reads; that one does not open, and the next one does": (
        ("drained", "put 0", "sweep 0", "rebuild", "rebuild"),
        lambda lake: (
            opened(lake) == {2} and lake.stores[1].contents == (1,) and lake.deleted == {1}
        ),
    ),
    "a sweep has marked a listing, which is written again, and the rebuild opens": (
        ("drained", "sweep 0", "rebuild", "rebuild"),
        lambda lake: (
            opened(lake) == {2} and -1 in lake.marked & lake.young and -1 not in lake.deleted
        ),
    ),
    "a sweep has deleted a listing, and the rebuild does not open; the next one does": (
        ("drained", "sweep 0", "rebuild", "rebuild", "rebuild"),
        lambda lake: opened(lake) == {3} and -1 in lake.marked,
    ),
    "a forgotten process writes its file too late, and deletes nothing": (
        ("drained", "put 0", "sweep 0", "rebuild"),
        lambda lake: opened(lake) == {1} and bool(lake.epochs[0].files) and not lake.deleted,
    ),
    "a sweep deletes two blocks after one pass": (
        ("drained", "put 0", "put 0", "sweep 0"),
        lambda lake: lake.deleted == {1, 3},
    ),
    "the collections of a rebuilt store are released, and a sweep deletes a block of the lost store": (
        ("drained", "put 0", "drain 0", "rebuild", "release 1", "sweep 1"),
        lambda lake: lake.deleted == {3} and lake.epochs[-1].store == 1,
    ),
    "an attempt to begin an epoch is taken over, and the first of the two counts": (
        ("restored", "begin 0", "then begin 0", "begin 0"),
        lambda lake: (row := lake.stores[0].row) is not None and row.has_begun and row.attempt == 3,
    ),
    "the attempt that took over counts": (
        ("restored", "begin 0", "begin 0"),
        lambda lake: len(lake.epochs) == 2 and lake.epochs[1].attempt == 4,
    ),
    "the restored store is first, and the rebuild is refused": (
        ("restored", "begin 0", "rebuild"),
        lambda lake: len(lake.stores) == 2 and lake.epochs[-1].store == 0,
    ),
    "the rebuild is first, and the restored store is refused": (
        ("restored", "begin 0", "rebuild"),
        lambda lake: (
            opened(lake) == {1} and (row := lake.stores[0].row) is not None and row.number == 2
        ),
    ),
    "a store whose journal was off and on goes on, and a rebuild reads what it had then": (
        ("drained", "put 0", "off 0", "begin 0", "rebuild"),
        lambda lake: opened(lake) == {1} and lake.stores[1].contents == (1, 3),
    ),
    "a repository that was made anew goes on after the epoch of the deleted one": (
        ("deleted", "remake 0", "then begin 0", "put 0", "drain 0"),
        lambda lake: lake.epochs[-1].number == 2 and lake.epochs[-1].contents == (3, 5),
    ),
    "a repository that was made anew is refused behind a rebuild, and drains nothing": (
        ("deleted", "remake 0", "then begin 0", "rebuild"),
        lambda lake: opened(lake) == {1} and (3,) in lake.shown and len(lake.epochs) == 2,
    ),
    "a pass removes what is in its file": (
        ("drained", "put 0", "pass 0"),
        lambda lake: lake.stores[0].removed == {1, 3} and lake.epochs[-1].contents == (1, 3),
    ),
    "a pass that lived through the journal off and on removes nothing; the next one does": (
        ("drained", "pass 0", "off 0", "begin 0", "put 0", "pass 0"),
        lambda lake: (
            (1, 6) in lake.epochs[0].files & lake.epochs[-1].files
            and lake.stores[0].removed == {1, 6}
        ),
    ),
    "of two restored stores the second one that begins counts": (
        ("drained", "restore", "restore", "begin 1", "begin 2", "put 2", "drain 2"),
        lambda lake: lake.epochs[-1].store == 2 and lake.epochs[-1].contents == (1, 7),
    ),
    "replicas on an empty store are refused, and the rebuild opens": (
        ("empty", "put 1", "begin 1", "rebuild", "put 2", "drain 2"),
        lambda lake: opened(lake) == {1, 2} and lake.epochs[-1].contents == (1, 6),
    ),
}


@pytest.mark.parametrize("what", REACHED)
def test_every_process_can_finish_its_work(what: str) -> None:
    scenario, goal = REACHED[what]
    assert reach(scenario, goal).broken == "reached"


def test_every_guard_has_a_scenario() -> None:
    assert set(MISSED_BY) == set(REBUILD_GUARDS)


@pytest.mark.parametrize("guard", REBUILD_GUARDS)
def test_without_a_guard_a_promise_is_broken(guard: str) -> None:
    scenario, promise = MISSED_BY[guard]
    found = check(scenario, guard)
    assert found.broken is not None
    assert found.broken.startswith(promise), found.broken
