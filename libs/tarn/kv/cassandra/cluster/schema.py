"""Creates the keyspace and its tables, and migrates them. Everything here blocks.

A row in `cas` holds the version of the schema. It changes by compare-and-set, so every step is recorded once,
and the store of a newer Tarn is refused. The statements of a step are idempotent. All processes send them to
the same node, the one with the least host id: if two nodes create a table concurrently, they give it two ids,
and the cluster does not recover from that by itself.
"""

from __future__ import annotations

from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.cluster import Cluster, Session
from cassandra.pool import Host
from cassandra.protocol import ServerError
from cassandra.query import SimpleStatement

from tarn.core.clock import IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.cassandra.cluster.checks import READ_REPAIR, check_quorum, local_nodes, replicas_of
from tarn.kv.cassandra.cluster.statements import open_value, seal_value
from tarn.kv.cassandra.settings import CassandraSettings

__all__ = ["SCHEMA_BUCKET", "SCHEMA_KEY", "SCHEMA_PARTITION", "ensure_schema"]

SCHEMA_PARTITION = b"\0schema"
SCHEMA_BUCKET = -1
SCHEMA_KEY = b"version"

_OPTIONS = (
    f"compaction = {{'class': 'LeveledCompactionStrategy'}} AND read_repair = '{READ_REPAIR}'"
)
# Release 0.9.0 did not state `read_repair`; its tables have the same value, which is Cassandra's default.
_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE IF NOT EXISTS $keyspace.cas"
        " (p blob, b smallint, k blob, v blob, n blob, PRIMARY KEY ((p, b), k))"
        f" WITH {_OPTIONS} AND comment = 'Tarn: registers, written by compare-and-set only'",
        "CREATE TABLE IF NOT EXISTS $keyspace.plain"
        " (p blob, b smallint, k blob, v blob, PRIMARY KEY ((p, b), k))"
        f" WITH {_OPTIONS} AND comment = 'Tarn: rows of which the last write wins'",
    ),
)
"""Step n leads from version n to n + 1. The statements are idempotent and never change once released."""

_REPLICAS_MAX = 3
_TIMEOUT_SECONDS = 60.0
_RACES_MAX = 20


def ensure_schema(
    cluster: Cluster, session: Session, settings: CassandraSettings, ids: IdSource
) -> None:
    """Creates the keyspace and migrates its tables to this version.

    Raises:
        TarnError: FAILED_PRECONDITION: a newer Tarn made the tables, or Tarn's role may not create them.
            UNAVAILABLE: there are (still) too few nodes for the keyspace's replicas.
        Exception: an error of the driver.
    """
    keyspace = settings.keyspace
    nodes = local_nodes(cluster, settings)
    node = _node_of_changes(nodes)
    keyspaces = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = %s"
    found = session.execute(keyspaces, (keyspace,), host=node).one()
    if found is None:
        replicas = settings.replication_factor or min(len(nodes), _REPLICAS_MAX)
        check_quorum(keyspace, replicas, len(nodes))
        replication = (
            f"{{'class': 'NetworkTopologyStrategy', '{settings.local_datacenter}': {replicas}}}"
        )
        cql = f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {replication}"
        session.execute(cql, timeout=_TIMEOUT_SECONDS, host=node)
    else:
        check_quorum(keyspace, replicas_of(dict(found[0]), settings), len(nodes))
    for _ in range(_RACES_MAX):
        version, nonce = _version(session, keyspace, node)
        if version == len(_MIGRATIONS):
            return
        if version > len(_MIGRATIONS):
            text = f"keyspace {keyspace} has schema version {version}, this Tarn knows {len(_MIGRATIONS)}"
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.UNAVAILABLE, f"{text}: upgrade Tarn")
        for cql in _MIGRATIONS[version]:
            session.execute(cql.replace("$keyspace", keyspace), timeout=_TIMEOUT_SECONDS, host=node)
        _record(session, keyspace, version + 1, nonce, ids.nonce())
    text = f"the schema of keyspace {keyspace} keeps changing; look for schema disagreement"
    raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)


def _node_of_changes(nodes: list[Host]) -> Host:
    up = [host for host in nodes if host.is_up is not False]
    return min(up, key=lambda host: str(host.host_id))


def _version(session: Session, keyspace: str, node: Host) -> tuple[int, bytes | None]:
    """Returns the stored version, 0 for none, and the nonce of its row."""
    tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"
    if not any(name == "cas" for (name,) in session.execute(tables, (keyspace,), host=node)):
        return 0, None
    # SERIAL: an earlier step of unknown outcome is decided first.
    query = SimpleStatement(
        f"SELECT v, n FROM {keyspace}.cas WHERE p = %s AND b = %s AND k = %s",  # noqa: S608 - a checked name
        consistency_level=ConsistencyLevel.LOCAL_SERIAL,
    )
    place = (SCHEMA_PARTITION, SCHEMA_BUCKET, SCHEMA_KEY)
    try:
        row = session.execute(query, place, host=node).one()
    except (InvalidRequest, ServerError):
        # The table is just being created (unknown, or an "unknown CF"); creating it ourselves waits for that.
        return 0, None
    return (0, None) if row is None else (int(open_value(row[0])), row[1])


def _record(
    session: Session, keyspace: str, version: int, before: bytes | None, nonce: bytes
) -> None:
    """Records a version. A process that loses the race reads the winner's version next."""
    place = (SCHEMA_PARTITION, SCHEMA_BUCKET, SCHEMA_KEY)
    cell = seal_value(b"%d" % version)
    if before is None:
        cql = (
            f"INSERT INTO {keyspace}.cas (p, b, k, v, n) VALUES (%s, %s, %s, %s, %s) IF NOT EXISTS"  # noqa: S608 - a checked name
        )
        session.execute(cql, (*place, cell, nonce))
        return
    cql = f"UPDATE {keyspace}.cas SET v = %s, n = %s WHERE p = %s AND b = %s AND k = %s IF n = %s"  # noqa: S608 - a checked name
    session.execute(cql, (cell, nonce, *place, before))
