"""Online deletion: nothing live is deleted in any interleaving, and each guard is needed."""

import pytest
from tests.models.online_model import ONLINE_GUARDS, SCENARIOS, OnlineModel, explored


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_live_is_deleted(scenario: str) -> None:
    found = OnlineModel(SCENARIOS[scenario]).check()
    assert found.broken is None, found.steps
    assert found.is_complete


@pytest.mark.parametrize("guard", ONLINE_GUARDS)
def test_without_a_guard_something_live_is_deleted(guard: str) -> None:
    found = explored(guard)
    assert found.broken == ("read" if guard == "delay" else "kept"), found
    assert any(step.startswith("online: deletes") for step in found.steps)
