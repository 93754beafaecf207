"""`otlp` sends traces and metrics to a real gRPC receiver, with the package that the images have."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from tests.support.clock import ManualClock

from tarn.telemetry.exporting import exporting
from tarn.telemetry.meters import Meters

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The requests that a collector on a free port has received."""
    requests: list[Any] = []

    def serve(request_type: Any, answer: Any) -> grpc.RpcMethodHandler[Any, Any]:
        def keep(request: Any, _context: object) -> Any:
            requests.append(request)
            return answer

        return grpc.unary_unary_rpc_method_handler(
            keep, request_type.FromString, lambda message: message.SerializeToString()
        )

    package = "opentelemetry.proto.collector"
    server = grpc.server(ThreadPoolExecutor(2))
    for name, request, answer in (
        ("trace.v1.TraceService", ExportTraceServiceRequest, ExportTraceServiceResponse()),
        ("metrics.v1.MetricsService", ExportMetricsServiceRequest, ExportMetricsServiceResponse()),
    ):
        handlers = {"Export": serve(request, answer)}
        generic = grpc.method_handlers_generic_handler(f"{package}.{name}", handlers)
        server.add_generic_rpc_handlers((generic,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    yield requests
    server.stop(None).wait()


def test_spans_and_metrics_reach_the_collector(received: list[Any]) -> None:
    environ = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "otlp"}
    meters = Meters()
    meters.counter("gateway.sent").add(7)
    with (
        exporting("toy", meters, 0.0, random.Random(1), environ, ManualClock()) as tracing,
        tracing.span("/service/Rpc", TRACE),
    ):
        pass
    traces = [each for each in received if isinstance(each, ExportTraceServiceRequest)]
    numbers = [each for each in received if isinstance(each, ExportMetricsServiceRequest)]
    (span,) = traces[0].resource_spans[0].scope_spans[0].spans
    assert (span.name, span.trace_id.hex()) == ("/service/Rpc", TRACE[3:35])
    metrics = numbers[-1].resource_metrics[0].scope_metrics[0].metrics
    sent = {each.name: each for each in metrics}["tarn.gateway.sent"]
    assert sent.sum.is_monotonic
    assert [point.as_double or point.as_int for point in sent.sum.data_points] == [7]
