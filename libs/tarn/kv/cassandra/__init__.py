"""The production engine: the KV port on Apache Cassandra, 4.1 or later (docs/design/kv.md, "Cassandra").

How to run it: docs/operate/cassandra.md.

A store is put together from small parts, bottom up: `session` (event loop and driver thread),
`ticks` (one request per bucket and tick), `queues` (one conditional write per bucket at a time), `registers`
(compare-and-set and its unknown outcomes), `descriptors` (what a partition is), `scans` over `buckets`,
and `store`, which is the port. `outcomes` says what a failure means, `retry` is the only place that
tries again, `connection` the only one that consistency comes from.
"""

from __future__ import annotations

from tarn.kv.cassandra.opening import open_cassandra
from tarn.kv.cassandra.settings import CassandraLimits, CassandraSettings, CassandraTls
from tarn.kv.cassandra.store import CassandraKv

__all__ = [
    "CassandraKv",
    "CassandraLimits",
    "CassandraSettings",
    "CassandraTls",
    "open_cassandra",
]
