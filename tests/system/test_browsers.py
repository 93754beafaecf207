"""The page about browsers, on running services."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from running_tarn import BIN, RunningTarn, clean_environment

PAGE = Path(__file__).parents[2] / "docs" / "user" / "browsers.md"


def test_the_page_about_browsers_works_as_written(tarn: RunningTarn, tmp_path: Path) -> None:
    script = "".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    script = script.replace("$PWD/.venv/bin", str(BIN))
    name = f"web-{tmp_path.name[-20:].replace('_', '-')}".rstrip("-")
    script = re.sub(r"\bweb\b", name, script)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=clean_environment(TARN_SETTINGS=str(tarn.settings)),
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "https://app.example.com" in done.stdout
