"""The tour of docs/user/versioning.md works when it is pasted into a shell, and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages_as_written import blocks_of, own_name, play, script_of
from running_tarn import RunningTarn

PAGE = Path(__file__).parents[2] / "docs" / "user" / "versioning.md"


def as_pattern(block: str) -> str:
    """An output of the page, of which `…` stands for ids and times that differ each time."""
    return re.escape(block).replace("…", "[^\n]+")


@pytest.mark.in_form("single")
def test_the_tour_of_versions_works_as_written(tarn: RunningTarn, tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (tour,) = re.findall(r"## The tour\n(.*?)\n## ", text, re.DOTALL)
    script = script_of(tour)
    for command in ("merge", "revert", "cherry-pick", "branch reset", "branch move", "reflog"):
        assert f"\ntarn {command} " in script, f"{command} is in the tour"
    # One name per form of Tarn; the reader's shell finds `tarn` by the tour's first line.
    repository = own_name("sales", tmp_path)
    script = script.replace("sales", repository)
    done = play(tarn, script, tmp_path)
    said = done.stdout.replace(repository, "sales")
    rest = said
    for kind, block in blocks_of(tour):
        if kind == "text":
            found = re.search(f"^{as_pattern(block)}", rest, re.MULTILINE)
            assert found, f"in this order, the tour does not print:\n{block}\nbut:\n{said}"
            rest = rest[found.end() :]
    assert "reports/summary.csv" in done.stderr, "the refused merge names the path in conflict"
    assert not list(tmp_path.iterdir()), "the tour cleans up"
