"""Properties of a cluster that are refused, and those that only cause advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.kv.cassandra.cluster.checks import (
    advice_on_replication,
    advice_on_settings,
    check_name,
    check_quorum,
    check_table,
    check_version,
)
from tarn.kv.cassandra.cluster.connection import connect
from tarn.kv.cassandra.settings import CassandraLimits, CassandraSettings, CassandraTls

LIMITS = CassandraLimits()
GOOD = {
    "paxos_variant": "v2",
    "paxos_state_purging": "repaired",
    "write_request_timeout": "2000ms",
    "cas_contention_timeout": "1800ms",
}
NETWORK = "org.apache.cassandra.locator.NetworkTopologyStrategy"


def settings(keyspace: str = "tarn", datacenter: str = "dc1") -> CassandraSettings:
    return CassandraSettings(("127.0.0.1:9042",), datacenter, keyspace)


@pytest.mark.parametrize("release", ["3.11.16", "4.0.12", "2.2", "unknown"])
def test_old_servers_are_refused(release: str) -> None:
    with pytest.raises(TarnError, match="is too old") as caught:
        check_version(release)
    assert caught.value.kind is Kind.FAILED_PRECONDITION


@pytest.mark.parametrize("release", ["4.1.7", "5.0.8", "5.1-alpha1", "10.0"])
def test_newer_servers_are_taken(release: str) -> None:
    check_version(release)


def test_tables_whose_rows_may_disappear_from_reads_are_refused() -> None:
    check_table("tarn.plain", "BLOCKING", 0)
    check_table("tarn.plain", None, None)
    for read_repair, time_to_live, told in (
        ("NONE", 0, "tarn.plain has read_repair = 'NONE'.*ALTER TABLE tarn.plain WITH read_repair"),
        ("BLOCKING", 60, "default_time_to_live = 60.*ALTER TABLE tarn.plain"),
    ):
        with pytest.raises(TarnError, match=told) as caught:
            check_table("tarn.plain", read_repair, time_to_live)
        assert caught.value.kind is Kind.FAILED_PRECONDITION


@pytest.mark.parametrize("keyspace", ["", "Tarn", "a-b", "1a", "a" * 49, 'x"; DROP'])
def test_keyspaces_need_plain_names(keyspace: str) -> None:
    with pytest.raises(TarnError, match="keyspace"):
        check_name(settings(keyspace))


def test_data_centres_need_plain_names() -> None:
    check_name(settings(datacenter="eu-west_1.a"))
    with pytest.raises(TarnError, match="local_datacenter"):
        check_name(settings(datacenter="a'b"))


def test_good_settings_need_no_advice() -> None:
    assert advice_on_settings(GOOD, LIMITS) == []
    assert advice_on_settings({}, LIMITS) == []


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"paxos_variant": "v1"}, "paxos_variant is v1"),
        ({"paxos_state_purging": "legacy"}, "paxos_state_purging is legacy"),
        ({"cas_contention_timeout": "3s"}, "cas_contention_timeout"),
        ({"write_request_timeout": "5s"}, "Tarn's request_timeout"),
    ],
)
def test_risky_settings_cause_advice(changed: dict[str, str], text: str) -> None:
    (advice,) = advice_on_settings(GOOD | changed, LIMITS)
    assert text in advice


@pytest.mark.parametrize(
    ("replication", "text"),
    [
        ({"class": "org.apache.cassandra.locator.SimpleStrategy"}, "SimpleStrategy"),
        ({"class": NETWORK, "dc2": "3"}, "no replica in dc1"),
        ({}, "replicated by"),
    ],
)
def test_replication_that_loses_writes_is_refused(replication: dict[str, str], text: str) -> None:
    with pytest.raises(TarnError, match=text):
        advice_on_replication(settings(), replication, durable_writes=True)


def test_writes_must_be_durable() -> None:
    with pytest.raises(TarnError, match="durable_writes"):
        advice_on_replication(settings(), {"class": NETWORK, "dc1": "3"}, durable_writes=False)


def test_three_replicas_are_advised() -> None:
    replication = {"class": NETWORK, "dc1": "3"}
    assert advice_on_replication(settings(), replication, durable_writes=True) == []
    (advice,) = advice_on_replication(settings(), replication | {"dc1": "1"}, durable_writes=True)
    assert "1 replica" in advice


def test_settings_show_no_password() -> None:
    secret = CassandraSettings(("h:1",), "dc1", "tarn", username="u", password="hidden")
    assert "hidden" not in repr(secret)


def test_unusable_settings_are_named() -> None:
    with pytest.raises(TarnError, match="host:port"):
        connect(CassandraSettings(("cassandra",), "dc1", "tarn"), LIMITS)
    missing = CassandraTls(cert=Path("/absent.pem"))
    with pytest.raises(TarnError, match="TLS files"):
        connect(CassandraSettings(("h:1",), "dc1", "tarn", tls=missing), LIMITS)


@pytest.mark.parametrize(("replicas", "nodes"), [(1, 1), (3, 2), (3, 3), (5, 3)])
def test_a_quorum_of_nodes_is_enough(replicas: int, nodes: int) -> None:
    check_quorum("tarn", replicas, nodes)


@pytest.mark.parametrize(("replicas", "nodes"), [(2, 1), (3, 1), (5, 2)])
def test_fewer_nodes_than_a_quorum_are_told_with_what_to_do(replicas: int, nodes: int) -> None:
    with pytest.raises(TarnError, match=f"{replicas} replicas.* {nodes} node.*ALTER") as caught:
        check_quorum("tarn", replicas, nodes)
    assert caught.value.kind is Kind.UNAVAILABLE  # the others may join soon
