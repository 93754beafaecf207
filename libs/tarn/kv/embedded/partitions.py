"""Maps partition names to ids and caches them per connection.

A name keeps its id and kind for ever (a drop removes only rows). So a cached value from a finished
transaction is never stale, and processes need not invalidate each other's caches.
"""

from __future__ import annotations

import sqlite3

from tarn.aio.bounded_map import BoundedMap
from tarn.kv.embedded import sql
from tarn.kv.limits import kinds_mixed_error
from tarn.kv.port import Partition, PartitionKind

__all__ = ["PartitionIds"]

_REMEMBERED_MAX = 16_384


class PartitionIds:
    """The partitions that one connection has seen. Only the connection's thread uses it.

    Attributes:
        known: returns the id and the kind of a name that was found before; None for all others.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: BoundedMap[str, tuple[int, PartitionKind]] = BoundedMap(_REMEMBERED_MAX)
        self.known = self._known.get

    def find(self, partition: Partition) -> int | None:
        """Returns the partition's id, None if the partition was never written to.

        Raises:
            TarnError: INVALID: the name belongs to a partition of the other kind.
        """
        known = self._known.get(partition.name) or self._load(partition.name)
        if known is None:
            return None
        if known[1] is not partition.kind:
            raise kinds_mixed_error(partition, known[1])
        return known[0]

    def create(self, partition: Partition) -> int:
        """As `find`, but creates a missing partition. Call it inside a write transaction."""
        found = self.find(partition)
        if found is None:
            number = sql.KIND_NUMBERS[partition.kind]
            self._connection.execute(sql.CREATE_PARTITION, (partition.name, number))
            found = self.find(partition)
            assert found is not None
        return found

    def forget(self) -> None:
        """Clears the cache after a rollback: ids that were issued since BEGIN do not exist."""
        self._known.clear()

    def _load(self, name: str) -> tuple[int, PartitionKind] | None:
        rows = self._connection.execute(sql.FIND_PARTITION, (name,)).fetchall()
        if not rows:
            return None
        known = (rows[0][0], sql.KINDS_BY_NUMBER[rows[0][1]])
        self._known.put(name, known)
        return known
