"""Runs the tests as `make test` does: `python -m tests.run [ARGUMENTS OF PYTEST]`.

Tests that start real processes depend on how much of the machine they get. So those that fail run once more, alone,
after all others; what passes only then is printed as FLAKY and listed in `.test-run/flaky.txt`, to be mended. So does a
test whose process crashed in native code; the run prints the stacks of the crash. A test of any other kind never runs
twice: it fails for a reason, and the reason is found.

`.test-run/seconds.txt` tells where the time of the run went, by group of a worker and by file.

Time limits of tests grow with a factor that is measured at the start (`tests/harness/slowness.py`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".test-run"
TRIED_TWICE = ("tests/system/", "tests/crash/")
TRIED_TWICE_MAX = 10
"""With more failures than this, the change is to blame and not the machine."""
WORKERS = (os.cpu_count() or 1) + 1
"""One more than processors: tests of running services wait for a part of their time."""
TESTS_FAILED = 1
"""The exit status of pytest if it ran to its end and tests failed."""


def main(arguments: Sequence[str]) -> int:
    """Runs pytest, and once more for failures that may be the machine's; returns the exit status."""
    from slowness import VARIABLE, measured

    FOLDER.mkdir(exist_ok=True)
    for name in ("failed.txt", "crashed.txt", "flaky.txt"):
        (FOLDER / name).unlink(missing_ok=True)
    shutil.rmtree(FOLDER / "crashes", ignore_errors=True)
    factor = os.environ.get(VARIABLE) or f"{measured():.2f}"
    os.environ[VARIABLE] = factor
    # Some machines set it. A run starts a thousand processes; without byte code each compiles all that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    _say(f"time limits of tests are {factor} times those of an idle machine of reference")
    seconds = ("-p", "tests.where_time_goes", "--seconds-to", str(FOLDER / "seconds.txt"))
    status = _pytest(
        "-n", str(WORKERS), "--dist", "loadgroup", "--durations=40", *seconds, *arguments
    )
    failed = _listed("failed.txt")
    _say_crashes()
    if status != TESTS_FAILED or not may_run_again(failed, _listed("crashed.txt")):
        return status
    _say(f"{len(failed)} tests with real processes failed or crashed; each runs once more, alone")
    status = _pytest("-n", "0", *failed)
    failed_twice = _listed("failed.txt") if status else []
    flaky = [each for each in failed if each not in failed_twice]
    if status in (0, TESTS_FAILED):
        (FOLDER / "flaky.txt").write_text("".join(f"{each}\n" for each in flaky))
        for each in flaky:
            _say(f"FLAKY {each}: failed, and passed when it ran alone")
    return status


def may_run_again(failed: Sequence[str], crashed: Sequence[str]) -> bool:
    """Whether a run whose only failures are these ones may be the machine's fault, or that of native code."""
    return 0 < len(failed) <= TRIED_TWICE_MAX and all(
        each.startswith(TRIED_TWICE) or each in crashed for each in failed
    )


def _say_crashes() -> None:
    for each in sorted((FOLDER / "crashes").glob("*.txt")):
        stacks = each.read_text().splitlines()
        _say(f"CRASHED worker {each.stem}; its stacks, from {each}:")
        _say("\n".join(line for line in stacks if not line.startswith("Extension modules:")))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _pytest(*arguments: str) -> int:
    (FOLDER / "failed.txt").unlink(missing_ok=True)
    plugin = ("-p", "tests.failed_tests", "--failed-to", str(FOLDER / "failed.txt"))
    command = [sys.executable, "-m", "pytest", *plugin]
    return subprocess.run([*command, *arguments], cwd=ROOT, check=False).returncode


def _listed(name: str) -> list[str]:
    path = FOLDER / name
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests" / "harness"))
    sys.exit(main(sys.argv[1:]))
