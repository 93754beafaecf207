"""A large commit of a running Tarn is built in a child process of the worker."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
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


@pytest.mark.usefixtures("paused")  # a compaction would fold the rows before the commit
def test_a_large_commit_is_built_below_a_worker(tarn: RunningTarn, tmp_path: Path) -> None:
    repository = tarn.new_repository()
    for number in range(ROWS):
        (tmp_path / f"{number:05}").touch()
    tarn.ok("fs", "upload", "-r", str(tmp_path), f"{repository}/main/large/")
    made = tarn.ok("--json", "commit", f"{repository}/main", "-m", "large").json
    assert made["added"] == ROWS
    # A compaction of an earlier test may have begun one below another worker.
    found = heavy_processes(tarn)
    assert found
    for heavy in found:
        assert heavy.nice() > psutil.Process(heavy.ppid()).nice()
    tarn.ok("fs", "stat", f"{repository}/{made['commit']}/large/00500")
