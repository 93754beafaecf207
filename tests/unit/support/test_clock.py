"""Ids of tests are valid ids."""

from __future__ import annotations

import uuid

from tests.support.clock import ManualClock, SeededIds


def test_ids_of_replicas_differ_in_one_millisecond_and_are_in_order() -> None:
    clock = ManualClock()
    replicas = [SeededIds(clock, seed) for seed in (0, 1, 4095)]
    made = [[ids.uuid7() for _ in range(300)] for ids in replicas]
    assert len({each for of_one in made for each in of_one}) == 900
    for of_one in made:
        assert of_one == sorted(of_one)
    clock.advance(0.001)
    assert replicas[0].uuid7() > max(max(of_one) for of_one in made)


def test_an_id_is_a_uuid7_of_the_clock() -> None:
    clock = ManualClock()
    made = uuid.UUID(bytes=SeededIds(clock, 7).uuid7())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert int.from_bytes(made.bytes[:6], "big") == clock.now_us() // 1000
