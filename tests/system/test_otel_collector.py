"""A real OpenTelemetry Collector receives the traces and metrics of a running Tarn over OTLP.

Skipped where there is none; `make otlp` builds one (tools/otelcol).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from running_tarn import running_tarn

from tarn.telemetry.metric_table import LATENCY_SECONDS

CACHE = Path(os.environ.get("TARN_CACHE") or Path.home() / ".cache" / "tarn")
COLLECTOR = CACHE / "otelcol" / "otelcol"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CUMULATIVE = 2
CONFIG = """\
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
exporters: {{file: {{path: {output}, flush_interval: 100ms}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    traces: {{receivers: [otlp], exporters: [file]}}
    metrics: {{receivers: [otlp], exporters: [file]}}
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not COLLECTOR.exists(), reason="there is no collector: make otlp builds one"
    ),
]


class Received:
    """The collector's output: OTLP as JSON, a request on each line."""

    def __init__(self, output: Path) -> None:
        self._output = output

    def _items(self, kind: str, scope: str, items: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields each item with the name of its service."""
        text = self._output.read_text() if self._output.exists() else ""
        for line in text.splitlines(keepends=True):
            if not line.endswith("\n"):
                return
            for of in json.loads(line).get(kind, ()):
                service = attributes(of["resource"])["service.name"]
                for each in of[scope]:
                    assert each["scope"]["name"] == "tarn"
                    yield from ((service, item) for item in each[items])

    def spans(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Returns service and span by the span's id, of the one trace."""
        found = self._items("resourceSpans", "scopeSpans", "spans")
        return {span["spanId"]: (of, span) for of, span in found if span["traceId"] == TRACE}

    def metrics(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Returns the last state of each metric, by service and name."""
        found = self._items("resourceMetrics", "scopeMetrics", "metrics")
        return {(service, metric["name"]): metric for service, metric in found}


def attributes(of: dict[str, Any]) -> dict[str, Any]:
    """Returns the attributes of something in OTLP; integers are strings there."""
    return {each["key"]: next(iter(each["value"].values())) for each in of.get("attributes", ())}


@contextmanager
def collector(folder: Path) -> Iterator[tuple[str, Received]]:
    """Starts a collector; yields its endpoint and what it receives."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config, output = folder / "collector.yaml", folder / "received.json"
    config.write_text(CONFIG.format(port=port, output=output))
    command = [sys.executable, "-m", "tarn_cli.node.lifeline", str(os.getpid()), str(COLLECTOR)]
    with (folder / "collector.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--config", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        for _ in range(300):
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        else:
            raise AssertionError((folder / "collector.log").read_text()[-2000:])
        yield f"http://127.0.0.1:{port}", Received(output)
    finally:
        process.terminate()
        process.wait(20)


def path_to(spans: dict[str, tuple[str, dict[str, Any]]], span: dict[str, Any]) -> list[str]:
    """Returns services and names from the first span to this one."""
    service = spans[span["spanId"]][0]
    above = spans.get(span.get("parentSpanId", ""))
    return [*(path_to(spans, above[1]) if above else ()), f"{service}: {span['name']}"]


def test_a_collector_gets_spans_and_metrics_of_all_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector(tmp_path) as (endpoint, received):
        for name, value in {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
        }.items():
            monkeypatch.setenv(name, value)
        with running_tarn(tmp_path, "separate") as tarn:
            tarn.read_traced(TRACE, PARENT)
    # Every process has sent its last spans and numbers before it ended, and so has the collector.
    _check_spans(received.spans())
    _check_metrics(received.metrics())


def _check_spans(spans: dict[str, tuple[str, dict[str, Any]]]) -> None:
    (root,) = [span for _, span in spans.values() if span["name"] == "S3 GetObject"]
    assert root["parentSpanId"] == PARENT
    assert attributes(root)["http.response.status_code"] == "200"
    paths = [path_to(spans, span) for _, span in spans.values()]
    lookup = ["gateway: S3 GetObject", "graveler: /tarn.graveler.v1.EntryService/Operate"]
    assert [*lookup, "graveler: kv get_many"] in paths
    assert ["gateway: S3 GetObject", "gateway: block read"] in paths
    for _, span in spans.values():
        began, ended = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
        assert int(root["startTimeUnixNano"]) <= began <= ended <= int(root["endTimeUnixNano"])


def _check_metrics(metrics: dict[tuple[str, str], dict[str, Any]]) -> None:
    services = {service for service, _ in metrics}
    assert services >= {"gateway", "graveler", "auth"}
    duration = metrics["gateway", "tarn.gateway.duration"]
    assert duration["unit"] == "s"
    assert duration["histogram"]["aggregationTemporality"] == CUMULATIVE
    points = {attributes(each)["operation"]: each for each in duration["histogram"]["dataPoints"]}
    get = points["GetObject"]
    assert get["explicitBounds"] == list(LATENCY_SECONDS)
    assert sum(map(int, get["bucketCounts"])) == int(get["count"]) == 1
    assert 0 < get["sum"] < 60
    (exemplar,) = get["exemplars"]
    assert exemplar["traceId"] == TRACE
    assert exemplar["asDouble"] == get["sum"]
    sent = metrics["gateway", "tarn.gateway.sent"]["sum"]
    assert (sent["isMonotonic"], sent["aggregationTemporality"]) == (True, CUMULATIVE)
    (point,) = sent["dataPoints"]
    assert int(point["asInt"]) >= len(b"abc")
    assert int(point["startTimeUnixNano"]) < int(point["timeUnixNano"])
    assert "gauge" in metrics["graveler", "tarn.process.resident_memory"]
    assert "histogram" in metrics["graveler", "tarn.kv.duration"]
