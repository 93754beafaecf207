"""Settings of all tests, and which of them share a worker when they run in parallel."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
import structlog
from cassandra_proxies import Cluster, proxied
from hypothesis import settings
from slowness import SLOWNESS, scaled
from tests.group_servers import GroupServers
from tests.support.servers.cassandra_nodes import CassandraNodes
from tests.support.unhandled import no_lost_errors
from tests.workers import pytest_xdist_make_scheduler

__all__ = ["pytest_xdist_make_scheduler"]

# structlog's own renderer draws each traceback with coloured sources: a second of the processor, and hundreds of tests
# provoke an error that is logged.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.set_exc_info,
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]
)

# Random examples find new bugs; under `make test` (ci) a failure must come back the same.
settings.register_profile("fast", max_examples=10, deadline=None)
settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("nightly", max_examples=20_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="run every test in every form; takes hours"
    )
    parser.addoption(
        "--peer",
        action="store_true",
        help="run the tests of REST clients against a real lakeFS (tools/setup lakefs)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Stops a group's servers in time, and lets commands that tests start be interrupted: a shell has its background
    jobs ignore SIGINT, and their children inherit that."""
    if hasattr(config, "workerinput"):  # only workers of xdist run the groups one after another
        config.pluginmanager.register(GroupServers())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives a slow machine more time, and leaves out what is marked `long`, without `--long`."""
    if SLOWNESS > 1:
        default = float(config.getini("timeout"))
        for item in items:
            given = item.get_closest_marker("timeout")
            seconds = float(given.args[0]) if given is not None else default
            item.add_marker(pytest.mark.timeout(scaled(seconds)), append=False)
    if config.getoption("--long"):
        return
    kept = [item for item in items if item.get_closest_marker("long") is None]
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
    items[:] = kept


def pytest_collection_finish() -> None:
    """Takes what stays for the whole run out of the garbage collector's sight: modules, and 12,000 tests.

    A full collection goes through all of it otherwise, and some hundred tests ask for one. Collections that nobody
    asks for come seldom: by default they take 7 % of the time of the simulator.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(autouse=True)
def _no_lost_errors() -> Iterator[None]:
    """An error that nobody retrieves fails the test in which that is found."""
    with no_lost_errors():
        yield


@pytest.fixture(scope="session")
def cassandra_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraNodes]:
    """One real node for the tests of a group; its log stays in the run's temporary folder.

    It warns of a 33rd of the tombstones that others warn of: tests have fewer rows than users.
    """
    warns = "tombstone_warn_threshold: 30"
    nodes = CassandraNodes(tmp_path_factory.mktemp("cassandra"), settings=warns)
    with nodes:
        yield nodes
    nodes.remove_data()


@pytest.fixture(scope="session")
def cassandra_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three real nodes for the tests of a group."""
    three = CassandraNodes(tmp_path_factory.mktemp("cassandra-three"), 3, behind_proxies=True)
    with three, proxied(three) as proxies:
        yield Cluster(three, proxies)
    three.remove_data()
