"""The page about pull requests works when it is pasted into a shell, and prints what the page says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from running_tarn import BIN, RunningTarn, clean_environment

PAGE = Path(__file__).parents[2] / "docs" / "user" / "pull-requests.md"


@pytest.mark.in_form("single")
def test_the_page_about_pull_requests_works_as_written(tarn: RunningTarn, tmp_path: Path) -> None:
    blocks = re.findall(r"```(sh|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    script = "".join(block for kind, block in blocks if kind == "sh")
    # Names of its own in the Tarn that tests share.
    repository = f"pulls-{tmp_path.name[-20:].replace('_', '-')}".rstrip("-")
    script = script.replace("$PWD/.venv/bin", str(BIN))
    script = re.sub(r"\blake\b", repository, script)
    script = re.sub(r"(create|--user) ben\b", rf"\1 ben-of-{repository}", script)
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
    rest = done.stdout.replace(f"ben-of-{repository}", "ben").replace(repository, "lake")
    for block in (block for kind, block in blocks if kind == "text"):
        for line in block.splitlines():
            pattern = re.escape(line).replace("…", "[^\n]+")
            found = re.search(f"^{pattern} *$", rest, re.MULTILINE)
            assert found, f"{line!r} is not in {rest}"
            rest = rest[found.end() :]
    assert not list(tmp_path.iterdir()), "the session cleans up"
