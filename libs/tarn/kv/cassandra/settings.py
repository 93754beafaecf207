"""What the driver is told: where the cluster is, and the bounds of one process's store."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["CassandraLimits", "CassandraSettings", "CassandraTls"]


@dataclass(frozen=True, slots=True)
class CassandraTls:
    """TLS to the nodes, whose names or addresses their certificates must hold.

    Attributes:
        ca: certificates that the nodes' must descend from, PEM; None: those of the system.
        cert: our own certificate for nodes that ask for one, PEM; None: they do not.
        key: its private key, PEM.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class CassandraSettings:
    """One cluster, one keyspace.

    Attributes:
        contact_points: `host:port` of some nodes; the others are found through them.
        local_datacenter: whose nodes are asked, and inside which writes are ordered: every process
            of an installation must name the same one (docs/design/kv.md, "Consistency and clocks").
        keyspace: made if it is not there.
        replication_factor: of a keyspace that we make, in `local_datacenter`; 0: as many as it has
            nodes at that moment, 3 at most. Only for clusters that are whole when Tarn first starts.
        username: None: the nodes ask for no password.
        password: never shown.
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
        open_seconds: how long opening is tried again while no node answers: a cluster that rolls or is
            starved for a moment is no reason for a service to give up.
        request_seconds: one request; longer than the nodes' own time-outs (2 s for writes), or their
            answers come too late and every slow write is one of unknown outcome.
        attempts: at least, of a request that may be repeated.
        retry_seconds: how long it is repeated at least; the driver takes half a second to connect again
            when its only node has cut a connection.
        in_flight_max: requests under way; more of them wait.
        queued_max: requests that wait; above it they are refused as OVERLOADED.
        batch_bytes_max: rows of one batch; a larger group goes alone.
        batch_rows_max: rows of one batch.
        group_bytes_max: a larger group is refused: the nodes take mutations of 16 MiB.
        keys_per_read: keys that one request asks for.
        page_rows_max: rows of one request of a scan.
        page_bytes: what the requests of one page of a scan bring in together, roughly.
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
