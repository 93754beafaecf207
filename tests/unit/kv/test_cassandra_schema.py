"""What is sent to a cluster to create the tables, and that existing tables are left as they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from cassandra.cluster import Cluster, Session
from cassandra.query import SimpleStatement
from tests.support.clock import ManualClock, SeededIds

from tarn.kv.cassandra.cluster.schema import ensure_schema
from tarn.kv.cassandra.cluster.statements import seal_value
from tarn.kv.cassandra.settings import CassandraSettings

SETTINGS = CassandraSettings(("127.0.0.1:9042",), "dc1", "tarn", replication_factor=1)


class Rows(list[tuple[object, ...]]):
    """The answer to a query."""

    def one(self) -> tuple[object, ...] | None:
        return self[0] if self else None


class FakeSession:
    """One node. Keeps what it is sent; knows a keyspace and tables, and the version that was recorded last."""

    def __init__(self, version: bytes | None = None) -> None:
        self.version = version
        self.sent: list[str] = []

    def execute(
        self, query: str | SimpleStatement, values: tuple[object, ...] = (), **_: object
    ) -> Rows:
        cql = query if isinstance(query, str) else query.query_string
        self.sent.append(cql)
        exists = self.version is not None
        if "system_schema.keyspaces" in cql:
            return Rows([({"dc1": "1"},)] if exists else [])
        if "system_schema.tables" in cql:
            return Rows([("cas",), ("plain",)] if exists else [])
        if cql.startswith("SELECT v, n"):
            return Rows([(self.version, b"nonce")] if exists else [])
        if cql.startswith("INSERT INTO tarn.cas"):
            self.version = cast("bytes", values[3])
        return Rows()

    @property
    def changes(self) -> list[str]:
        return [cql for cql in self.sent if cql.startswith(("CREATE TABLE", "ALTER"))]


def ensure(session: FakeSession) -> None:
    host = SimpleNamespace(datacenter="dc1", is_up=True, host_id="1")
    cluster = SimpleNamespace(metadata=SimpleNamespace(all_hosts=lambda: [host]))
    ids = SeededIds(ManualClock())
    ensure_schema(cast("Cluster", cluster), cast("Session", session), SETTINGS, ids)


@pytest.fixture
def created() -> list[str]:
    session = FakeSession()
    ensure(session)
    return session.changes


def test_each_table_states_that_reads_repair_before_they_answer(created: list[str]) -> None:
    """Whatever a later Cassandra takes for the default: the protocol relies on reads that do not go back."""
    assert [cql.split()[5] for cql in created] == ["tarn.cas", "tarn.plain"]
    for cql in created:
        _, _, options = cql.partition(" WITH ")
        assert "read_repair = 'BLOCKING'" in options.split(" AND ")


def test_tables_of_an_installation_are_not_changed() -> None:
    """Those of release 0.9.0 do not state it, and have the same value."""
    session = FakeSession(seal_value(b"1"))
    ensure(session)
    assert session.changes == []
