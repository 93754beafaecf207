"""Timestamps of plain rows: only "above what is seen, and deletes are tombstones" never hides the last write."""

from __future__ import annotations

import pytest
from tests.models.timestamp_model import HISTORIES, Op, Policy, lost_write


@pytest.mark.parametrize("history", HISTORIES)
def test_above_what_is_seen_with_markers_the_last_write_shows(history: tuple[Op, ...]) -> None:
    assert lost_write(Policy.ABOVE_SEEN_MARKERS, history) is None


@pytest.mark.parametrize("policy", [Policy.CLOCK, Policy.COMPARED_FIRST])
def test_by_clocks_alone_a_write_is_lost(policy: Policy) -> None:
    assert lost_write(policy, (Op.PUT, Op.PUT)) is not None


def test_above_what_is_seen_a_tombstone_hides_the_next_put() -> None:
    """A reader does not see the time of a tombstone, so the next put cannot go above it."""
    policy = Policy.ABOVE_SEEN_TOMBSTONES
    assert lost_write(policy, (Op.PUT, Op.PUT)) is None
    assert lost_write(policy, (Op.PUT, Op.DELETE, Op.PUT)) is not None
