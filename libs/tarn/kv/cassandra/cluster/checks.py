"""Checks of a cluster when a store is opened. Everything here blocks.

A setting that would silently break a guarantee is refused. Other settings produce advice for the log, with
what to change.
"""

from __future__ import annotations

import re
from typing import Final

from cassandra.cluster import Cluster, Session
from cassandra.pool import Host

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.cassandra.rows.timestamps import SEEN_AHEAD_US_MAX
from tarn.kv.cassandra.settings import CassandraLimits, CassandraSettings

__all__ = [
    "READ_REPAIR",
    "advice_on_replication",
    "advice_on_settings",
    "check_keyspace",
    "check_name",
    "check_nodes",
    "check_quorum",
    "check_table",
    "check_version",
    "local_nodes",
    "replicas_of",
    "server_settings",
]

_VERSION_MIN = (4, 1)
_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
_SKEW_US_ADVISED = 100_000
_REPLICAS_ADVISED = 3
READ_REPAIR: Final = "BLOCKING"
"""The option of all tables: a row that a read has returned is there for all later reads."""


def check_name(settings: CassandraSettings) -> None:
    """Raises `TarnError` INVALID for names that CQL would need to quote."""
    if not _KEYSPACE.fullmatch(settings.keyspace):
        text = f"keyspace {settings.keyspace!r} must be 1 to 48 of a-z, 0-9, '_', a letter first"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", settings.local_datacenter):
        text = f"local_datacenter {settings.local_datacenter!r} is not a valid data centre name"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)


def check_version(release: str) -> None:
    """Raises `TarnError` FAILED_PRECONDITION for a server that is too old.

    Paxos v2 came with 4.1, and reads of 3.x could miss a decided compare-and-set.
    """
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _VERSION_MIN:
        text = f"Cassandra {release} is too old: Tarn needs 4.1 or later, better 5.0"
        raise _refused(text)


def check_nodes(cluster: Cluster, settings: CassandraSettings) -> None:
    """Checks the nodes before anything is created on them.

    Raises:
        TarnError: FAILED_PRECONDITION; the text says what is wrong and what to do.
    """
    hosts = cluster.metadata.all_hosts()
    centres = sorted({str(host.datacenter) for host in hosts})
    if settings.local_datacenter not in centres:
        text = f"there is no data centre {settings.local_datacenter!r}; the nodes are in {centres}"
        raise _refused(f"{text}: set metadata.db.cassandra.local_datacenter")
    for host in hosts:
        if host.release_version:
            check_version(host.release_version)


def local_nodes(cluster: Cluster, settings: CassandraSettings) -> list[Host]:
    """The nodes of the local data centre that the driver knows, whether up or down."""
    hosts: list[Host] = cluster.metadata.all_hosts()
    return [host for host in hosts if host.datacenter == settings.local_datacenter]


def replicas_of(replication: dict[str, str], settings: CassandraSettings) -> int:
    """How many replicas of a keyspace the local data centre holds; 0 for none."""
    # Transient replication writes "3/1".
    return int(replication.get(settings.local_datacenter, "0").partition("/")[0])


def check_quorum(keyspace: str, replicas: int, nodes: int) -> None:
    """Raises `TarnError` UNAVAILABLE if the nodes could not answer even if all of them were up.

    Not FAILED_PRECONDITION, because the nodes of a new cluster become known one after another.
    """
    if nodes < replicas // 2 + 1:
        text = f"keyspace {keyspace} wants {replicas} replicas, but the data centre has {nodes} node(s)"
        hint = "start more, or ALTER its replication (a new one: metadata.db.cassandra.replication_factor)"
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, f"{text}: {hint}")


def check_keyspace(
    session: Session,
    settings: CassandraSettings,
    limits: CassandraLimits,
    clock: Clock,
) -> list[str]:
    """Checks the keyspace, the clocks and a node's settings.

    Returns:
        Advice: one text for each setting that works but should be changed.

    Raises:
        TarnError: FAILED_PRECONDITION; the text says what is wrong and what to do.
    """
    advice = _advice_on_clock(session, clock)
    advice += _advice_on_replication(session, settings)
    cql = (
        "SELECT table_name, read_repair, default_time_to_live FROM system_schema.tables"
        " WHERE keyspace_name = %s"
    )
    for table, read_repair, time_to_live in session.execute(cql, (settings.keyspace,)):
        check_table(f"{settings.keyspace}.{table}", read_repair, time_to_live)
    return advice + advice_on_settings(server_settings(session), limits)


def check_table(table: str, read_repair: str | None, time_to_live: int | None) -> None:
    """Checks that a row which a read has returned is there for all later reads.

    Listings remember which rows they have read (docs/design/tombstones.md). Without read repair, one read may return a
    row that only one node has, and the next one may miss it; then a listing would hide an object that exists.

    Args:
        table: keyspace and name.
        read_repair: the option of the table; None if the server does not tell.
        time_to_live: its default_time_to_live in seconds; None likewise.

    Raises:
        TarnError: FAILED_PRECONDITION; the text says what is wrong and what to do.
    """
    if (read_repair or READ_REPAIR).upper() != READ_REPAIR:
        text = f"table {table} has read_repair = '{read_repair}', so reads may go back"
        raise _refused(f"{text}: ALTER TABLE {table} WITH read_repair = '{READ_REPAIR}'")
    if time_to_live:
        text = f"table {table} has default_time_to_live = {time_to_live}, so rows disappear"
        raise _refused(f"{text}: ALTER TABLE {table} WITH default_time_to_live = 0")


def server_settings(session: Session) -> dict[str, str]:
    """The settings of the node that answers, by name; empty without permission to read them."""
    try:
        rows = session.execute("SELECT name, value FROM system_views.settings")
    except Exception:  # noqa: BLE001 - e.g. a role without permission; advice must not stop the start
        return {}
    return {name: value for name, value in rows if value is not None}


def advice_on_settings(values: dict[str, str], limits: CassandraLimits) -> list[str]:
    """Advice on a node's settings; settings that the node does not report are skipped."""
    advice = []
    if values.get("paxos_variant", "v2") != "v2":
        text = f"paxos_variant is {values['paxos_variant']}: v2 halves the round trips"
        advice.append(f"{text} and stays correct while the ring changes; set it on all nodes")
    if values.get("paxos_state_purging", "repaired") == "legacy":
        advice.append("paxos_state_purging is legacy: set it to repaired, and run paxos repairs")
    write_ms = _milliseconds(values.get("write_request_timeout"))
    contention_ms = _milliseconds(values.get("cas_contention_timeout"))
    if write_ms and contention_ms and contention_ms >= write_ms:
        text = f"cas_contention_timeout ({contention_ms:.0f} ms) should be less than"
        advice.append(f"{text} write_request_timeout ({write_ms:.0f} ms)")
    if write_ms and write_ms >= limits.request_seconds * 1000:
        text = (
            f"write_request_timeout ({write_ms:.0f} ms) should be less than Tarn's request_timeout"
        )
        advice.append(
            f"{text} ({limits.request_seconds:.1f} s), or slow writes have unknown outcomes"
        )
    return advice


def _advice_on_clock(session: Session, clock: Clock) -> list[str]:
    sent_us = clock.now_us()
    (row,) = session.execute("SELECT toUnixTimestamp(now()) FROM system.local")
    answered_us = clock.now_us()
    server_us = int(row[0]) * 1000
    # The node read its clock at some time between these two; its answer is in whole milliseconds.
    ahead_us = max(sent_us - server_us - 1000, server_us - answered_us, 0)
    if ahead_us > SEEN_AHEAD_US_MAX:
        text = f"this machine's clock and Cassandra's are {ahead_us / 1e6:.0f} s apart"
        raise _refused(f"{text}: correct the one that is wrong")
    if ahead_us > _SKEW_US_ADVISED:
        text = f"this machine's clock and Cassandra's are {ahead_us / 1000:.0f} ms apart"
        return [f"{text}: check NTP on both"]
    return []


def _advice_on_replication(session: Session, settings: CassandraSettings) -> list[str]:
    # Not from the driver's copy of the schema, which follows changes with a delay.
    cql = "SELECT replication, durable_writes FROM system_schema.keyspaces WHERE keyspace_name = %s"
    row = session.execute(cql, (settings.keyspace,)).one()
    if row is None:
        text = f"not all nodes know keyspace {settings.keyspace} yet"
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
    return advice_on_replication(settings, dict(row[0]), durable_writes=row[1])


def advice_on_replication(
    settings: CassandraSettings, replication: dict[str, str], *, durable_writes: bool
) -> list[str]:
    """Advice on a keyspace, as `system_schema.keyspaces` describes it.

    Raises:
        TarnError: FAILED_PRECONDITION: it would lose acknowledged writes, or has no replica here.
    """
    name = settings.keyspace
    strategy = replication.get("class", "").rpartition(".")[2]
    if strategy != "NetworkTopologyStrategy":
        text = f"keyspace {name} is replicated by {strategy}"
        raise _refused(f"{text}: ALTER it to NetworkTopologyStrategy")
    replicas = replicas_of(replication, settings)
    if not replicas:
        text = f"keyspace {name} has no replica in {settings.local_datacenter}"
        raise _refused(f"{text}: ALTER its replication, then run a full repair")
    if not durable_writes:
        text = f"keyspace {name} has durable_writes = false"
        raise _refused(f"{text}: acknowledged writes would be lost; ALTER it")
    if replicas < _REPLICAS_ADVISED:
        text = f"keyspace {name} has {replicas} replica(s): one node down stops Tarn"
        return [f"{text}, one disk lost loses data; use {_REPLICAS_ADVISED}"]
    return []


def _milliseconds(value: str | None) -> float | None:
    match = re.fullmatch(r"(\d+)(ms|s)", value or "")
    return float(match[1]) * {"ms": 1, "s": 1000}[match[2]] if match else None


def _refused(text: str) -> TarnError:
    return TarnError(Kind.FAILED_PRECONDITION, Reason.UNAVAILABLE, text)
