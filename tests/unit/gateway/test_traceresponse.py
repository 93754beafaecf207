"""Answers to traced requests tell the client its trace."""

from __future__ import annotations

import random

import pytest
from gateway_lake import GatewayLake
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tarn.telemetry.spans import SpanSink
from tarn.telemetry.tracing import Tracing

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def spans(lake: GatewayLake) -> InMemorySpanExporter:
    """The spans of requests that a client had traced; no other is."""
    exporter, rng = InMemorySpanExporter(), random.Random(1)
    sink = SpanSink(SimpleSpanProcessor(exporter), Resource.get_empty(), rng)
    lake.traces._tracing = Tracing(sink, 0.0, rng)
    return exporter


async def test_the_answer_of_a_traced_request_names_its_span(
    lake: GatewayLake, spans: InMemorySpanExporter
) -> None:
    headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    for key, status in (("AKIAADMIN", 200), ("AKIAUNKNOWN", 403)):
        spans.clear()
        reply = await lake.ask("GET", "/", headers=headers, key=key)
        assert reply.status == status
        span = next(each for each in spans.get_finished_spans() if each.name.startswith("S3"))
        assert span.context
        assert reply.headers["traceresponse"] == f"00-{TRACE}-{span.context.span_id:016x}-01"


async def test_other_answers_have_no_such_header(
    lake: GatewayLake, spans: InMemorySpanExporter
) -> None:
    unsampled = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-00"}
    for headers in ({}, unsampled):
        for key in ("AKIAADMIN", "AKIAUNKNOWN"):
            reply = await lake.ask("GET", "/", headers=headers, key=key)
            assert "traceresponse" not in reply.headers
    assert not spans.get_finished_spans()
