"""Renders metrics for scrapers: Prometheus text 0.0.4, and OpenMetrics 1.0 with exemplars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tarn.telemetry.meters import Exemplar, Family, Histogram, Series
from tarn.telemetry.metric_table import Metric

__all__ = ["OPENMETRICS_TYPE", "PROMETHEUS_TYPE", "accepts_openmetrics", "render"]

OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def accepts_openmetrics(accept: str) -> bool:
    """Returns whether an Accept header asks for OpenMetrics."""
    return any(
        part.partition(";")[0].strip().lower() == "application/openmetrics-text"
        for part in accept.split(",")
    )


def render(families: Iterable[Family], *, openmetrics: bool) -> str:
    """Returns the page of all series; exemplars only in OpenMetrics, which alone can express them."""
    lines: list[str] = []
    for family in families:
        metric = family.metric
        name = metric.family if openmetrics else metric.prometheus_name
        lines.append(f"# HELP {name} {_help(metric.help)}")
        lines.append(f"# TYPE {name} {metric.kind.value}")
        for series in family.series:
            lines.extend(_lines(metric, series, openmetrics=openmetrics))
    if openmetrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def _lines(metric: Metric, series: Series, *, openmetrics: bool) -> Iterator[str]:
    labels = [
        f'{name}="{_value(value)}"'
        for name, value in zip(metric.labels, series.labels, strict=True)
    ]
    if not isinstance(series.value, Histogram):
        yield f"{metric.prometheus_name}{_braces(labels)} {_number(series.value)}"
        return
    seen = 0
    histogram = series.value
    for index, count in enumerate(histogram.counts):
        seen += count
        bound = _number(histogram.bounds[index]) if index < len(histogram.bounds) else "+Inf"
        exemplar = histogram.exemplars.get(index) if openmetrics else None
        shown = _braces([*labels, f'le="{bound}"'])
        yield f"{metric.family}_bucket{shown} {seen}{_exemplar(exemplar)}"
    yield f"{metric.family}_sum{_braces(labels)} {_number(histogram.total)}"
    yield f"{metric.family}_count{_braces(labels)} {seen}"


def _exemplar(exemplar: Exemplar | None) -> str:
    if exemplar is None:
        return ""
    seconds = f"{exemplar.time_us / 1_000_000:.3f}"
    return f' # {{trace_id="{exemplar.trace_id}"}} {_number(exemplar.value)} {seconds}'


def _braces(labels: list[str]) -> str:
    return f"{{{','.join(labels)}}}" if labels else ""


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) or value % 1 else f"{value:.1f}"


def _value(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
