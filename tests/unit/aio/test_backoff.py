from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.aio.backoff import backoff_seconds, doubled_seconds


def test_pauses_double_up_to_the_bound() -> None:
    pauses = [doubled_seconds(attempt, first_s=0.1, most_s=1.0) for attempt in range(6)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


@given(
    attempt=st.integers(0, 10**9),
    first_s=st.floats(0.001, 10),
    most_s=st.floats(0.001, 100),
    chance=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_a_pause_is_within_its_share_of_chance(
    attempt: int, first_s: float, most_s: float, chance: float, seed: int
) -> None:
    longest = doubled_seconds(attempt, first_s=first_s, most_s=most_s)
    pause = backoff_seconds(
        random.Random(seed), attempt, first_s=first_s, most_s=most_s, chance=chance
    )
    assert longest <= most_s
    assert (1 - chance) * longest * (1 - 1e-9) <= pause <= longest


def test_a_seed_fixes_the_pauses_and_callers_are_not_in_step() -> None:
    def pauses(seed: int) -> list[float]:
        rng = random.Random(seed)
        return [backoff_seconds(rng, attempt) for attempt in range(8)]

    assert pauses(1) == pauses(1)
    assert not set(pauses(1)) & set(pauses(2))
