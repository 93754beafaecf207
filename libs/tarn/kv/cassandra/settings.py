"""The settings of the driver: where the cluster is, and the bounds of one process's store."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["CassandraLimits", "CassandraSettings", "CassandraTls"]


@dataclass(frozen=True, slots=True)
class CassandraTls:
    """TLS to the nodes. The nodes' certificates must contain the names or addresses that are connected to.

    Attributes:
        ca: path of the PEM file with the certificate authorities of the nodes; None: the system's.
        cert: path of our client certificate, PEM; None: the nodes do not ask for one.
        key: path of its private key, PEM.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class CassandraSettings:
    """One cluster, one keyspace.

    Attributes:
        contact_points: `host:port` of some nodes; the driver learns the others from them.
        local_datacenter: the data centre whose nodes are asked, and inside which writes are ordered. Every
            process of an installation must use the same one (docs/design/kv.md, "Consistency and clocks").
        keyspace: created if it does not exist.
        replication_factor: replicas in `local_datacenter` for a keyspace that Tarn creates. 0: one per node
            that is known at that moment, at most 3; use it only if the whole cluster is up at first start.
        username: None: the nodes ask for no password.
        password: never logged or shown.
        tls: None: no TLS.
    """

    contact_points: tuple[str, ...]
    local_datacenter: str
    keyspace: str
    replication_factor: int = 3
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: CassandraTls | None = None


@dataclass(frozen=True, slots=True)
class CassandraLimits:
    """Bounds of one process's store.

    Attributes:
        open_seconds: how long opening is retried while no node answers. A cluster that restarts or is
            overloaded for a moment should not stop a service from starting.
        request_seconds: time-out of one request. It must be longer than the nodes' own time-outs (2 s for
            writes); otherwise the nodes' answers come too late and slow writes have unknown outcomes.
        attempts: least number of attempts of a request that may be repeated.
        retry_seconds: least time for which it is repeated. The driver takes half a second to reconnect when
            its only node has closed a connection.
        in_flight_max: requests sent and not answered; further requests wait.
        queued_max: requests that wait; further requests are refused as OVERLOADED.
        batch_bytes_max: size of the rows of one batch, in bytes; a larger group is sent alone.
        batch_rows_max: rows of one batch.
        group_bytes_max: a larger group is refused, because the nodes accept mutations up to 16 MiB.
        keys_per_read: keys of one read request.
        page_rows_max: rows of one request of a scan.
        page_bytes: approximate size of the rows that all requests of one page of a scan return together.
    """

    open_seconds: float = 30.0
    request_seconds: float = 5.0
    attempts: int = 4
    retry_seconds: float = 2.0
    in_flight_max: int = 256
    queued_max: int = 4096
    batch_bytes_max: int = 256 << 10
    batch_rows_max: int = 200
    group_bytes_max: int = 12 << 20
    keys_per_read: int = 64
    page_rows_max: int = 2_000
    page_bytes: int = 4 << 20
