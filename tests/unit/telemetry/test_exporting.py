"""Exporters are chosen by the environment, and get the metrics as OTLP describes them."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricExportResult,
    MetricsData,
)
from tests.support.clock import ManualClock

from tarn.telemetry.exporting import exporting
from tarn.telemetry.meters import Exemplar, Meters
from tarn.telemetry.tracing import TRACEPARENT

CONSOLE = {"OTEL_METRICS_EXPORTER": "console"}


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Everything that the console exporter gets; it would write to the first test's standard output."""
    pages: list[dict[str, Any]] = []

    def export(_self: object, data: MetricsData, **_: object) -> MetricExportResult:
        pages.append(json.loads(data.to_json()))
        return MetricExportResult.SUCCESS

    monkeypatch.setattr(ConsoleMetricExporter, "export", export)
    return pages


def metrics_of(page: dict[str, Any]) -> dict[str, Any]:
    metrics = page["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    return {metric["name"]: metric for metric in metrics}


def test_nothing_is_exported_unless_the_environment_says_so(
    exported: list[dict[str, Any]],
) -> None:
    meters = Meters()
    meters.counter("gateway.sent").add()
    with (
        exporting("toy", meters, 1.0, random.Random(1), {}, ManualClock()) as tracing,
        tracing.span("rpc"),
    ):
        assert TRACEPARENT.get() == ""
    assert exported == []


@pytest.mark.parametrize("variable", ["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"])
def test_unknown_exporter_is_refused(variable: str) -> None:
    environ = {variable: "carrier-pigeon"}
    with (
        pytest.raises(ValueError, match="carrier-pigeon"),
        exporting("toy", Meters(), 1.0, random.Random(1), environ, ManualClock()),
    ):
        pass


def test_metrics_are_exported_at_the_end_with_kind_unit_and_exemplars(
    exported: list[dict[str, Any]],
) -> None:
    meters, clock = Meters(), ManualClock()
    meters.counter("gateway.sent").add(3)
    meters.sample("process.threads", lambda: 4)
    with exporting("toy", meters, 0.0, random.Random(1), CONSOLE, clock):
        duration = meters.histogram("rpc.duration", method="/a")
        duration.record(0.2)
        duration.exemplify(Exemplar("ab" * 16, "cd" * 8, 0.2, 1_500_000))

    (page,) = exported
    assert page["resource_metrics"][0]["resource"]["attributes"]["service.name"] == "toy"
    metrics = metrics_of(page)
    sent = metrics["tarn.gateway.sent"]
    assert (sent["unit"], sent["data"]["is_monotonic"]) == ("By", True)
    assert sent["data"]["data_points"][0]["value"] == 3
    threads = metrics["tarn.process.threads"]["data"]
    assert threads["data_points"][0]["value"] == 4
    assert "is_monotonic" not in threads
    (point,) = metrics["tarn.rpc.duration"]["data"]["data_points"]
    assert (point["count"], point["sum"], point["attributes"]) == (1, 0.2, {"method": "/a"})
    assert sum(point["bucket_counts"]) == 1
    assert len(point["bucket_counts"]) == len(point["explicit_bounds"]) + 1
    (exemplar,) = point["exemplars"]
    assert exemplar["trace_id"] == int("ab" * 16, 16)


async def test_metrics_are_exported_while_the_process_runs(
    exported: list[dict[str, Any]],
) -> None:
    meters = Meters()
    meters.counter("gateway.sent").add(3)
    environ = CONSOLE | {"OTEL_METRIC_EXPORT_INTERVAL": "10"}
    with exporting("toy", meters, 0.0, random.Random(1), environ, ManualClock()):
        while len(exported) < 2:  # noqa: ASYNC110 - a thread exports
            await asyncio.sleep(0.01)
