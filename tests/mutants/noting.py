"""A pytest plugin that writes each test's result to a file: name, seconds, result, separated by tabs."""

import os
from pathlib import Path
from typing import Final

import pytest
from hypothesis import Phase, settings

__all__ = ["PROFILE", "TIMES_ENV"]

TIMES_ENV: Final = "TARN_MUTANTS_TIMES"

# The examples of `make test`, without minimising: one failure is enough.
PROFILE: Final = "mutants"
settings.register_profile(
    PROFILE,
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
    phases=(Phase.explicit, Phase.generate),
)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Records a report; setup and teardown only if they fail or skip."""
    target = os.environ.get(TIMES_ENV)
    if target is None or (report.when != "call" and report.passed):
        return
    text = "timeout" if report.failed and "Timeout" in report.longreprtext else report.outcome
    with Path(target).open("a") as file:
        file.write(f"{report.nodeid}\t{report.duration:.3f}\t{text}\n")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Records a file that cannot be imported: the mutant breaks its module."""
    target = os.environ.get(TIMES_ENV)
    if target is not None and report.failed:
        with Path(target).open("a") as file:
            file.write(f"{report.nodeid}\t0\tfailed\n")
