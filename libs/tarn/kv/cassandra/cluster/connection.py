"""Configures the driver's cluster object, so that every statement has a set consistency. All of it blocks.

The driver's defaults would silently break guarantees: consistency LOCAL_ONE (a read that misses an
acknowledged write) and a retry policy that sends a compare-and-set twice (docs/design/kv.md, "The driver").
So every profile, also the default one, sets a consistency, and no policy retries.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any

from cassandra import AuthenticationFailed, ConsistencyLevel, ProtocolVersion
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.connection import EndPoint
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    TokenAwarePolicy,
)
from cassandra.query import dict_factory, tuple_factory

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.cassandra.cluster.rediscovery import contact_point
from tarn.kv.cassandra.cluster.session import Profile
from tarn.kv.cassandra.settings import CassandraLimits, CassandraSettings, CassandraTls

__all__ = ["change_certificates", "change_login", "connect"]

_CONNECT_SECONDS = 5.0
_CONTROL_SECONDS = 5.0
_HEARTBEAT_SECONDS = 10
_RECONNECT_FIRST_SECONDS = 0.25
_RECONNECT_MOST_SECONDS = 2.0
"""Longest pause between attempts to reconnect. An attempt costs one connection; a longer pause would keep
a process offline after the nodes are back."""


def connect(settings: CassandraSettings, limits: CassandraLimits) -> tuple[Cluster, Session]:
    """Returns a connected cluster and a session without a keyspace; the caller shuts the cluster down.

    Raises:
        TarnError: FAILED_PRECONDITION: the driver lacks its event loop. INVALID: a contact point or a
            certificate cannot be read.
        Exception: the driver's error if no node answers.
    """
    cluster = Cluster(
        contact_points=[_contact_point(text) for text in settings.contact_points],
        execution_profiles=_profiles(settings, limits),
        auth_provider=_auth_provider(settings),
        ssl_context=_ssl_context(settings.tls) if settings.tls is not None else None,
        reconnection_policy=ExponentialReconnectionPolicy(
            _RECONNECT_FIRST_SECONDS, _RECONNECT_MOST_SECONDS, max_attempts=None
        ),
        protocol_version=ProtocolVersion.V5,  # since 4.0; negotiating it takes two connections
        connect_timeout=_CONNECT_SECONDS,
        control_connection_timeout=_CONTROL_SECONDS,
        # The driver writes 4 KiB at a time; with Nagle's algorithm, a larger request would wait 40 ms.
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        idle_heartbeat_interval=_HEARTBEAT_SECONDS,
        idle_heartbeat_timeout=_HEARTBEAT_SECONDS,
        application_name="tarn",
        monitor_reporting_enabled=False,
    )
    try:
        name = cluster.connection_class.__name__
        if name != "LibevConnection":
            text = f"cassandra-driver was built without libev (it uses {name}); install its wheel"
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.UNAVAILABLE, text)
        session = cluster.connect()
    except BaseException:
        cluster.shutdown()
        raise
    # None of our requests needs the driver's paging, as each names its keys or a limit. Without paging the
    # nodes skip their pager, which would read several buckets one after the other.
    session.default_fetch_size = None
    # Timestamps of plain rows are bound and those of registers are Paxos ballots; the driver sets none.
    session.use_client_timestamp = False
    return cluster, session


def change_login(cluster: Cluster, username: str, password: str) -> None:
    """Uses another login for all further connections, once a node has accepted it. Connections that exist stay.

    Raises:
        TarnError: UNAUTHENTICATED: the nodes refuse the login. UNAVAILABLE: no node answers. The old one stays.
    """
    provider = PlainTextAuthProvider(username, password)

    def connect_to(endpoint: EndPoint) -> None:
        authenticator = provider.new_authenticator(endpoint.address)
        try:
            cluster.connection_factory(endpoint, authenticator=authenticator).close()
        except AuthenticationFailed as error:
            text = (
                f"Cassandra refuses the new login of role {username}; check "
                "metadata.db.cassandra.username and .password"
            )
            raise TarnError(Kind.UNAUTHENTICATED, Reason.UNAVAILABLE, text) from error

    problem = f"no node of Cassandra tells whether the new login of role {username} is right"
    _connect_to_one(cluster, connect_to, problem)
    cluster.auth_provider = provider


def change_certificates(cluster: Cluster, tls: CassandraTls) -> None:
    """Reads the files of `tls` again, for all further connections, once a node has accepted one. Those that exist stay.

    Raises:
        TarnError: INVALID: the files cannot be used. UNAVAILABLE: no connection can be made with them; `tls` of before
            stays in use.
    """
    context = _ssl_context(tls)

    def connect_to(endpoint: EndPoint) -> None:
        cluster.connection_factory(endpoint, ssl_context=context).close()

    problem = "no connection to Cassandra can be made with the new certificates (metadata.db.cassandra.tls)"
    _connect_to_one(cluster, connect_to, problem)
    cluster.ssl_context = context


def _connect_to_one(cluster: Cluster, connect_to: Callable[[EndPoint], None], problem: str) -> None:
    """Connects to the nodes one after another, until one answers.

    Raises:
        TarnError: the error of `connect_to`; UNAVAILABLE, with the problem and the last failure: no node answers.
    """
    failure: Exception | None = None
    for host in cluster.metadata.all_hosts():
        try:
            connect_to(host.endpoint)
        except TarnError:
            raise
        except Exception as error:  # noqa: BLE001 - the driver has no common type; another node may answer
            failure = error
        else:
            return
    text = f"{problem}: {failure}"
    raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from failure


def _profiles(settings: CassandraSettings, limits: CassandraLimits) -> dict[Any, ExecutionProfile]:
    policy = TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=settings.local_datacenter))

    def profile(consistency: int, row_factory: Any) -> ExecutionProfile:  # noqa: ANN401 - untyped
        return ExecutionProfile(
            load_balancing_policy=policy,
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=consistency,
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
            request_timeout=limits.request_seconds,
            row_factory=row_factory,
        )

    quorum = ConsistencyLevel.LOCAL_QUORUM
    return {
        EXEC_PROFILE_DEFAULT: profile(quorum, tuple_factory),
        Profile.READ.value: profile(quorum, tuple_factory),
        Profile.SETTLE.value: profile(ConsistencyLevel.LOCAL_SERIAL, tuple_factory),
        Profile.WRITE.value: profile(quorum, tuple_factory),
        Profile.CAS.value: profile(quorum, dict_factory),
    }


def _contact_point(text: str) -> tuple[str, int]:
    try:
        return contact_point(text)
    except ValueError as error:
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, str(error)) from error


def _auth_provider(settings: CassandraSettings) -> PlainTextAuthProvider | None:
    if settings.username is None:
        return None
    return PlainTextAuthProvider(settings.username, settings.password)


def _ssl_context(tls: CassandraTls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
    except OSError as error:  # ssl.SSLError is one
        text = f"Cassandra's TLS files cannot be used: {error}"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text) from error
    return context
