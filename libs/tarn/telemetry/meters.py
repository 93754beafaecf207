"""The numbers behind the metrics of a process.

A measurement costs some 0.1 µs: code asks `Meters` once for a counter or histogram of given labels, keeps it, and
then changes a plain number (docs/design/hot-path.md, "Telemetry"). Gauges are functions that a scrape calls. A
scrape is bounded in time and in series, so that reading the metrics never delays requests for long.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from tarn.telemetry.metric_table import LATENCY_SECONDS, TABLE, Kind, Metric

__all__ = [
    "Counter",
    "Exemplar",
    "Family",
    "Histogram",
    "Meters",
    "OVERFLOW",
    "SAMPLING_SECONDS_MAX",
    "Series",
]

SAMPLING_SECONDS_MAX: Final = 0.1
"""Time of one scrape after which it samples no further gauge."""

OVERFLOW: Final = "other"
"""Value of every label of the series that takes the measurements of series beyond the bound."""

_TIME_CHECK: Final = 64

_log = structlog.get_logger()

Labels = tuple[str, ...]


class Counter:
    """A number that only increases."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Adds `amount`."""
        self.value += amount


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A value of a histogram whose request was traced.

    Attributes:
        trace_id: 32 hex digits.
        span_id: 16 hex digits.
        value: the value.
        time_us: when it was recorded, microseconds since the epoch.
    """

    trace_id: str
    span_id: str
    value: float
    time_us: int


class Histogram:
    """The number of values in each of fixed buckets.

    Attributes:
        bounds: upper bounds, inclusive, ascending; one more bucket counts values above the last bound.
        counts: per bucket, not cumulative.
        total: sum of all values.
        exemplars: the last exemplar of each bucket that has one, by the bucket's index.
        waiting: values that were put aside, which cost a tenth of `record` if they are counted together. The code that
            adds them counts them when there are many, and each scrape does first.
    """

    __slots__ = ("bounds", "counts", "exemplars", "total", "waiting")

    def __init__(self, bounds: Sequence[float] = LATENCY_SECONDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0
        self.exemplars: dict[int, Exemplar] = {}
        self.waiting: list[float] = []

    def record(self, value: float) -> None:
        """Adds one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def count_waiting(self) -> None:
        """Adds the values that wait: sorted, they need a look-up for each bound instead of one for each value."""
        values = self.waiting
        values.sort()
        self.total += sum(values)
        counts, below = self.counts, 0
        for index, bound in enumerate(self.bounds):
            upto = bisect_right(values, bound, below)
            counts[index] += upto - below
            below = upto
        counts[-1] += len(values) - below
        values.clear()

    def exemplify(self, exemplar: Exemplar) -> None:
        """Keeps an exemplar of a value that was recorded."""
        self.exemplars[bisect_left(self.bounds, exemplar.value)] = exemplar


@dataclass(frozen=True, slots=True)
class Series:
    """The value of one metric for one set of labels.

    Attributes:
        labels: values, in the order of the metric's labels.
        value: a number, or the histogram itself, which may change later.
    """

    labels: Labels
    value: float | Histogram


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with all of its series."""

    metric: Metric
    series: tuple[Series, ...]


Sampler = Callable[[], Iterable[tuple[Labels, float]]]


class Meters:
    """The metrics of a process. Belongs to one event loop, on which also the scrapes run.

    A series, once created, is never removed.

    Args:
        table: the metrics that may be used.
        now: monotonic time in seconds, for the bound of a scrape.
    """

    def __init__(
        self, table: Iterable[Metric] = TABLE, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._table: Mapping[str, Metric] = {metric.name: metric for metric in table}
        self._now = now
        self._counters: dict[str, dict[Labels, Counter]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}
        self._samplers: dict[str, dict[Labels | None, Sampler]] = {}
        self._pending: list[Callable[[], None]] = []

    def counter(self, name: str, **labels: str) -> Counter:
        """Returns the counter of a metric and labels.

        Raises:
            ValueError: the table has no such metric, or the metric has other labels.
        """
        metric = self._metric(name, Kind.COUNTER)
        series = self._counters.setdefault(name, {})
        key = _key(metric, labels)
        found = series.get(key)
        if found is None:
            found = series.setdefault(self._bounded(metric, key, len(series)), Counter())
        return found

    def histogram(self, name: str, **labels: str) -> Histogram:
        """Returns the histogram of a metric and labels.

        Raises:
            ValueError: the table has no such metric, or the metric has other labels.
        """
        metric = self._metric(name, Kind.HISTOGRAM)
        series = self._histograms.setdefault(name, {})
        key = _key(metric, labels)
        found = series.get(key)
        if found is None:
            made = Histogram(metric.buckets)
            found = series.setdefault(self._bounded(metric, key, len(series)), made)
        return found

    def sample(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """Registers a function that returns the value of a gauge, or of a counter that is kept elsewhere.

        It is called on the event loop at every scrape, must not wait, and replaces an earlier one of the
        same labels.

        Raises:
            ValueError: the table has no such metric, or the metric has other labels.
        """
        metric = self._metric(name, Kind.GAUGE, Kind.COUNTER)
        key = _key(metric, labels)
        self._samplers.setdefault(name, {})[key] = lambda: ((key, read()),)

    def sample_each(self, name: str, read: Sampler) -> None:
        """Registers a function that yields the series of a gauge: values of its labels in order, and the number.

        It is called like that of `sample`. Series beyond the bound of the metric are left out and counted, so it
        yields the important ones first.

        Raises:
            ValueError: the table has no such metric.
        """
        self._metric(name, Kind.GAUGE, Kind.COUNTER)
        self._samplers.setdefault(name, {})[None] = read

    def total(self, name: str, leave_out: str = "") -> int:
        """Returns the sum of all counters of a metric, without what is kept elsewhere.

        Args:
            name: of the metric.
            leave_out: value of the first label whose counters are left out; empty: none.
        """
        for count in self._pending:
            count()
        series = self._counters.get(name, {}).items()
        return sum(each.value for key, each in series if not leave_out or key[0] != leave_out)

    def before_collecting(self, count: Callable[[], None]) -> None:
        """Registers a function that counts what its owner has put aside. It must not fail or wait."""
        self._pending.append(count)

    def collect(self) -> list[Family]:
        """Returns the series of all metrics that have any, in the order of the table.

        Gauges whose function fails, or whose turn comes after `SAMPLING_SECONDS_MAX`, are left out and counted.
        """
        for count in self._pending:
            count()
        for histograms in self._histograms.values():
            for histogram in histograms.values():
                histogram.count_waiting()
        end = self._now() + SAMPLING_SECONDS_MAX
        sampled = {name: list(self._sampled(name, end)) for name in list(self._samplers)}
        families = []
        for metric in self._table.values():
            series = [
                *(
                    Series(key, each.value)
                    for key, each in self._counters.get(metric.name, {}).items()
                ),
                *(Series(key, each) for key, each in self._histograms.get(metric.name, {}).items()),
                *sampled.get(metric.name, ()),
            ]
            if series:
                families.append(Family(metric, tuple(series)))
        return families

    def samples(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """Yields labels and value of each series of a metric; for tests.

        The name of a histogram is followed by `.count`, `.sum` or `.bucket` (cumulative up to the label `le`).
        """
        base, _, part = name.rpartition(".")
        for family in self.collect():
            is_part = family.metric.kind is Kind.HISTOGRAM and family.metric.name == base
            if family.metric.name != name and not is_part:
                continue
            for each in family.series:
                labels = dict(zip(family.metric.labels, each.labels, strict=True))
                if isinstance(each.value, Histogram):
                    yield from _parts(part, labels, each.value)
                else:
                    yield labels, each.value

    def _metric(self, name: str, *kinds: Kind) -> Metric:
        metric = self._table.get(name)
        if metric is None or metric.kind not in kinds:
            wanted = " or ".join(kind.value for kind in kinds)
            raise ValueError(f"the table of metrics has no {wanted} {name!r}")
        return metric

    def _bounded(self, metric: Metric, key: Labels, count: int) -> Labels:
        if count < metric.series_max:
            return key
        self.counter("telemetry.dropped_series", metric=metric.name).add()
        return (OVERFLOW,) * len(metric.labels)

    def _sampled(self, name: str, end: float) -> Iterator[Series]:
        metric = self._table[name]
        count = 0
        for read in list(self._samplers[name].values()):
            if self._now() >= end:
                self._skip(name)
                continue
            try:
                for key, value in read():
                    if count >= metric.series_max:
                        self.counter("telemetry.dropped_series", metric=name).add()
                        break
                    if count % _TIME_CHECK == _TIME_CHECK - 1 and self._now() >= end:
                        self._skip(name)
                        break
                    count += 1
                    yield Series(key, value)
            except Exception as error:  # noqa: BLE001 - one broken gauge must not hide all others
                _log.warning("gauge failed", metric=name, error=repr(error))
                self._skip(name)

    def _skip(self, name: str) -> None:
        self.counter("telemetry.skipped_samples", metric=name).add()


def _key(metric: Metric, labels: Mapping[str, str]) -> Labels:
    if len(labels) != len(metric.labels) or not all(name in labels for name in metric.labels):
        raise ValueError(f"{metric.name} has the labels {metric.labels}, not {tuple(labels)}")
    return tuple(labels[name] for name in metric.labels)


def _parts(
    part: str, labels: dict[str, str], histogram: Histogram
) -> Iterator[tuple[dict[str, str], float]]:
    if part == "sum":
        yield labels, histogram.total
    elif part == "count":
        yield labels, sum(histogram.counts)
    elif part == "bucket":
        seen = 0
        for bound, count in zip((*histogram.bounds, "inf"), histogram.counts, strict=True):
            seen += count
            yield {**labels, "le": str(bound)}, seen
