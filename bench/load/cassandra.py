"""One real Cassandra node for a benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.servers.cassandra_nodes import CassandraNodes

__all__ = ["SECTION", "cassandra_node"]

SECTION: Final = "Cassandra, one node on this machine"
"""Heading of the table of its rows."""

_JVM = ("-Xms2g", "-Xmx2g", "-XX:TieredStopAtLevel=4")
"""The nodes of the tests start quickly but stay slow; this one has a larger heap and the full compiler."""


@contextmanager
def cassandra_node(folder: Path) -> Iterator[CassandraNodes]:
    """Runs a node with its data in a folder; it ends with this process, however that process ends."""
    with CassandraNodes(folder, jvm=_JVM) as nodes:
        yield nodes
