from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Sequence

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import (
    ConsoleSpanExporter,
    SimpleSpanProcessor,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.clock import ManualClock

from tarn.telemetry.calls import CallMeter
from tarn.telemetry.exporting import exporting
from tarn.telemetry.meters import Meters
from tarn.telemetry.spans import SpanSink
from tarn.telemetry.tracing import (
    FORCED_PER_SECOND_MAX,
    TRACEPARENT,
    Tracing,
    child_span,
    trace_id,
)

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_nothing_is_traced_without_an_exporter() -> None:
    tracing = Tracing(None, 1.0, random.Random(1))
    with tracing.span("rpc", PARENT):
        assert TRACEPARENT.get() == ""


def test_sampled_parent_is_traced_and_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    exported: list[ReadableSpan] = []

    def export(_self: object, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        exported.extend(spans)
        return SpanExportResult.SUCCESS

    monkeypatch.setattr(ConsoleSpanExporter, "export", export)
    environ = {"OTEL_TRACES_EXPORTER": "console"}
    with exporting("toy", Meters(), 0.0, random.Random(1), environ, ManualClock()) as tracing:
        with tracing.span("unsampled"):
            assert TRACEPARENT.get() == ""
        with tracing.span("unsampled", PARENT[:-1] + "0"):
            assert TRACEPARENT.get() == ""
        with tracing.span("damaged", "00-zz"):
            assert TRACEPARENT.get() == ""
        with tracing.span("sampled", PARENT):
            passed = TRACEPARENT.get()
        assert TRACEPARENT.get() == ""

    assert re.fullmatch(r"00-0af7651916cd43dd8448eb211c80319c-[0-9a-f]{16}-01", passed)
    (span,) = exported
    assert span.name == "sampled"
    assert span.parent
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert span.resource.attributes["service.name"] == "toy"


def test_ratio_samples_about_that_many() -> None:
    environ = {"OTEL_TRACES_EXPORTER": "console"}
    traced = 0
    with exporting("toy", Meters(), 0.1, random.Random(1), environ, ManualClock()) as tracing:
        for _ in range(300):
            with tracing.span("rpc"):
                traced += bool(TRACEPARENT.get())

    assert 15 <= traced <= 50


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def tracing_to(spans: InMemorySpanExporter, ratio: float, now: Callable[[], float]) -> Tracing:
    rng = random.Random(1)
    sink = SpanSink(SimpleSpanProcessor(spans), Resource.get_empty(), rng)
    return Tracing(sink, ratio, rng, now)


def parents(spans: InMemorySpanExporter) -> dict[str, str | None]:
    """Returns the name of each span's parent; None for a parent outside of this process."""
    found = spans.get_finished_spans()
    names = {span.context.span_id: span.name for span in found if span.context}
    return {span.name: names.get(span.parent.span_id) if span.parent else "" for span in found}


def test_spans_of_a_request_nest_and_end_in_order(spans: InMemorySpanExporter) -> None:
    request = tracing_to(spans, 0.0, lambda: 0.0).begin("S3", PARENT)
    assert request is not None
    assert request.trace_id == trace_id() == "0af7651916cd43dd8448eb211c80319c"
    with child_span("outer"), child_span("inner"):
        assert TRACEPARENT.get()[3:35] == request.trace_id
    with child_span("next"):
        pass
    request.end("S3 GetObject", {"tarn.request_id": "r1"})
    assert (TRACEPARENT.get(), trace_id()) == ("", "")
    with child_span("outside"):
        pass
    assert parents(spans) == {
        "S3 GetObject": None,
        "outer": "S3 GetObject",
        "inner": "outer",
        "next": "S3 GetObject",
    }
    root = next(span for span in spans.get_finished_spans() if span.name == "S3 GetObject")
    assert root.attributes == {"tarn.request_id": "r1"}
    assert root.parent
    assert f"{root.parent.span_id:016x}" == PARENT[36:52]


def test_a_store_call_of_a_sampled_request_is_a_span(spans: InMemorySpanExporter) -> None:
    meter = CallMeter("kv", "scan", Meters(), ManualClock())
    with meter.call():
        pass
    request = tracing_to(spans, 1.0, lambda: 0.0).begin("S3", "")
    assert request is not None
    with meter.call():
        pass
    with pytest.raises(StopAsyncIteration), meter.call():
        raise StopAsyncIteration
    request.end("S3", {})
    assert parents(spans) == {"S3": "", "kv scan": "S3"}
    # The end of a scan is no error.
    assert all(span.status.is_ok or span.status.is_unset for span in spans.get_finished_spans())


def test_clients_force_only_some_traces_per_second(spans: InMemorySpanExporter) -> None:
    second = [7.0]
    tracing = tracing_to(spans, 0.0, lambda: second[0])

    def traced() -> int:
        count = 0
        for _ in range(FORCED_PER_SECOND_MAX + 50):
            request = tracing.begin("S3", PARENT)
            if request is not None:
                count += 1
                request.end("S3", {})
        return count

    assert traced() == FORCED_PER_SECOND_MAX
    assert traced() == 0
    second[0] = 8.0
    assert traced() == FORCED_PER_SECOND_MAX
    # Between services the decision is made already.
    with tracing.span("rpc", PARENT):
        assert TRACEPARENT.get()


def test_nothing_begins_without_an_exporter() -> None:
    tracing = Tracing(None, 1.0, random.Random(1))
    assert not tracing.is_on
    assert tracing.begin("S3", PARENT) is None


async def test_tasks_of_other_requests_are_not_traced(spans: InMemorySpanExporter) -> None:
    tracing = tracing_to(spans, 0.0, lambda: 0.0)

    async def traced() -> None:
        with tracing.span("rpc", PARENT):
            await asyncio.sleep(0)
            with child_span("child"):
                await asyncio.sleep(0)

    async def untraced() -> None:
        for _ in range(5):
            with child_span("never"):
                await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(traced())
        group.create_task(untraced())
    assert parents(spans) == {"rpc": None, "child": "rpc"}
