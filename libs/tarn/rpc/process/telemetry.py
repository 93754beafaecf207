"""Traces and metrics that cost almost nothing until an exporter is configured.

The OpenTelemetry SDK takes 5 to 15 µs per span and 4 per measurement, sampled or not
(docs/design/hot-path.md, "Telemetry"). So sampling is decided here, before the SDK is called (an incoming
sampled `traceparent`, or a ratio), and measurements are plain arrays that the SDK reads when it exports. The
standard environment variables select the exporters (`OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER`, and
those that the SDK reads itself). Without them the SDK is not even imported.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

__all__ = [
    "Counter",
    "Histogram",
    "LATENCY_SECONDS",
    "Meters",
    "TRACEPARENT",
    "Tracing",
    "exporting",
]

TRACEPARENT: ContextVar[str] = ContextVar("tarn_traceparent", default="")
"""W3C trace context of the sampled span that this task works for; sent with unary calls."""

LATENCY_SECONDS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.5,
    2,
    10,
)

_SAMPLED = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f][13579bdf]")

Attributes = tuple[tuple[str, str], ...]


class Counter:
    """A number that only increases."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Adds `amount`."""
        self.value += amount


class Histogram:
    """The number of values in each of fixed buckets.

    Attributes:
        bounds: upper bounds, inclusive, ascending; one more bucket counts values above the last bound.
        counts: per bucket, not cumulative.
        total: sum of all values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_SECONDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def record(self, value: float) -> None:
        """Adds one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Meters:
    """The counters and histograms of a process, by name and attributes. Once created, they are never removed."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[Attributes, Counter]] = {}
        self._histograms: dict[str, dict[Attributes, Histogram]] = {}
        self._announce: Callable[[str], None] = lambda _name: None

    def counter(self, name: str, **attributes: str) -> Counter:
        """Returns the counter of a name and attributes, which take few values (no ids, no paths)."""
        if name not in self._counters:
            self._counters[name] = {}
            self._announce(name)
        return self._counters[name].setdefault(tuple(attributes.items()), Counter())

    def histogram(self, name: str, **attributes: str) -> Histogram:
        """Returns the histogram, in seconds, of a name and attributes, which take few values."""
        if name not in self._histograms:
            self._histograms[name] = {}
            for part in ("bucket", "count", "sum"):
                self._announce(f"{name}.{part}")
        return self._histograms[name].setdefault(tuple(attributes.items()), Histogram())

    def announce(self, listener: Callable[[str], None]) -> None:
        """Calls `listener` with every name that `samples` accepts, including names created later."""
        self._announce = listener
        for name in self._counters:
            listener(name)
        for name in self._histograms:
            for part in ("bucket", "count", "sum"):
                listener(f"{name}.{part}")

    def samples(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """Yields attributes and value of each series of a name; buckets are cumulative up to their `le`."""
        for labels, counter in list(self._counters.get(name, {}).items()):
            yield dict(labels), counter.value
        base, _, part = name.rpartition(".")
        for labels, histogram in list(self._histograms.get(base, {}).items()):
            if part == "sum":
                yield dict(labels), histogram.total
            elif part == "count":
                yield dict(labels), sum(histogram.counts)
            else:
                seen = 0
                for bound, count in zip((*histogram.bounds, "inf"), histogram.counts, strict=True):
                    seen += count
                    yield {**dict(labels), "le": str(bound)}, seen


class Tracing:
    """Decides which requests are traced, and traces those.

    Args:
        tracer: None to trace nothing.
        ratio: traced fraction of the requests without a sampled parent, 0 to 1.
        rng: draws the sample.
    """

    def __init__(self, tracer: Tracer | None, ratio: float, rng: random.Random) -> None:
        self._tracer = tracer
        self._ratio = ratio
        self._rng = rng

    @contextmanager
    def span(self, name: str, traceparent: str = "") -> Iterator[None]:
        """Traces the block if its request is sampled.

        Args:
            name: constant, such as the path of an rpc.
            traceparent: the request's header, or empty.
        """
        parent = _SAMPLED.fullmatch(traceparent) if traceparent else None
        if self._tracer is None or (parent is None and self._rng.random() >= self._ratio):
            yield
            return
        with _recorded(self._tracer, name, parent):
            yield


@contextmanager
def exporting(
    service: str, meters: Meters, ratio: float, rng: random.Random, environ: Mapping[str, str]
) -> Iterator[Tracing]:
    """Within the block, exports what the standard environment variables select; flushes at its end.

    Raises:
        ValueError: a selected exporter is not installed.
    """
    spans = _exporter("opentelemetry_traces_exporter", environ.get("OTEL_TRACES_EXPORTER", ""))
    numbers = _exporter("opentelemetry_metrics_exporter", environ.get("OTEL_METRICS_EXPORTER", ""))
    with ExitStack() as stack:
        tracer = None
        if spans is not None:
            tracer = stack.enter_context(_exported_spans(service, cast("SpanExporter", spans)))
        if numbers is not None:
            stack.enter_context(_exported_meters(service, meters, cast("MetricExporter", numbers)))
        yield Tracing(tracer, ratio, rng)


def _exporter(group: str, name: str) -> object | None:
    if name in {"", "none"}:
        return None
    found = list(entry_points(group=group, name=name))
    if not found:
        raise ValueError(f"exporter {name!r} is not installed ({group})")
    make: Callable[[], object] = found[0].load()
    return make()


@contextmanager
def _exported_spans(service: str, exporter: SpanExporter) -> Iterator[Tracer]:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    # Always on: spans that are not sampled never reach this point.
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource.create({"service.name": service}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer("tarn")
    finally:
        provider.shutdown()


@contextmanager
def _exported_meters(service: str, meters: Meters, exporter: MetricExporter) -> Iterator[None]:
    from opentelemetry.metrics import Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource

    provider = MeterProvider(
        [PeriodicExportingMetricReader(exporter)],
        resource=Resource.create({"service.name": service}),
        shutdown_on_exit=False,
    )
    meter = provider.get_meter("tarn")

    def register(name: str) -> None:
        def read(_options: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, labels) for labels, value in meters.samples(name)]

        meter.create_observable_counter(f"tarn.{name}", [read])

    meters.announce(register)
    try:
        yield
    finally:
        meters.announce(lambda _name: None)
        provider.shutdown()


@contextmanager
def _recorded(tracer: Tracer, name: str, parent: re.Match[str] | None) -> Iterator[None]:
    from opentelemetry import trace

    context = None
    if parent is not None:
        sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        remote = trace.SpanContext(
            int(parent[1], 16), int(parent[2], 16), is_remote=True, trace_flags=sampled
        )
        context = trace.set_span_in_context(trace.NonRecordingSpan(remote))
    with tracer.start_as_current_span(name, context=context) as span:
        own = span.get_span_context()
        outside = TRACEPARENT.set(f"00-{own.trace_id:032x}-{own.span_id:016x}-01")
        try:
            yield
        finally:
            TRACEPARENT.reset(outside)
