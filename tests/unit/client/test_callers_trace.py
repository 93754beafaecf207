"""Calls of `tarn.client` carry the span of the program that makes them."""

from __future__ import annotations

import contextvars
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
from served_service import served_service

from tarn.rpc.client import peer
from tarn.telemetry.callers import callers_trace
from tarn.telemetry.tracing import TRACEPARENT

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")


def span(flags: int = 1) -> NonRecordingSpan:
    return NonRecordingSpan(SpanContext(10, 11, is_remote=False, trace_flags=TraceFlags(flags)))


async def test_the_current_span_is_sent_and_only_within_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    original = peer._metadata

    def metadata(call: Any) -> list[tuple[str, str]]:
        made = original(call)
        sent.append(dict(made).get("traceparent", ""))
        return made

    monkeypatch.setattr(peer, "_metadata", metadata)
    async with served_service(tmp_path) as served, served.client() as tarn:
        await tarn.get_branch("lake", "main")
        assert set(sent) == {""}
        sent.clear()
        with TracerProvider().get_tracer("program").start_as_current_span("load") as current:
            await tarn.get_branch("lake", "main")
        own = current.get_span_context()
        flags = f"{own.trace_flags:02x}"
        assert own.trace_flags.sampled
        assert sent == [f"00-{own.trace_id:032x}-{own.span_id:016x}-{flags}"]
        await tarn.get_branch("lake", "main")
        assert sent[1:] == [""]
    assert TRACEPARENT.get() == ""


async def test_the_blocking_client_sends_the_span_of_its_callers_thread() -> None:
    """It hands the work to its own thread together with the context of the caller."""

    async def seen() -> str:
        with callers_trace():
            return TRACEPARENT.get()

    from tarn.client.sync_client import _LoopThread

    thread = _LoopThread()
    try:
        with use_span(span()):
            assert thread.run(seen()) == f"00-{10:032x}-{11:016x}-01"
        assert thread.run(seen()) == ""
    finally:
        thread.close(_nothing())


async def _nothing() -> None:
    """The last work of a loop."""


async def test_a_span_that_is_not_sampled_is_passed_on_as_such() -> None:
    with use_span(span(flags=0)), callers_trace():
        assert TRACEPARENT.get() == f"00-{10:032x}-{11:016x}-00"


async def test_a_span_of_the_service_itself_goes_first() -> None:
    def within() -> str:
        TRACEPARENT.set("00-of-the-service-01")
        with use_span(span()), callers_trace():
            return TRACEPARENT.get()

    assert contextvars.copy_context().run(within) == "00-of-the-service-01"
