"""A plugin of pytest that shows where the time of a run goes: seconds of each file, and of each group of a worker.

Tests of one group run on one worker, one after another (`tests/groups.py`). So the longest group, or half of all
seconds on two workers, bounds the run from below.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.groups import group_of

_SHOWN = 30
_GROUPS = 6


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seconds-to", type=Path, help="write the seconds of each file into this file"
    )


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--seconds-to")
    if path is not None and not hasattr(config, "workerinput"):  # the workers of xdist report to it
        config.pluginmanager.register(_Seconds(path))


def rows_of(seconds: Mapping[str, float]) -> list[str]:
    """One line for each name, the longest first."""
    ordered = sorted(seconds.items(), key=lambda each: -each[1])
    return [f"{spent:8.1f}  {name}" for name, spent in ordered]


class _Seconds:
    """Adds up set-up, call and end of each test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: defaultdict[str, float] = defaultdict(float)
        self._groups: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        group = group_of(report.nodeid)
        self._files[file] += report.duration
        self._groups["each for itself" if group == report.nodeid else group] += report.duration

    def pytest_sessionfinish(self) -> None:
        parts = [*rows_of(self._groups), "", *rows_of(self._files)]
        self._path.write_text("".join(f"{each}\n" for each in parts))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = sum(self._files.values())
        terminalreporter.section(f"{total:.0f} s in tests, by group and by file")
        for each in (*rows_of(self._groups)[:_GROUPS], "", *rows_of(self._files)[:_SHOWN]):
            terminalreporter.write_line(each)
