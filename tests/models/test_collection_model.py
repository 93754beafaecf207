"""Garbage collection: nothing live is deleted in any interleaving, and each guard is needed."""

import pytest
from tests.models.collection_addresses import AddressModel
from tests.models.collection_fences import FENCE_SCENARIOS, FenceModel
from tests.models.collection_model import GUARDS, SCENARIOS, explored

LARGE = "a put, a commit and a compaction"


@pytest.mark.parametrize("looks", [1, 2])
@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if each != LARGE])
def test_nothing_live_is_deleted(scenario: str, looks: int) -> None:
    """With one look as well: the order of the roots suffices, and the second look is a net."""
    lake, processes = SCENARIOS[scenario]
    found = AddressModel(lake, processes, looks=looks).check()
    assert found.broken is None, found.steps
    assert found.is_complete


def test_nothing_live_is_deleted_beside_a_put_a_commit_and_a_compaction() -> None:
    lake, processes = SCENARIOS[LARGE]
    found = AddressModel(lake, processes).check()
    assert found.broken is None, found.steps
    assert found.is_complete
    assert found.states > 30_000


@pytest.mark.parametrize("scenario", FENCE_SCENARIOS)
def test_builds_beside_sweeps_keep_their_ranges(scenario: str) -> None:
    found = FenceModel(scenario).check()
    assert found.broken is None, found.steps
    assert found.is_complete
    assert found.states > 2_000


@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_something_live_is_deleted(guard: str) -> None:
    found = explored(guard)
    assert found.broken in {"kept", "read"}, found
    assert found.steps
