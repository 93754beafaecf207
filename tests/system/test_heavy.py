"""A large commit of a running Tarn is built in a child process of the worker."""

from __future__ import annotations

from pathlib import Path

import psutil
from running_tarn import RunningTarn

from tarn_graveler.heavy.builder import HeavyLimits

ROWS = HeavyLimits().rows_here + 1


def heavy_processes(tarn: RunningTarn) -> list[psutil.Process]:
    """Returns the child processes of the workers."""
    return [
        child
        for pid in tarn.state()["processes"].values()
        for child in psutil.Process(pid).children()
        if "tarn_graveler.heavy" in child.cmdline()
    ]


def test_a_large_commit_is_built_below_a_worker(own_tarn: RunningTarn, tmp_path: Path) -> None:
    tarn = own_tarn
    tarn.ok("compact", "pause", "--minutes", "30")  # a compaction would fold the rows
    repository = tarn.new_repository()
    files = tmp_path / "files"
    files.mkdir()
    for number in range(ROWS):
        (files / f"{number:05}").touch()
    tarn.ok("fs", "upload", "-r", str(files), f"{repository}/main/large/")
    made = tarn.ok("--json", "commit", f"{repository}/main", "-m", "large").json
    assert made["added"] == ROWS
    (heavy,) = heavy_processes(tarn)
    assert heavy.nice() > psutil.Process(heavy.ppid()).nice()
    tarn.ok("fs", "stat", f"{repository}/{made['commit']}/large/00500")
