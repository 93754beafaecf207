"""The table of metrics is well formed, and the documentation is made from it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tarn.telemetry.metric_table import TABLE, Kind, page

DOC = Path(__file__).parents[3] / "docs" / "operate" / "metrics.md"


def test_the_documentation_holds_the_table() -> None:
    assert page() in DOC.read_text(), "put the output of `python -m tarn.telemetry` into the page"


def test_names_are_unique_in_every_form() -> None:
    for names in (
        [metric.name for metric in TABLE],
        [metric.family for metric in TABLE],
        [metric.otlp_name for metric in TABLE],
    ):
        assert [name for name, count in Counter(names).items() if count > 1] == []


def test_names_and_labels_are_those_that_prometheus_accepts() -> None:
    for metric in TABLE:
        assert re.fullmatch(r"[a-z]+(\.[a-z]+(_[a-z]+)*)+", metric.name), metric.name
        # Endings that OpenMetrics reserves for the parts of counters and histograms.
        assert not metric.family.endswith(("_total", "_count", "_sum", "_bucket", "_created"))
        assert all(re.fullmatch(r"[a-z][a-z_]*", label) for label in metric.labels)
        assert not {"le", "quantile"} & set(metric.labels)


def test_the_unit_is_part_of_the_name_in_prometheus() -> None:
    names = {metric.name: metric.prometheus_name for metric in TABLE}
    assert names["kv.duration"] == "tarn_kv_duration_seconds"
    assert names["kv.failed"] == "tarn_kv_failed_total"
    assert names["gateway.sent"] == "tarn_gateway_sent_bytes_total"
    assert names["rpc.in_flight"] == "tarn_rpc_in_flight"


def test_histograms_have_ascending_buckets() -> None:
    for metric in TABLE:
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
        assert list(metric.buckets) == sorted(set(metric.buckets))
