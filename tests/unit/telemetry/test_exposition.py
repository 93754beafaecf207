"""The page `/metrics` in both formats, read by a strict parser that is independent of the renderer."""

from __future__ import annotations

import re

import pytest

from tarn.telemetry.exposition import accepts_openmetrics, render
from tarn.telemetry.meters import Exemplar, Meters

LABEL = r'[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(
    rf"(?P<name>[a-z_]+)(?:\{{(?P<labels>{LABEL}(?:,{LABEL})*)\}})? (?P<value>\S+)"
    r'(?P<exemplar> # \{trace_id="[0-9a-f]{32}"\} \S+ \d+\.\d{3})?'
)


def meters() -> Meters:
    made = Meters()
    duration = made.histogram("kv.duration", operation="scan")
    for value in (0.0002, 0.0002, 0.3, 100.0):
        duration.record(value)
    duration.exemplify(Exemplar("ab" * 16, "cd" * 8, 0.3, 1_500_000))
    made.counter("kv.failed", operation="scan", reason='a "b"\\\n').add(3)
    made.sample("process.threads", lambda: 4)
    made.sample("process.cpu", lambda: 1.25)
    return made


def parsed(text: str) -> tuple[dict[str, str], dict[tuple[str, str], float], list[str]]:
    """Returns types by family, values by name and labels, and exemplars; checks every line."""
    types: dict[str, str] = {}
    values: dict[tuple[str, str], float] = {}
    exemplars = []
    for line in text.rstrip("\n").split("\n"):
        if line.startswith("# HELP "):
            assert re.fullmatch(r"# HELP [a-z_]+ .+", line)
        elif line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in types
            types[name] = kind
        elif line != "# EOF":
            found = SAMPLE.fullmatch(line)
            assert found, line
            key = found["name"], found["labels"] or ""
            assert key not in values
            values[key] = float(found["value"].replace("+Inf", "inf"))
            if found["exemplar"]:
                exemplars.append(line)
    return types, values, exemplars


@pytest.mark.parametrize("openmetrics", [False, True])
def test_every_line_parses_and_values_are_exact(openmetrics: bool) -> None:
    types, values, _ = parsed(render(meters().collect(), openmetrics=openmetrics))
    assert values["tarn_kv_failed_total", 'operation="scan",reason="a \\"b\\"\\\\\\n"'] == 3
    assert values["tarn_process_threads", ""] == 4
    assert values["tarn_process_cpu_seconds_total", ""] == 1.25
    duration = "tarn_kv_duration_seconds"
    assert values[f"{duration}_count", 'operation="scan"'] == 4
    assert values[f"{duration}_sum", 'operation="scan"'] == pytest.approx(100.3004)
    buckets = {key[1]: value for key, value in values.items() if key[0] == f"{duration}_bucket"}
    assert buckets['operation="scan",le="0.0001"'] == 0
    assert buckets['operation="scan",le="0.00025"'] == 2
    assert buckets['operation="scan",le="0.5"'] == 3
    assert buckets['operation="scan",le="+Inf"'] == 4
    assert types[duration] == "histogram"
    assert types["tarn_process_threads"] == "gauge"


def test_counters_have_the_family_name_of_the_format() -> None:
    plain, _, _ = parsed(render(meters().collect(), openmetrics=False))
    opened, _, _ = parsed(render(meters().collect(), openmetrics=True))
    assert "tarn_kv_failed_total" in plain
    assert "tarn_kv_failed" not in plain
    assert "tarn_kv_failed" in opened
    assert "tarn_kv_failed_total" not in opened


def test_only_openmetrics_has_exemplars_and_an_end() -> None:
    plain = render(meters().collect(), openmetrics=False)
    assert "trace_id" not in plain
    assert "# EOF" not in plain
    opened = render(meters().collect(), openmetrics=True)
    assert opened.endswith("\n# EOF\n")
    (exemplar,) = parsed(opened)[2]
    expected = 'le="0.5"} 3 # {trace_id="' + "ab" * 16 + '"} 0.3 1.500'
    assert exemplar.endswith(expected)


@pytest.mark.parametrize(
    ("accept", "is_openmetrics"),
    [
        ("", False),
        ("text/plain", False),
        ("*/*", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1", True),
        ("text/plain, Application/OpenMetrics-Text; version=1.0.0", True),
        ("application/openmetrics-textual", False),
    ],
)
def test_the_accept_header_selects_the_format(accept: str, is_openmetrics: bool) -> None:
    assert accepts_openmetrics(accept) is is_openmetrics
