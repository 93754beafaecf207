from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.clock import ManualClock

from tarn.core.quota import QuotaKind
from tarn.rpc.process.log import LogConfig, logging_to
from tarn.telemetry.meters import Meters
from tarn.telemetry.spans import SpanSink
from tarn.telemetry.tracing import Tracing, trace_id
from tarn_gateway.http import BodyReader, Exchange, Headers, Request
from tarn_gateway.operations.table import OPERATIONS
from tarn_gateway.traces import Traces


def exchange(status: int, request_id: str = "") -> Exchange:
    request = Request(
        "GET",
        b"/lake/main/a",
        b"X-Amz-Signature=s",
        Headers([]),
        BodyReader(0),
        request_id=request_id,
    )
    return Exchange(request, status, 5, 7, 0.0015, None)


@pytest.mark.parametrize(
    ("level", "access_log", "statuses"),
    [
        ("info", True, [200, 503]),
        ("info", False, [503]),
        ("warning", True, [503]),
        ("error", True, []),
    ],
)
def test_logging_follows_the_level_and_the_setting(
    level: str, access_log: bool, statuses: list[int], tmp_path: Path
) -> None:
    output = tmp_path / "log"
    with logging_to(LogConfig(output=str(output), level=level)):
        traces = Traces(access_log=access_log)
        for status in (200, 503):
            traces.end(exchange(status))

    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["status"] for line in lines] == statuses
    assert all(line["duration_ms"] == 1.5 and line["bytes_out"] == 5 for line in lines)


def test_requests_are_counted_by_operation_and_status_whether_logged_or_not() -> None:
    meters = Meters()
    traces = Traces(access_log=False, meters=meters)
    get = next(each for each in OPERATIONS if each.name == "GetObject")
    for number, status in enumerate((200, 200, 404)):
        answered = exchange(status, f"r{number}")
        traces.begin(answered.request).operation = get
        assert list(meters.samples("gateway.in_flight")) == [({}, 1)]
        traces.end(answered)
    traces.end(exchange(400))

    assert list(meters.samples("gateway.in_flight")) == [({}, 0)]
    assert {tuple(each.values()): count for each, count in meters.samples("gateway.requests")} == {
        ("GetObject", "200"): 2,
        ("GetObject", "404"): 1,
        ("none", "400"): 1,
    }
    durations = {each["operation"]: n for each, n in meters.samples("gateway.duration.count")}
    assert durations == {"GetObject": 3, "none": 1}
    assert list(meters.samples("gateway.sent")) == [({}, 20)]
    assert list(meters.samples("gateway.received")) == [({}, 28)]


def test_throttled_requests_are_told_from_failures() -> None:
    """Both are 503. One whose client left before the answer counts as that, not as throttled."""
    meters = Meters()
    traces = Traces(access_log=False, meters=meters)
    refused = (QuotaKind.REPOSITORY, "requests_per_second")
    for number, (status, by) in enumerate(((503, refused), (503, None), (0, refused))):
        answered = exchange(status, f"r{number}")
        trace = traces.begin(answered.request)
        trace.repository, trace.throttled_by = "lake", by
        traces.end(answered)

    assert {tuple(each.values()): count for each, count in meters.samples("gateway.throttled")} == {
        ("repository", "requests_per_second"): 1,
        ("repository", "bytes_per_second"): 0,
        ("user", "requests_per_second"): 0,
        ("user", "bytes_per_second"): 0,
    }
    statuses = {each["status"]: count for each, count in meters.samples("gateway.requests")}
    assert statuses == {"503": 2, "0": 1}
    of_lake = {each["outcome"]: count for each, count in meters.samples("repository.requests")}
    assert of_lake == {"ok": 0, "refused": 0, "failed": 2, "throttled": 1}
    (durations,) = {count for _, count in meters.samples("gateway.duration.count")}
    assert durations == 3


def test_requests_of_many_kinds_are_each_counted_with_their_own_numbers() -> None:
    meters = Meters()
    traces = Traces(access_log=False, meters=meters)
    kinds = [(op, repository) for op in OPERATIONS[:3] for repository in ("lake", "sea")]
    for number in range(300):
        operation, repository = kinds[number % len(kinds)]
        answered = exchange(200, f"r{number}")
        trace = traces.begin(answered.request)
        trace.operation, trace.repository, trace.user = operation, repository, "ann"
        trace.auth_s, trace.perform_s = 0.0001, 0.001
        traces.end(answered)

    counts = {each["operation"]: count for each, count in meters.samples("gateway.requests")}
    assert counts == {operation.name: 100 for operation in OPERATIONS[:3]}
    sums = {tuple(each.values()): total for each, total in meters.samples("gateway.phase.sum")}
    for operation in OPERATIONS[:3]:
        assert sums[operation.name, "auth"] == pytest.approx(0.01)
        assert sums[operation.name, "perform"] == pytest.approx(0.1)
        assert sums[operation.name, "send"] == pytest.approx(0.04)
    moved = {tuple(each.values()): total for each, total in meters.samples("repository.moved")}
    assert moved["sea", "sent"] == 150 * 5
    assert moved["lake", "received"] == 150 * 7


def test_a_slow_request_is_logged_with_its_phases(tmp_path: Path) -> None:
    meters = Meters()
    get = next(each for each in OPERATIONS if each.name == "GetObject")
    output = tmp_path / "log"
    with logging_to(LogConfig(output=str(output))):
        traces = Traces(access_log=False, meters=meters, slow_s=0.001)
        slow = exchange(200, "r1")
        trace = traces.begin(slow.request)
        trace.operation, trace.auth_s, trace.perform_s = get, 0.0002, 0.001
        traces.end(slow)
        traces = Traces(access_log=False, slow_s=0.002)
        traces.end(exchange(200))

    (line,) = [json.loads(line) for line in output.read_text().splitlines()]
    assert (line["event"], line["operation"]) == ("slow operation", "GetObject")
    assert (line["auth_ms"], line["perform_ms"], line["send_ms"]) == (0.2, 1.0, 0.3)
    sums = {labels["phase"]: value for labels, value in meters.samples("gateway.phase.sum")}
    assert sums == pytest.approx({"auth": 0.0002, "perform": 0.001, "send": 0.0003})


def test_a_traced_request_is_the_exemplar_of_its_bucket() -> None:
    meters, spans = Meters(), InMemorySpanExporter()
    rng = random.Random(1)
    sink = SpanSink(SimpleSpanProcessor(spans), Resource.get_empty(), rng)
    tracing = Tracing(sink, 1.0, rng)
    traces = Traces(access_log=False, meters=meters, tracing=tracing, clock=ManualClock())
    slow = exchange(200, "r1")
    trace = traces.begin(slow.request)
    trace.operation = next(each for each in OPERATIONS if each.name == "GetObject")
    assert trace_id()
    traces.end(slow)

    assert trace_id() == ""
    (span,) = spans.get_finished_spans()
    assert span.name == "S3 GetObject"
    assert span.attributes
    assert span.attributes["http.response.status_code"] == 200
    histogram = meters.histogram("gateway.duration", operation="GetObject")
    (exemplar,) = histogram.exemplars.values()
    assert span.context
    assert exemplar.trace_id == f"{span.context.trace_id:032x}"
    assert exemplar.value == 0.0015
