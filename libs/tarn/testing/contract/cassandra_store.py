"""Opens a Cassandra store in any process; the contract suite passes it to fresh interpreters."""

from __future__ import annotations

from tarn.kv.cassandra import CassandraKv, CassandraLimits, CassandraSettings, open_cassandra
from tarn.rpc.process.system import SystemClock, SystemIds

__all__ = ["open_store"]


async def open_store(
    settings: CassandraSettings, limits: CassandraLimits | None = None
) -> CassandraKv:
    """Opens a store with this machine's clock and ids; the function and its arguments can be pickled."""
    clock = SystemClock()
    return await open_cassandra(settings, clock=clock, ids=SystemIds(clock), limits=limits)
