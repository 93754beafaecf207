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
    """Collects the tests that failed, also in their set-up or end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        self._path.write_text("".join(f"{each}\n" for each in self._failed))
