"""Real processes: one Tarn of each form per test worker, a repository of its own for each test.

Tests that are marked `on_cassandra` run on real Cassandra, too: on one node and on three; those with `long=True` do so
with `--long` only. With `--long` each test that uses a Tarn runs in each form. Without it, one runs in a form that
depends on its name, unless it is marked `every_form` or `in_form` (without a form: on Cassandra only).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from cassandra_proxies import Cluster, kv_url
from running_compactor import config_of
from running_tarn import Place, RunningTarn, running_tarn
from tests.support.servers.cassandra_nodes import CassandraNodes

FORMS = ("single", "separate")
ON_CASSANDRA = ("one", "three")
"""Further forms: two workers on one node; services with two gravelers on three."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks all tests here; `tests/conftest.py` decides which of them share a test worker."""
    here = Path(__file__).parent
    for item in items:
        if not item.path.is_relative_to(here):
            continue
        item.add_marker(pytest.mark.system)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(180))


def forms_of(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    """Returns the forms of Tarn in which a test runs; those on Cassandra come on top."""
    definition = metafunc.definition
    if metafunc.config.getoption("--long") or definition.get_closest_marker("every_form"):
        return FORMS
    if chosen := definition.get_closest_marker("in_form"):
        return tuple(chosen.args)
    return (FORMS[zlib.crc32(definition.name.encode()) % len(FORMS)],)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs each test that uses a running Tarn in all forms that are meant for it."""
    forms: list[Any] = list(forms_of(metafunc))
    if marker := metafunc.definition.get_closest_marker("on_cassandra"):
        wanted = marker.args or ON_CASSANDRA
        marks = [pytest.mark.cassandra]
        if marker.kwargs.get("long"):
            marks.append(pytest.mark.long)
        forms += [pytest.param(form, marks=marks) for form in wanted]
    if "tarn" in metafunc.fixturenames:
        metafunc.parametrize("tarn", forms, indirect=True, scope="session")
    if "own_tarn" in metafunc.fixturenames:
        metafunc.parametrize("own_tarn", forms, indirect=True, scope="function")


def started(request: pytest.FixtureRequest, folder: Path) -> AbstractContextManager[RunningTarn]:
    """Starts a Tarn in the requested form, with a busy compactor; on Cassandra with a keyspace of its own."""
    config = ("--config", str(config_of(folder)))
    keyspace = "tarn_" + hashlib.sha256(bytes(folder)).hexdigest()[:8]
    match request.param:
        case "one":
            nodes: CassandraNodes = request.getfixturevalue("cassandra_nodes")
            return running_tarn(folder, "single", *config, "--kv", kv_url(nodes, keyspace))
        case "three":
            cluster: Cluster = request.getfixturevalue("cassandra_cluster")
            cluster.until_whole()
            kv = ("--kv", kv_url(cluster.nodes, keyspace))
            return running_tarn(folder, "separate", "--workers", "2", *config, *kv)
        case form:
            return running_tarn(folder, form, *config)


@pytest.fixture(scope="session")
def tarn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningTarn]:
    """A running Tarn; the test runs once in each form."""
    with started(request, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture
def own_tarn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningTarn]:
    """A Tarn for this test only, which the test may damage."""
    with started(request, tmp_path) as running:
        yield running


@pytest.fixture
def repository(tarn: RunningTarn) -> str:
    """A new, empty repository."""
    return tarn.new_repository()


@pytest.fixture
def place(tarn: RunningTarn, repository: str) -> Place:
    """Where a client of S3 finds an empty branch: in some forms in a bucket that it has made itself, whose keys are
    paths; in the others in a repository, whose keys begin with a ref."""
    return tarn.new_bucket() if tarn.form == "single" else Place(repository, "main/")


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
    """Attaches the end of Tarn's log to the report of a failure."""
    report = yield
    running = getattr(item, "funcargs", {}).get("tarn")
    if report.failed and isinstance(running, RunningTarn):
        report.sections.append((f"tail of {running.log}", running.tail()))
    return report


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session in this process; it ends with the tests of the file."""
    from spark_lakes import spark_session

    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session
