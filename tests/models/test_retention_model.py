"""Commits that expire: nothing that is live loses its block in any interleaving, and each guard is needed."""

import pytest
from tests.models.retention_model import GUARDS, SCENARIOS, RetentionModel, explored


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_is_brought_back_keeps_its_block(scenario: str) -> None:
    found = RetentionModel(SCENARIOS[scenario]).check()
    assert found.broken is None, found.steps
    assert found.is_complete
    assert found.states > 50


@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_something_live_loses_its_block(guard: str) -> None:
    found = explored(guard)
    assert found.broken == "kept", found
    assert found.steps
