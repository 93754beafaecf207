"""Timestamps of plain rows: the last write is never hidden only if timestamps exceed all seen ones and deletes
write a row.
"""

from __future__ import annotations

import pytest
from tests.models.timestamp_model import HISTORIES, Op, Policy, lost_write


@pytest.mark.parametrize("history", HISTORIES)
def test_with_timestamps_above_what_is_seen_and_tombstone_values_the_last_write_shows(
    history: tuple[Op, ...],
) -> None:
    assert lost_write(Policy.ABOVE_SEEN_TOMBSTONE_ROWS, history) is None


@pytest.mark.parametrize("policy", [Policy.CLOCK, Policy.COMPARED_FIRST])
def test_by_clocks_alone_a_write_is_lost(policy: Policy) -> None:
    assert lost_write(policy, (Op.PUT, Op.PUT)) is not None


def test_with_timestamps_above_what_is_seen_a_cassandra_tombstone_hides_the_next_put() -> None:
    """A reader does not see the timestamp of a Cassandra tombstone, so the next put cannot go above it."""
    policy = Policy.ABOVE_SEEN_CASSANDRA_TOMBSTONES
    assert lost_write(policy, (Op.PUT, Op.PUT)) is None
    assert lost_write(policy, (Op.PUT, Op.DELETE, Op.PUT)) is not None
