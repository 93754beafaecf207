"""The documentation of findings."""

from __future__ import annotations

from pathlib import Path

from tarn.fsck.finding import Code

PAGE = Path(__file__).parents[4] / "docs" / "operate" / "fsck.md"


def test_the_page_and_the_code_agree_on_every_finding() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines()]
    told = [(row[0], row[1], row[3]) for row in rows if len(row) == 4 and row[0][0] == "`"]
    assert told == [(f"`{code.label}`", code.severity, code.remedy) for code in Code]
