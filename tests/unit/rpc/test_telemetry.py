from __future__ import annotations

import json
import random
import re

import pytest

from tarn.rpc.process.telemetry import TRACEPARENT, Histogram, Meters, Tracing, exporting

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_value_at_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram([1.0, 2.0])
    for value in (0.5, 1.0, 1.5, 3.0):
        histogram.record(value)

    assert histogram.counts == [2, 1, 1]
    assert histogram.total == 6.0


def test_samples_accumulate_buckets() -> None:
    meters = Meters()
    histogram = meters.histogram("rpc.duration", method="/a")
    histogram.record(0.0002)
    histogram.record(100.0)

    samples = {labels["le"]: value for labels, value in meters.samples("rpc.duration.bucket")}

    assert samples["0.0001"] == 0
    assert samples["0.00025"] == 1
    assert samples["inf"] == 2
    assert list(meters.samples("rpc.duration.count")) == [({"method": "/a"}, 2)]


def test_same_name_and_attributes_are_one_counter() -> None:
    meters = Meters()
    meters.counter("failed", reason="A").add()
    meters.counter("failed", reason="A").add(2)
    meters.counter("failed", reason="B").add()

    assert [value for _, value in meters.samples("failed")] == [3, 1]


def test_nothing_is_traced_without_an_exporter() -> None:
    tracing = Tracing(None, 1.0, random.Random(1))
    with tracing.span("rpc", PARENT):
        assert TRACEPARENT.get() == ""


def test_nothing_is_exported_unless_the_environment_says_so() -> None:
    with exporting("toy", Meters(), 1.0, random.Random(1), {}) as tracing, tracing.span("rpc"):
        assert TRACEPARENT.get() == ""


def test_unknown_exporter_is_refused() -> None:
    environ = {"OTEL_TRACES_EXPORTER": "carrier-pigeon"}
    with (
        pytest.raises(ValueError, match="carrier-pigeon"),
        exporting("toy", Meters(), 1.0, random.Random(1), environ),
    ):
        pass


def test_sampled_parent_is_traced_and_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"OTEL_TRACES_EXPORTER": "console"}
    with exporting("toy", Meters(), 0.0, random.Random(1), environ) as tracing:
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
    span = json.loads(capsys.readouterr().out)
    assert span["name"] == "sampled"
    assert span["parent_id"] == "0xb7ad6b7169203331"
    assert span["resource"]["attributes"]["service.name"] == "toy"


def test_ratio_samples_about_that_many() -> None:
    environ = {"OTEL_TRACES_EXPORTER": "console"}
    traced = 0
    with exporting("toy", Meters(), 0.1, random.Random(1), environ) as tracing:
        for _ in range(300):
            with tracing.span("rpc"):
                traced += bool(TRACEPARENT.get())

    assert 15 <= traced <= 50


def test_meters_are_exported_by_callback(capsys: pytest.CaptureFixture[str]) -> None:
    meters = Meters()
    meters.counter("early").add(3)
    environ = {"OTEL_METRICS_EXPORTER": "console"}
    with exporting("toy", meters, 0.0, random.Random(1), environ):
        meters.histogram("late", method="/a").record(0.2)

    exported = json.loads(capsys.readouterr().out)
    metrics = exported["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    values = {metric["name"]: metric["data"]["data_points"] for metric in metrics}
    assert values["tarn.early"][0]["value"] == 3
    assert values["tarn.late.count"][0]["value"] == 1
    assert len(values["tarn.late.bucket"]) == 14
