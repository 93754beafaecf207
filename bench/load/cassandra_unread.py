"""The Cassandra store without its read before a plain write: what `seen + 1` costs is the difference.

For measuring only. Such a write loses to an earlier one whose clock was ahead; production has no switch
for it, and this reaches into the store's private parts on purpose.
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
    """Answers at once that no row has a timestamp; reads everything else."""

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
    """A second store on the same connection, partitions. Closing the first one closes it."""
    limits = CassandraLimits()
    parts = kv._parts  # noqa: SLF001 - see above
    blind = replace(parts, reads=_Unread.of(parts, limits))
    return CassandraKv(kv._cluster, blind, limits, ())  # noqa: SLF001 - see above
