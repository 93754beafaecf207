"""A plugin of pytest that writes the ids of the tests that failed into a file (`--failed-to FILE`)."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failed-to", type=Path, help="write the ids of failed tests into this file")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--failed-to")
    if path is not None and not hasattr(config, "workerinput"):  # the workers of xdist report to it
        config.pluginmanager.register(_FailedTests(path))


class _FailedTests:
    """Writes down each test that failed, also in its set-up or end, as soon as it has: a run takes half an hour."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed: set[str] = set()
        path.write_text("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self._failed:
            self._failed.add(report.nodeid)
            with self._path.open("a") as file:
                file.write(f"{report.nodeid}\n")
