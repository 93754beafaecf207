"""The dashboard and the alerts use only metrics and labels of the table."""

from __future__ import annotations

import re

import pytest
from dashboards import alerts, expressions, metric_names, panels

from tarn.telemetry.metric_table import TABLE, Kind

METRICS = {metric.prometheus_name: metric for metric in TABLE}
SCRAPED = {"job", "instance", "le"}
"""Labels that Prometheus adds, and that of buckets."""
NOT_SHOWN = {"tarn_process_clock_seconds", "tarn_process_threads"}
"""For `tarn doctor`, and for a look at one process."""
QUERIES = dict(enumerate(expressions()))


@pytest.mark.parametrize("number", QUERIES)
def test_every_metric_exists(number: int) -> None:
    place, query = QUERIES[number]
    names = metric_names(query)
    assert names or "up{" in query, place
    assert names <= METRICS.keys(), place


@pytest.mark.parametrize("number", QUERIES)
def test_every_label_is_one_of_the_metrics_of_the_query(number: int) -> None:
    place, query = QUERIES[number]
    labels = {label for name in metric_names(query) for label in METRICS[name].labels}
    used = set(re.findall(r"[{,]\s*([a-z_]+)\s*(?:=~|!~|!=|=)", query))
    for group in re.findall(r"by \(([^)]*)\)", query):
        used |= {label.strip() for label in group.split(",")}
    assert used <= labels | SCRAPED, place


@pytest.mark.parametrize("number", QUERIES)
def test_counters_are_read_as_rates_and_histograms_by_their_parts(number: int) -> None:
    place, query = QUERIES[number]
    for name in metric_names(query):
        if METRICS[name].kind is Kind.COUNTER:
            assert re.search(rf"(rate|increase)\({name}\b", query), place
        elif METRICS[name].kind is Kind.HISTOGRAM:
            assert re.search(rf"rate\({name}_(bucket|sum|count)\b", query), place
        else:
            assert not re.search(rf"(rate|increase)\({name}\b", query), place


@pytest.mark.parametrize("number", QUERIES)
def test_brackets_of_each_query_are_balanced(number: int) -> None:
    place, query = QUERIES[number]
    open_ones: list[str] = []
    for each in re.sub(r'"[^"]*"', "", query):
        if each in "([{":
            open_ones.append({"(": ")", "[": "]", "{": "}"}[each])
        elif each in ")]}":
            assert open_ones, place
            assert open_ones.pop() == each, place
    assert not open_ones, place


def test_every_metric_is_in_a_panel_or_an_alert() -> None:
    used = {name for _, query in QUERIES.values() for name in metric_names(query)}
    assert METRICS.keys() - used == NOT_SHOWN


def test_the_durations_of_requests_show_exemplars() -> None:
    """No other histogram has them (`docs/operate/metrics.md`), and Grafana asks only for those of marked queries."""
    found = {
        name
        for panel in panels()
        for target in panel["targets"]
        if target.get("exemplar") is True
        for name in metric_names(target["expr"])
    }
    assert found == {"tarn_gateway_duration_seconds"}


def test_legends_and_texts_use_labels_of_their_query() -> None:
    for panel in panels():
        for target in panel["targets"]:
            legend = set(re.findall(r"{{([a-z_]+)}}", target["legendFormat"]))
            labels = {
                label for name in metric_names(target["expr"]) for label in METRICS[name].labels
            }
            assert legend <= labels | SCRAPED, panel["title"]
    for rule in alerts():
        named = set(re.findall(r"\$labels\.([a-z_]+)", rule["annotations"]["summary"]))
        labels = {label for name in metric_names(rule["expr"]) for label in METRICS[name].labels}
        assert named <= labels | SCRAPED, rule["alert"]


def test_every_alert_says_what_to_do() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names) >= 10
    for rule in alerts():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["action"]


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in panels()}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
