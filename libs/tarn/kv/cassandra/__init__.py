"""The store for clusters: the KV port on Apache Cassandra, 4.1 or later (docs/design/kv.md, "Cassandra").

How to operate it: docs/operate/cassandra.md.

The modules, bottom up: `session` connects the event loop to the driver's thread; `request_batches` sends one
request per bucket and tick; `partition_queues` sends one conditional write per bucket at a time; `registers`
does compare-and-sets and settles unknown outcomes; `descriptors` records the kind of a partition; `scans` reads over
`buckets`; `store` is the port. `outcomes` decides the meaning of a failure, `retry` is the only module that retries,
and `connection` the only one that sets consistency levels.
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
