"""Pages for users, pasted into a shell: each session of a page works, and prints what the page says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from running_tarn import BIN, RunningTarn, clean_environment
from slowness import scaled

__all__ = ["assert_printed", "blocks_of", "own_name", "play", "script_of"]


def blocks_of(text: str) -> list[tuple[str, str]]:
    """Returns the blocks of a page in order: their kind, `sh` (commands) or `text` (what they print), and content."""
    return re.findall(r"```(sh|text)\n(.*?)```", text, re.DOTALL)


def script_of(text: str) -> str:
    """Returns all commands of a page."""
    return "".join(block for kind, block in blocks_of(text) if kind == "sh")


def own_name(stem: str, folder: Path) -> str:
    """Returns a name for this test in the Tarn that tests share, made of its folder."""
    return f"{stem}-{folder.name[-20:].replace('_', '-')}".rstrip("-")


def play(tarn: RunningTarn, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Plays commands in an empty folder, for the administrator of a Tarn; fails with the first that fails."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace("$PWD/.venv/bin", str(BIN))],
        cwd=folder,
        env=clean_environment(TARN_SETTINGS=str(tarn.settings)),
        capture_output=True,
        text=True,
        timeout=scaled(170),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def assert_printed(text: str, printed: str) -> None:
    """Compares what a page says is printed, line by line in this order; `…` stands for what differs each time."""
    rest = printed
    for block in (block for kind, block in blocks_of(text) if kind == "text"):
        for line in block.splitlines():
            pattern = re.escape(line).replace("…", "[^\n]+")
            found = re.search(f"^{pattern} *$", rest, re.MULTILINE)
            assert found, f"{line!r} is not in {rest}"
            rest = rest[found.end() :]
