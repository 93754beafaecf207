"""Which failures of `make test` may run once more, and what the run says of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests import run
from tests.run import TESTS_FAILED, TRIED_TWICE_MAX, main, may_run_again

SYSTEM = "tests/system/test_node.py::test_a"
UNIT = "tests/unit/test_run.py::test_b"


def test_only_a_few_tests_with_real_processes_run_again() -> None:
    assert may_run_again([SYSTEM, "tests/crash/test_disk.py::test_c"], [])
    assert may_run_again([SYSTEM, UNIT], [UNIT])
    assert not may_run_again([], [])
    assert not may_run_again([SYSTEM, UNIT], [SYSTEM])
    assert not may_run_again([SYSTEM] * (TRIED_TWICE_MAX + 1), [SYSTEM])


class Runs:
    """Runs of pytest with known ends: the ids that fail, for each run, and its exit status."""

    def __init__(self, folder: Path, *ends: tuple[int, list[str]]) -> None:
        self.folder = folder
        self.ends = list(ends)
        self.commands: list[list[str]] = []

    def run(self, command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        self.commands.append(command)
        status, failed = self.ends.pop(0)
        (self.folder / "failed.txt").write_text("".join(f"{each}\n" for each in failed))
        return subprocess.CompletedProcess(command, status)


@pytest.mark.parametrize(
    ("ends", "status", "flaky"),
    [
        ([(0, [])], 0, None),
        ([(TESTS_FAILED, [UNIT])], TESTS_FAILED, None),
        ([(TESTS_FAILED, [SYSTEM, UNIT])], TESTS_FAILED, None),
        ([(2, [SYSTEM])], 2, None),
        ([(TESTS_FAILED, [SYSTEM]), (0, [])], 0, [SYSTEM]),
        ([(TESTS_FAILED, [SYSTEM]), (TESTS_FAILED, [SYSTEM])], TESTS_FAILED, []),
        ([(TESTS_FAILED, [SYSTEM]), (4, [])], 4, None),
    ],
)
def test_a_run_passes_only_if_every_failure_passes_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ends: list[tuple[int, list[str]]],
    status: int,
    flaky: list[str] | None,
) -> None:
    runs = Runs(tmp_path, *ends)
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    monkeypatch.setattr(subprocess, "run", runs.run)
    monkeypatch.setenv("TARN_TEST_SLOWNESS", "1")
    assert main(["-k", "a"]) == status
    assert not runs.ends
    assert runs.commands[0][-2:] == ["-k", "a"]
    assert [command[-3:] for command in runs.commands[1:]] in ([], [["-n", "0", SYSTEM]])
    listed = tmp_path / "flaky.txt"
    assert (listed.read_text().splitlines() if listed.exists() else None) == flaky
    assert [f"FLAKY {each}" in capsys.readouterr().out for each in flaky or []] == [
        True for _ in flaky or []
    ]


def test_failed_tests_and_seconds_are_written_to_files(tmp_path: Path) -> None:
    """By the real pytest, on two workers: of a call, a set-up and an end."""
    test = tmp_path / "test_it.py"
    test.write_text(
        "import pytest\n"
        "@pytest.fixture\n"
        "def broken():\n    raise ValueError\n"
        "@pytest.fixture\n"
        "def ends_badly():\n    yield\n    raise ValueError\n"
        "def test_good(): pass\n"
        "def test_bad(): assert 0\n"
        "def test_set_up(broken): pass\n"
        "def test_end(ends_badly): pass\n"
        "@pytest.mark.parametrize('a', ['x@y'])\n"
        "def test_at(a): assert 0\n"
    )
    failed = tmp_path / "failed.txt"
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup"]
    options = ["-p", "no:cacheprovider", "-p", "tests.failed_tests", "--failed-to", str(failed)]
    seconds = tmp_path / "seconds.txt"
    options += ["-p", "tests.where_time_goes", "--seconds-to", str(seconds)]
    done = subprocess.run(
        [*command, *options, str(test)], cwd=root, capture_output=True, check=False
    )
    assert done.returncode == TESTS_FAILED, done.stdout.decode()
    names = {line.rpartition("::")[2] for line in failed.read_text().splitlines()}
    assert names == {"test_bad", "test_set_up", "test_end", "test_at[x@y]"}
    group, none, file = seconds.read_text().splitlines()
    assert (group.split(maxsplit=1)[1], none) == ("each for itself", "")
    assert file.endswith("test_it.py")
    assert f"  {file.split(maxsplit=1)[1]}" in done.stdout.decode()


@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_whose_worker_crashes_ends_and_shows_the_stacks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    workers: int,
) -> None:
    """xdist alone hands on what the worker had finished, and waits for ever."""
    first = tmp_path / "crashed before"
    test = tmp_path / "test_it.py"
    (tmp_path / "conftest.py").write_text("from tests.workers import pytest_xdist_make_scheduler\n")
    test.write_text(
        "import os, pathlib, time\n"
        "import pytest\n"
        "@pytest.mark.parametrize('number', range(24))\n"
        "def test_it(number):\n"
        "    time.sleep(0.02)\n"
        f"    first = pathlib.Path({str(first)!r})\n"
        "    if number == 16 and not first.exists():\n"
        "        first.touch()\n"
        "        os.abort()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(run.ROOT))
    monkeypatch.setattr(run, "WORKERS", workers)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    monkeypatch.setenv("TARN_TEST_SLOWNESS", "1")
    assert main(["-q", "-p", "no:cacheprovider", str(test)]) == 0
    printed = capfd.readouterr().out
    assert "FLAKY test_it.py::test_it[16]" in printed
    assert "Fatal Python error: Aborted" in printed
    assert "line 9 in test_it" in printed
