"""The tour in the README works when it is pasted into a shell."""

from __future__ import annotations

import re
from pathlib import Path

from pages_as_written import own_name, play
from running_tarn import RunningTarn

ROOT = Path(__file__).parents[2]


def test_the_five_minute_tour_works_as_written(tarn: RunningTarn, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (tour,) = re.findall(r"## Five minutes\n.*?```\n(.*?)```", text, re.DOTALL)
    assert tour.count("\ntarn ") >= 10, "the tour has its commands"
    # Each form of Tarn gets its own repository name; the first line of the tour puts `tarn` on the path.
    script = tour.replace("shop", own_name("shop", tmp_path))
    done = play(tarn, script, tmp_path)
    assert "id,price\n1,10\nid,price\n1,10\n2,99\n" in done.stdout
    assert "first prices" in done.stdout
