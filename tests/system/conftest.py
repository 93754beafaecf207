"""Real processes: one Tarn of each form per test worker, a repository of its own for each test."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from running_tarn import RunningTarn, running_tarn

FORMS = ("single", "separate")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks everything here; what shares a worker is decided in `tests/conftest.py`."""
    here = Path(__file__).parent
    for item in items:
        if not item.path.is_relative_to(here):
            continue
        item.add_marker(pytest.mark.system)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(180))


@pytest.fixture(scope="session", params=FORMS)
def tarn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningTarn]:
    """A running Tarn, in both forms."""
    with running_tarn(tmp_path_factory.mktemp(request.param), request.param) as running:
        yield running


@pytest.fixture
def repository(tarn: RunningTarn) -> str:
    """A new, empty repository."""
    return tarn.new_repository()


@pytest.fixture
def s3(tarn: RunningTarn) -> Iterator[Any]:
    """A boto3 client."""
    client = tarn.s3()
    yield client
    client.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attaches what Tarn said to the report of a failure."""
    report = yield
    running = getattr(item, "funcargs", {}).get("tarn")
    if report.failed and isinstance(running, RunningTarn):
        report.sections.append((f"tail of {running.log}", running.tail()))
    return report
