"""Exporters of traces and metrics, selected by OpenTelemetry's standard environment variables.

`OTEL_TRACES_EXPORTER` and `OTEL_METRICS_EXPORTER` name them; without these variables the SDK is not even imported.
Metrics are read on the event loop, in one step, and sent by a thread, so that a slow collector delays nothing.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, cast

import structlog

from tarn.core.clock import Clock
from tarn.telemetry.meters import Exemplar, Family, Histogram, Meters, Series
from tarn.telemetry.metric_table import Kind, Metric
from tarn.telemetry.tracing import Tracing

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export as otlp
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter

    from tarn.telemetry.spans import SpanSink

__all__ = ["exporting"]

_INTERVAL_MS: Final = "60000"
_LAST_EXPORT_SECONDS: Final = 5.0

_log = structlog.get_logger()


@contextmanager
def exporting(
    service: str,
    meters: Meters,
    ratio: float,
    rng: random.Random,
    environ: Mapping[str, str],
    clock: Clock,
) -> Iterator[Tracing]:
    """Within the block, exports the traces and metrics that the standard environment variables select; flushes at its
    end.

    Metrics are exported periodically only if a loop runs; in any case once more at the end of the block.

    Raises:
        ValueError: a selected exporter is not installed, or the interval is not a number.
    """
    spans = _exporter("opentelemetry_traces_exporter", environ.get("OTEL_TRACES_EXPORTER", ""))
    numbers = _exporter("opentelemetry_metrics_exporter", environ.get("OTEL_METRICS_EXPORTER", ""))
    interval = float(environ.get("OTEL_METRIC_EXPORT_INTERVAL") or _INTERVAL_MS) / 1000
    with ExitStack() as stack:
        sink = None
        if spans is not None:
            exported = _exported_spans(service, cast("SpanExporter", spans), rng)
            sink = stack.enter_context(exported)
        if numbers is not None:
            exporter = cast("MetricExporter", numbers)
            push = _MetricPush(service, meters, exporter, clock, interval)
            stack.callback(push.close)
        yield Tracing(sink, ratio, rng)


def _exporter(group: str, name: str) -> object | None:
    if name in {"", "none"}:
        return None
    # The standard name; OpenTelemetry's package registers only the longer one.
    names = (name, "otlp_proto_grpc") if name == "otlp" else (name,)
    found = [each for known in names for each in entry_points(group=group, name=known)]
    if not found:
        raise ValueError(
            f"exporter {name!r} is not installed ({group}); install its Python package, or name another"
        )
    make: Callable[[], object] = found[0].load()
    return make()


@contextmanager
def _exported_spans(service: str, exporter: SpanExporter, rng: random.Random) -> Iterator[SpanSink]:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from tarn.telemetry.spans import SpanSink

    processor = BatchSpanProcessor(exporter)
    try:
        yield SpanSink(processor, Resource.create({"service.name": service}), rng)
    finally:
        processor.shutdown()  # type: ignore[no-untyped-call]


class _MetricPush:
    """Sends the metrics periodically; an export that still runs makes the next one skip its turn."""

    def __init__(
        self,
        service: str,
        meters: Meters,
        exporter: MetricExporter,
        clock: Clock,
        interval_s: float,
    ) -> None:
        from opentelemetry.sdk.resources import Resource

        self._resource = Resource.create({"service.name": service})
        self._meters = meters
        self._exporter = exporter
        self._clock = clock
        self._interval_s = interval_s
        self._start_ns = clock.now_us() * 1000
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="metric-export")
        self._running: Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._timer = self._loop.call_later(interval_s, self._tick)

    def close(self) -> None:
        """Sends the last values and waits a few seconds for the exporter."""
        if self._timer is not None:
            self._timer.cancel()
        last = self._export()
        ended = self._thread.submit(self._exporter.shutdown, timeout_millis=1000)
        wait_for([last, ended], timeout=_LAST_EXPORT_SECONDS)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _tick(self) -> None:
        if self._running is None or self._running.done():
            self._running = self._export()
        self._timer = self._loop.call_later(self._interval_s, self._tick)

    def _export(self) -> Future[None]:
        now_ns = self._clock.now_us() * 1000
        data = _data(self._meters.collect(), self._resource, self._start_ns, now_ns)
        return self._thread.submit(self._send, data)

    def _send(self, data: otlp.MetricsData) -> None:
        try:
            self._exporter.export(data)
        except Exception as error:  # noqa: BLE001 - an exporter's defect must not end the exports
            _log.warning("metrics not exported", exc_info=error)


def _data(
    families: list[Family], resource: Resource, start_ns: int, now_ns: int
) -> otlp.MetricsData:
    from opentelemetry.sdk.metrics import export as otlp
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = [_metric(family, start_ns, now_ns) for family in families]
    scope = otlp.ScopeMetrics(InstrumentationScope("tarn"), metrics, "")
    return otlp.MetricsData([otlp.ResourceMetrics(resource, [scope], "")])


def _metric(family: Family, start_ns: int, now_ns: int) -> otlp.Metric:
    from opentelemetry.sdk.metrics import export as otlp

    metric = family.metric
    total = otlp.AggregationTemporality.CUMULATIVE
    data: otlp.Sum | otlp.Gauge | otlp.Histogram
    if metric.kind is Kind.HISTOGRAM:
        distributions = [_distribution(metric, each, start_ns, now_ns) for each in family.series]
        data = otlp.Histogram(distributions, total)
    else:
        points = [
            otlp.NumberDataPoint(_labels(metric, each), start_ns, now_ns, cast("float", each.value))
            for each in family.series
        ]
        is_counter = metric.kind is Kind.COUNTER
        data = otlp.Sum(points, total, is_monotonic=True) if is_counter else otlp.Gauge(points)
    return otlp.Metric(metric.otlp_name, metric.help, metric.unit or "1", data)


def _distribution(
    metric: Metric, series: Series, start_ns: int, now_ns: int
) -> otlp.HistogramDataPoint:
    from opentelemetry.sdk.metrics import Exemplar as OtlpExemplar
    from opentelemetry.sdk.metrics import export as otlp

    histogram = cast("Histogram", series.value)

    def exemplar(each: Exemplar) -> OtlpExemplar:
        span, trace = int(each.span_id, 16), int(each.trace_id, 16)
        return OtlpExemplar({}, each.value, each.time_us * 1000, span, trace)

    return otlp.HistogramDataPoint(
        _labels(metric, series),
        start_ns,
        now_ns,
        count=sum(histogram.counts),
        sum=histogram.total,
        bucket_counts=list(histogram.counts),
        explicit_bounds=histogram.bounds,
        # As the SDK does for histograms whose extremes are not measured.
        min=math.inf,
        max=-math.inf,
        exemplars=[exemplar(each) for each in histogram.exemplars.values()],
    )


def _labels(metric: Metric, series: Series) -> dict[str, str]:
    return dict(zip(metric.labels, series.labels, strict=True))
