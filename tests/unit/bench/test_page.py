"""The page of results is made only from the data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench.load.__main__ import HERE, output_folder, parsed, write_pages
from bench.load.page import plots, results_page
from bench.load.table import Goal, Origin, Results, Row

ORIGIN = Origin("2026-01-01", "abc", 1.0, "full", "2 cores")
GET = Row(
    "get",
    "GET 1 KiB, 32 connections",
    "single node, 8 workers, os",
    per_second=5000.0,
    ratio=0.25,
    yardstick="raw loop: 20,000/s",
)
COMMIT = Row("commit-1m", "commit in 1,000,000: 10,000 adjacent changes", GET.form, p50_ms=42.0)
PEER = json.loads((HERE / "results" / "lakefs.json").read_text())


def line(text: str, start: str) -> list[str]:
    """Returns the cells of a row of a table."""
    (found,) = (row for row in text.splitlines() if row.startswith(f"| {start} |"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_the_pages_are_those_of_the_data(tmp_path: Path) -> None:
    """A change of the data, or of their rendering, needs new pages: `--render` writes them."""
    write_pages(Results(HERE / "results" / "load.json"), tmp_path)
    names = ["RESULTS.md", "DETAILS.md", *(f"plots/{p.name}" for p in (HERE / "plots").iterdir())]
    assert sorted(names) == sorted(
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")
    )
    stale = [name for name in names if (tmp_path / name).read_text() != (HERE / name).read_text()]
    assert stale == [], "run `python -m bench.load --render`"


def test_a_figure_stands_beside_its_part_of_the_loop_and_the_peers() -> None:
    cells = line(results_page("m", [(ORIGIN, GET)], PEER), "GET, 32 connections")
    assert cells[:3] == ["GET, 32 connections", "5,000/s", "0.250"]
    assert cells[4:8] == ["8,100/s", f"{8100 / 112_000:.3f}", "18,800/s", f"{18_800 / 112_000:.3f}"]


def test_figures_that_were_not_measured_are_not_shown() -> None:
    text = results_page("m", [(ORIGIN, GET)], PEER)
    assert "plots/get.svg" in text
    assert "plots/put.svg" not in text
    assert "PUT, 32 connections" not in text
    assert "commit 10,000" not in text
    assert set(plots([(ORIGIN, GET)], PEER)) == {"small-requests.svg", "get.svg"}
    assert plots([(ORIGIN, COMMIT)], PEER).keys() == {"times.svg"}
    assert plots([], PEER) == {}


@pytest.mark.parametrize(
    "other",
    [
        replace(GET, failed=True),
        replace(GET, form="separate processes, os"),
        replace(GET, form="single node, 8 workers, fsync"),
        replace(GET, form="single node, 1 worker, own core, os"),
    ],
)
def test_a_failed_row_or_one_of_another_form_is_not_taken_for_it(other: Row) -> None:
    assert "GET, 32 connections" not in results_page("m", [(ORIGIN, other)], PEER)


@pytest.mark.parametrize(("bound", "said"), [(42, "met"), (41, "**missed**")])
def test_a_goal_is_told_with_its_verdict(bound: float, said: str) -> None:
    row = replace(COMMIT, goal=Goal(p50_ms_max=bound))
    text = results_page("m", [(ORIGIN, row)], PEER)
    assert line(text, "commit 10,000 changes in 1,000,000")[1:4] == [
        "42 ms",
        f"median ≤ {bound:g} ms: {said}",
        "100 ms",
    ]
    assert f"{int(bound == 42)} of 1 goals" in text


def test_every_figure_of_the_page_is_measured_by_a_case_and_every_peer_figure_is_shown() -> None:
    """A row whose case has another name now would silently vanish from the page."""
    text = (HERE / "RESULTS.md").read_text()
    shown = [row for row in text.splitlines() if row.startswith("| ")]
    made = [HERE / "results" / name for name in ("peer.md", "bulk.md")]
    beside = sum(each.read_text().count("\n| ") for each in made if each.exists())
    assert len(shown) == 2 + 18 + 1 + beside + len(PEER["published"])
    for figures in PEER["measured"].values():
        for values in figures.get("shipped", {}), figures.get("undelayed", {}):
            for name in {"p50_ms"} & values.keys():
                assert f"{values[name]:,.3g} ms" in text or f"{values[name]:,} ms" in text


@pytest.mark.parametrize(
    ("arguments", "is_result"),
    [
        ([], True),
        (["--cases", "get"], True),
        (["--quick"], False),
        (["--quick", "--cases", "get"], False),
        (["--scale", "0.01"], False),
    ],
)
def test_only_a_full_run_writes_the_pages_of_the_checkout(
    arguments: list[str], is_result: bool
) -> None:
    assert (output_folder(parsed(arguments)) == HERE) is is_result


@pytest.mark.parametrize("origin", [replace(ORIGIN, mode="quick"), replace(ORIGIN, scale=0.1)])
def test_a_trial_says_that_it_is_one(origin: Origin) -> None:
    assert "A trial" in results_page("m", [(origin, GET)], PEER)
    assert "A trial" not in results_page("m", [(ORIGIN, GET)], PEER)


def test_an_output_folder_that_is_named_is_used(tmp_path: Path) -> None:
    assert output_folder(parsed(["--quick", "--output", str(tmp_path)])) == tmp_path
