"""The Cassandra store without its read before a plain write, to measure the cost of `seen + 1`.

For benchmarks only. Such a write loses to an earlier one whose clock was ahead. Production has no switch
for it, so this module uses private parts of the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tarn.kv.cassandra import CassandraKv, CassandraLimits
from tarn.kv.cassandra.cluster.retry import Retry
from tarn.kv.cassandra.components import Components
from tarn.kv.cassandra.rows.request_batches import Found, Query, Reads

__all__ = ["without_reading"]


class _Unread(Reads):
    """Returns immediately that no row has a timestamp; all other reads are real."""

    @classmethod
    def of(cls, parts: Components, limits: CassandraLimits) -> _Unread:
        return cls(parts.session, parts.statements, limits, parts.retry)

    async def read(
        self,
        query: Query,
        p: bytes,
        keys_of: Mapping[int, Iterable[bytes]],
        retry: Retry | None = None,
    ) -> dict[int, Found]:
        if query is self.stamps:
            return {bucket: {} for bucket in keys_of}
        return await super().read(query, p, keys_of, retry)


def without_reading(kv: CassandraKv) -> CassandraKv:
    """Returns a second store on the same connection and partitions. Closing the first one closes it."""
    limits = CassandraLimits()
    parts = kv._parts  # noqa: SLF001 - see above
    blind = replace(parts, reads=_Unread.of(parts, limits))
    return CassandraKv(kv._cluster, blind, limits, ())  # noqa: SLF001 - see above
