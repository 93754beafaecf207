"""Goals, merging of runs, and the table."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench.load.table import Goal, Origin, Results, Row, render

ROW = Row("get", "GET 1 KiB", "single node", ratio=0.3, cpu_us=50.0, p99_ms=5.0)
ORIGIN = Origin("2026-01-01", "abc", 1.0, "full")


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal(), None),
        (Goal(ratio_min=0.3), True),
        (Goal(ratio_min=0.31), False),
        (Goal(ratio_max=0.3), True),
        (Goal(ratio_max=0.29), False),
        (Goal(ratio_min=0.3, cpu_us_max=49), False),
        (Goal(ratio_min=0.3, cpu_us_max=50, p99_ms_max=5), True),
        (Goal(rss_mib_max=1), False),
    ],
)
def test_a_goal_is_met_when_every_bound_was_measured_and_holds(
    goal: Goal, met: bool | None
) -> None:
    assert replace(ROW, goal=goal).is_met is met


def test_a_failed_row_meets_no_goal() -> None:
    assert replace(ROW, goal=Goal(ratio_min=0.1), failed=True).is_met is False


def test_a_later_run_replaces_the_rows_of_its_cases_only(tmp_path: Path) -> None:
    file = tmp_path / "results" / "load.json"
    first = Results(file)
    first.replace("get", ORIGIN, [ROW, replace(ROW, what="GET 2 KiB")])
    first.replace("put", ORIGIN, [replace(ROW, case="put", what="PUT", goal=Goal(ratio_min=1))])
    first.save()
    second = Results(file)
    later = replace(ORIGIN, commit="def")
    second.replace("get", later, [replace(ROW, what="GET 3 KiB")])
    second.save()
    found = [
        (origin.commit, row.what, str(row.goal)) for origin, row in Results(file).of(["put", "get"])
    ]
    assert found == [("abc", "PUT", str(Goal(ratio_min=1))), ("def", "GET 3 KiB", "")]


def test_the_table_shows_goal_verdict_spread_and_notes() -> None:
    good = replace(
        ROW, goal=Goal(ratio_min=0.25), ratio_low=0.2, ratio_high=0.4, rounds=3, note="a note"
    )
    bad = replace(ROW, what="HEAD", goal=Goal(cpu_us_max=10))
    failed = Row("commit", "commit", note="exceeded its limit of 9 s", failed=True)
    text = render([(ORIGIN, good), (ORIGIN, bad), (ORIGIN, failed)])
    lines = {line.split(" | ")[0]: line for line in text.splitlines() if line.startswith("| ")}
    assert lines["| GET 1 KiB [1]"].endswith(f"| {Goal(ratio_min=0.25)} | yes |")
    assert "0.3 (0.2 to 0.4)" in lines["| GET 1 KiB [1]"]
    assert lines["| HEAD"].endswith("| **no** |")
    assert lines["| commit [2]"].endswith("| failed |")
    assert {
        "1. a note",
        "2. exceeded its limit of 9 s",
        "- 2026-01-01, commit abc, full: get, commit",
    } <= set(text.splitlines())


def test_rows_of_a_section_stand_in_a_table_of_their_own_with_their_own_notes() -> None:
    apart = replace(ROW, case="kv", what="set", note="of the store", store_cpu_us=1234.0)
    rows = [(ORIGIN, replace(ROW, note="of the first table")), (ORIGIN, apart)]
    first, title, second = render(rows, {"kv": "Elsewhere", "get": ""}).partition("## Elsewhere")
    assert title
    assert "| GET 1 KiB [1] |" in first
    assert "1. of the first table" in first
    assert "| set" not in first
    assert "metadata store" not in first
    assert "| set [1] |" in second
    assert "| 50 | 1,234 |" in second
    assert "1. of the store" in second
    assert "| GET" not in second


def test_a_section_without_rows_has_no_heading() -> None:
    assert "Elsewhere" not in render([(ORIGIN, ROW)], {"kv": "Elsewhere"})


def test_results_from_before_a_new_column_are_still_read(tmp_path: Path) -> None:
    file = tmp_path / "load.json"
    results = Results(file)
    results.replace("get", ORIGIN, [ROW])
    results.save()
    kept = json.loads(file.read_text())
    del kept["get"]["rows"][0]["store_cpu_us"]
    del kept["get"]["origin"]["machine"]
    file.write_text(json.dumps(kept))
    assert Results(file).of(["get"]) == [(ORIGIN, ROW)]


def test_a_trial_is_marked_in_every_row() -> None:
    text = render([(replace(ORIGIN, scale=0.01), ROW)])
    assert "| GET 1 KiB (scale 0.01) |" in text
    assert "trial" in text


def test_the_machine_is_that_of_the_data_not_the_one_that_renders() -> None:
    assert "Machine: a slide rule." in render([(replace(ORIGIN, machine="a slide rule"), ROW)])
