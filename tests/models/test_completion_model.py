"""Completing an upload once: the protocol holds in every interleaving, and each guard is needed."""

import pytest
from tests.models.completion_model import GUARDS, Model

TWO = ("complete", "complete", "put")
BESIDE_A_CREATION = ("complete", "complete", "create")
ONE_COMMIT = ("complete", "put", "commit")
BESIDE_A_MERGE = ("complete", "delete", "merge")
BESIDE_A_COMMIT = ("complete", "complete", "put", "commit")


def test_two_attempts_beside_a_put_stage_the_object_once() -> None:
    why, states, steps = Model(TWO).check()
    assert why is None, steps
    assert states > 50_000


def test_two_attempts_beside_a_creation_keep_its_condition() -> None:
    why, states, steps = Model(BESIDE_A_CREATION).check()
    assert why is None, steps
    assert states > 10_000


@pytest.mark.parametrize("scenario", [ONE_COMMIT, BESIDE_A_MERGE], ids="+".join)
def test_one_completion_beside_a_put_and_a_commit_or_merge_keeps_every_promise(
    scenario: tuple[str, ...],
) -> None:
    why, states, steps = Model(scenario).check()
    assert why is None, steps
    assert states > 3_000


def test_two_attempts_beside_a_commit_break_nothing_in_the_states_near_the_start() -> None:
    why, _, steps = Model(BESIDE_A_COMMIT).check(100_000)
    assert why == "no answer: too many states", steps


SCENARIO_OF: dict[str, tuple[str, ...]] = dict.fromkeys(("verifies", "carries"), ONE_COMMIT)
SCENARIO_OF["rechecks"] = BESIDE_A_COMMIT
SCENARIO_OF["doubts"] = BESIDE_A_CREATION
SCENARIO_OF["own rows only"] = BESIDE_A_MERGE


@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_an_acknowledged_write_is_lost(guard: str) -> None:
    why, _, steps = Model(SCENARIO_OF.get(guard, TWO), guard).check()
    assert why is not None
    assert why.startswith(("once", "stays covered", "kept", "put kept", "condition kept")), why
    assert steps
