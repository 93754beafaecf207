"""How a store is, for health checks and dashboards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cassandra.pool import Host

from tarn.core.errors import TarnError
from tarn.kv.cassandra.outcomes import read_error
from tarn.kv.cassandra.schema import SCHEMA_BUCKET, SCHEMA_KEY, SCHEMA_PARTITION
from tarn.kv.cassandra.session import CassandraSession
from tarn.kv.cassandra.turns import Reads

__all__ = ["CassandraHealth", "look_at"]


@dataclass(frozen=True, slots=True)
class CassandraHealth:
    """A moment.

    Attributes:
        nodes: of the local data centre.
        nodes_up: of them, those that the driver has not marked down.
        in_flight: requests under way.
        queued: requests that wait to be sent.
        answer_seconds: how long a quorum read took just now.
    """

    nodes: int
    nodes_up: int
    in_flight: int
    queued: int
    answer_seconds: float

    @classmethod
    def of(
        cls,
        hosts: Iterable[Host],
        local_datacenter: str,
        session: CassandraSession,
        answer_seconds: float,
    ) -> CassandraHealth:
        """Counts."""
        local = [host for host in hosts if host.datacenter == local_datacenter]
        return cls(
            nodes=len(local),
            nodes_up=sum(1 for host in local if host.is_up),
            in_flight=session.in_flight,
            queued=session.queued,
            answer_seconds=answer_seconds,
        )


async def look_at(reads: Reads) -> None:
    """Reads the row of the schema, at quorum.

    Raises:
        TarnError: UNAVAILABLE.
    """
    try:
        await reads.read(reads.cas, SCHEMA_PARTITION, {SCHEMA_BUCKET: (SCHEMA_KEY,)})
    except TarnError:
        raise
    except Exception as error:
        raise read_error(error) from error
