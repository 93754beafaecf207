"""Stops servers that the tests of a group share after its last test; they would slow all later tests down."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest
from tests.groups import group_of

if TYPE_CHECKING:
    from _pytest.fixtures import SubRequest

__all__ = ["GroupServers"]

_OF_A_GROUP = ("tarn", "lake_server", "cassandra_nodes", "cassandra_cluster")
"""Fixtures of servers. To pytest they belong to the session, so that tests are ordered by their parameters."""


class GroupServers:
    """A plugin. As a hook of a `conftest.py` it would not see fixtures of the session, which belong to no folder."""

    def __init__(self) -> None:
        self._started: list[tuple[pytest.FixtureDef[Any], SubRequest]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: SubRequest
    ) -> Generator[None, Any, Any]:
        """Remembers servers in the order in which they were started."""
        value = yield
        if fixturedef.argname in _OF_A_GROUP:
            self._started.append((fixturedef, request))
        return value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, None, None]:
        """Stops them, the last one first."""
        yield
        if nextitem is not None and group_of(item.nodeid) != group_of(nextitem.nodeid):
            while self._started:
                fixturedef, request = self._started.pop()
                fixturedef.finish(request)
