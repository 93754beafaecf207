"""The harness of Cassandra nodes, without starting one."""

from __future__ import annotations

import pytest
from tests.support.servers import cassandra_nodes


@pytest.mark.parametrize(
    "name", ["cassandra/cassandra.yaml", "cassandra/jars", "cassandra/logback.xml", "java-home"]
)
def test_the_files_that_a_node_is_started_with_exist(name: str) -> None:
    assert (cassandra_nodes._TOOLS / name).is_file()
