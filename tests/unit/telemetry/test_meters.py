"""Meters accept what the table names, count exactly, and bound every scrape."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.telemetry.meters import OVERFLOW, SAMPLING_SECONDS_MAX, Histogram, Meters
from tarn.telemetry.metric_table import TABLE, Kind, Metric

SMALL = Metric("test.small", Kind.COUNTER, "", "", ("who",), series_max=2)
EACH = Metric("test.each", Kind.GAUGE, "", "", ("who",), series_max=3)
FIRST = Metric("test.first", Kind.GAUGE, "", "")
LAST = Metric("test.last", Kind.GAUGE, "", "")
SHORT = Metric("test.short", Kind.HISTOGRAM, "s", "", ("who",), series_max=1, buckets=(1.0, 2.0))
TESTED = (*TABLE, SMALL, EACH, FIRST, LAST, SHORT)


def test_value_at_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram([1.0, 2.0])
    for value in (0.5, 1.0, 1.5, 3.0):
        histogram.record(value)

    assert histogram.counts == [2, 1, 1]
    assert histogram.total == 6.0


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0])), st.lists(st.floats(0, 4)))
def test_many_values_count_like_one_after_the_other(first: list[float], then: list[float]) -> None:
    single, together = Histogram([0.5, 1.0, 2.0]), Histogram([0.5, 1.0, 2.0])
    for value in (*first, *then):
        single.record(value)
    for values in (first, then):
        together.waiting += values
        together.count_waiting()
    assert together.counts == single.counts
    assert together.total == pytest.approx(single.total)


def test_samples_accumulate_buckets() -> None:
    meters = Meters()
    histogram = meters.histogram("rpc.duration", method="/a")
    histogram.record(0.0002)
    histogram.record(100.0)

    samples = {labels["le"]: value for labels, value in meters.samples("rpc.duration.bucket")}

    assert samples["0.0001"] == 0
    assert samples["0.00025"] == 1
    assert samples["inf"] == 2
    assert list(meters.samples("rpc.duration.count")) == [({"method": "/a"}, 2)]


def test_same_name_and_labels_are_one_counter_in_any_order() -> None:
    meters = Meters()
    meters.counter("kv.failed", operation="scan", reason="A").add()
    meters.counter("kv.failed", reason="A", operation="scan").add(2)
    meters.counter("kv.failed", operation="scan", reason="B").add()

    assert [value for _, value in meters.samples("kv.failed")] == [3, 1]


def test_names_and_labels_that_the_table_lacks_are_refused() -> None:
    meters = Meters()
    with pytest.raises(ValueError, match=r"no counter 'kv\.fialed'"):
        meters.counter("kv.fialed", operation="scan", reason="A")
    with pytest.raises(ValueError, match=r"no histogram 'kv\.failed'"):
        meters.histogram("kv.failed", operation="scan", reason="A")
    with pytest.raises(ValueError, match="has the labels"):
        meters.counter("kv.failed", operation="scan")
    with pytest.raises(ValueError, match="has the labels"):
        meters.counter("kv.failed", operation="scan", cause="A")
    with pytest.raises(ValueError, match=r"no gauge or counter 'kv\.duration'"):
        meters.sample("kv.duration", lambda: 1, operation="scan")
    with pytest.raises(ValueError, match="no gauge or counter"):
        meters.sample_each("kv.duration", lambda: ())
    assert meters.collect() == []


@pytest.mark.parametrize("name", ["test.small", "test.short"])
def test_series_beyond_the_bound_share_one_and_are_counted(name: str) -> None:
    meters = Meters(TESTED)
    make = meters.counter if name == "test.small" else meters.histogram
    bound = 2 if name == "test.small" else 1
    made = [make(name, who=str(number)) for number in range(5)]

    assert len({id(each) for each in made}) == bound + 1
    assert made[0] is make(name, who="0")
    (family,) = (each for each in meters.collect() if each.metric.name == name)
    assert [each.labels for each in family.series] == [
        *((str(number),) for number in range(bound)),
        (OVERFLOW,),
    ]
    assert list(meters.samples("telemetry.dropped_series")) == [({"metric": name}, 5 - bound)]


def test_gauges_are_read_at_each_scrape() -> None:
    meters, now = Meters(TESTED), [1, 2]
    meters.sample("test.first", now.pop)
    assert [list(meters.samples("test.first")) for _ in range(2)] == [[({}, 2)], [({}, 1)]]


def test_a_scrape_leaves_out_series_of_a_gauge_beyond_its_bound() -> None:
    meters = Meters(TESTED)
    read = 0

    def endless() -> Iterator[tuple[tuple[str, ...], float]]:
        nonlocal read
        while True:
            read += 1
            yield (str(read),), read

    meters.sample_each("test.each", endless)
    assert len(list(meters.samples("test.each"))) == 3
    assert read == 4
    assert meters.counter("telemetry.dropped_series", metric="test.each").value == 1


class SteppingTime:
    """A monotonic clock that advances by `step` with each reading."""

    def __init__(self) -> None:
        self.now = 0.0
        self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_a_scrape_that_took_too_long_skips_the_other_gauges_and_says_so() -> None:
    time = SteppingTime()
    meters = Meters(TESTED, time)

    def slow() -> float:
        time.now += SAMPLING_SECONDS_MAX
        return 7

    meters.sample("test.first", slow)
    meters.sample("test.last", lambda: 8)
    meters.counter("kv.failed", operation="scan", reason="A").add()
    assert {family.metric.name for family in meters.collect()} == {
        "test.first",
        "kv.failed",
        "telemetry.skipped_samples",
    }
    assert next(meters.samples("telemetry.skipped_samples")) == ({"metric": "test.last"}, 2)


def test_a_gauge_of_many_series_ends_when_the_scrape_took_too_long() -> None:
    time = SteppingTime()
    many = Metric("test.each", Kind.GAUGE, "", "", ("who",), series_max=1_000_000)
    meters = Meters((*TABLE, many), time)
    read = 0

    def slow() -> Iterator[tuple[tuple[str, ...], float]]:
        nonlocal read
        while True:
            read += 1
            time.now += SAMPLING_SECONDS_MAX / 100
            yield (str(read),), read

    meters.sample_each("test.each", slow)
    assert 100 <= len(list(meters.collect()[-1].series)) < 200
    assert read < 200


def test_a_broken_gauge_hides_no_other() -> None:
    meters = Meters(TESTED)
    meters.sample("test.first", lambda: 1 // 0)
    meters.sample("test.last", lambda: 8)
    assert list(meters.samples("test.last")) == [({}, 8)]
    assert next(meters.samples("telemetry.skipped_samples"))[0] == {"metric": "test.first"}


def test_a_later_gauge_of_the_same_labels_replaces_the_first() -> None:
    meters = Meters(TESTED)
    meters.sample("test.first", lambda: 1)
    meters.sample("test.first", lambda: 2)
    assert list(meters.samples("test.first")) == [({}, 2)]
