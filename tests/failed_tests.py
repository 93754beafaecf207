"""A plugin of pytest that writes the ids of the tests that failed into a file (`--failed-to FILE`).

A worker can also crash, by a signal in native code: of gRPC, of a driver, of Arrow. The tests that did this stand in
`crashed.txt` beside that file, too, and the stacks of each worker at its end in a file of `crashes/`.
"""

from __future__ import annotations

import faulthandler
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failed-to", type=Path, help="write the ids of failed tests into this file")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--failed-to")
    if path is None:
        return
    if hasattr(config, "workerinput"):
        stacks = path.parent / "crashes" / f"{config.workerinput['workerid']}.txt"
        config.pluginmanager.register(_Stacks(stacks))
    else:  # the workers of xdist report to it
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
            _append(self._path, report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """A hook of xdist."""
        _append(self._path.with_name("crashed.txt"), crashitem)


class _Stacks:
    """Has the stacks of a crash of this worker written into a file, and not among the dots of all tests."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_sessionstart(self) -> None:
        """Takes the place of pytest's own handler, which writes to standard error."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("w")
        faulthandler.enable(self._file)

    def pytest_unconfigure(self) -> None:
        """Nothing crashed."""
        faulthandler.disable()
        self._file.close()
        self._path.unlink()


def _append(path: Path, nodeid: str) -> None:
    with path.open("a") as file:
        file.write(f"{nodeid}\n")
