"""The count of undrained events: what a process has written counts until a later round has taken it, and is told."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.support.clock import ManualClock

from tarn.kv.journal_records import DrainRecord, Undrained, decode_drain, encode_drain
from tarn_graveler.journal import pressure as module
from tarn_graveler.journal.pressure import Pressure

SECOND = 1_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def drained(clock: ManualClock, ago_s: int = 0, **behind_s: int) -> DrainRecord:
    now_us = clock.now_us()
    behind = {root: now_us - seconds * SECOND for root, seconds in behind_s.items()}
    return DrainRecord("h", 0, now_us - ago_s * SECOND, behind)


def test_a_write_counts_until_a_round_that_began_later_has_drained_its_repository(
    clock: ManualClock,
) -> None:
    pressure = Pressure(clock, 1000)
    pressure.add("slow", 5)
    pressure.add("fast", 7)
    clock.advance(20)
    pressure.learn(drained(clock), "h")
    assert pressure.total == 12, "clocks differ, and its row may have come later"
    clock.advance(11)
    pressure.learn(drained(clock, 2, slow=100), "h")
    assert pressure.total == 12
    pressure.learn(drained(clock, 0, slow=100), "h")
    assert pressure.total == 5
    pressure.learn(drained(clock), "h")
    assert pressure.total == 0


def test_no_count_is_forgotten_early_and_memory_is_bounded(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is merged counts at least as long as it should, compared with a list of all writes."""
    monkeypatch.setattr(module, "_ROOTS_MAX", 3)
    rng = random.Random(5)
    pressure, writes = Pressure(clock, 1000), []
    for _ in range(3_000):
        clock.advance(rng.uniform(0, 25))
        root = f"r{rng.randrange(5)}"
        size = rng.randrange(1, 9)
        pressure.add(root, size)
        writes.append((root, clock.now_us(), size))
        assert sum(map(len, pressure._slots.values())) <= 4 * 65
    lags = {f"r{at}": rng.randrange(70_000) for at in range(5)}
    for _ in range(20):
        record = drained(clock, 0, **lags)
        pressure.learn(record, "h")
        waits = sum(size for root, us, size in writes if us + 30 * SECOND > record.of(root))
        assert waits <= pressure.size
        lags = {root: lag - rng.randrange(3_500) for root, lag in lags.items()}
    clock.advance(31)
    pressure.learn(drained(clock), "h")
    assert (pressure.size, pressure._slots) == (0, {})


def test_the_record_has_the_number_of_each_process_in_steps(clock: ManualClock) -> None:
    """A small one is not told, so a quiet installation writes nothing; an equal one is not told again."""
    one, two = Pressure(clock, 25_600), Pressure(clock, 25_600)
    record = drained(clock, 5)
    one.add("r", 99)
    assert one.told(record, "1") == record
    one.add("r", 10)
    record = one.told(record, "1")
    assert record.undrained == (Undrained("1", 100, clock.now_us()),)
    assert decode_drain(encode_drain(record)) == record
    clock.advance(9)
    assert one.told(record, "1") == record
    two.add("r", 205)
    record = two.told(record, "2")
    one.learn(record, "1")
    two.learn(record, "2")
    assert (one.total, two.total) == (309, 305)
    # The first dies; a new process knows what it had written, until all repositories are drained past that.
    late = Pressure(clock, 25_600)
    late.learn(record, "3")
    assert late.total == 300
    clock.advance(31)
    behind = replace(drained(clock, 0, r=45), undrained=record.undrained)
    assert late.told(behind, "3").undrained == record.undrained
    two.learn(behind, "2")
    drained_now = replace(drained(clock), undrained=record.undrained)
    assert late.told(drained_now, "3").undrained == ()
    two.learn(drained_now, "2")
    assert two.told(drained_now, "2").undrained == ()


def test_the_record_is_bounded_and_keeps_the_sum(clock: ManualClock) -> None:
    """However often a process crashes."""
    record = drained(clock, 5)
    for number in range(200):
        clock.advance(1)
        one = Pressure(clock, 2_560)
        one.add("r", 10)
        record = one.told(record, f"{number}")
    assert len(record.undrained) == 64
    assert sum(each.size for each in record.undrained) == 2_000
