"""The tour in the README works when it is pasted into a shell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from running_tarn import BIN, RunningTarn, clean_environment

ROOT = Path(__file__).parents[2]


def test_the_five_minute_tour_works_as_written(tarn: RunningTarn, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (tour,) = re.findall(r"## Five minutes\n.*?```\n(.*?)```", text, re.DOTALL)
    assert tour.count("\ntarn ") >= 10, "the tour has its commands"
    # Each form of Tarn gets its own repository name; the first line of the tour puts `tarn` on the path.
    script = tour.replace("shop", f"shop-{tmp_path.name[-20:].replace('_', '-')}".rstrip("-"))
    script = script.replace("$PWD/.venv/bin", str(BIN))
    environment = clean_environment(TARN_SETTINGS=str(tarn.settings))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "id,price\n1,10\nid,price\n1,10\n2,99\n" in done.stdout
    assert "first prices" in done.stdout
