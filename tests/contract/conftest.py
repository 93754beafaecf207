"""What contract tests share: the real engines that are too slow to start for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tarn.testing.cassandra_nodes import CassandraNodes


@pytest.fixture(scope="session")
def cassandra_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraNodes]:
    """One real node for the whole run; its log stays in the run's temporary folder."""
    nodes = CassandraNodes(tmp_path_factory.mktemp("cassandra"))
    with nodes:
        yield nodes
    nodes.remove_data()
