"""The effects of the writes of one transaction. Runs in the writer thread, between BEGIN and COMMIT."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from tarn.aio.bounded_map import BoundedMap
from tarn.kv.embedded import sql
from tarn.kv.embedded.partitions import PartitionIds
from tarn.kv.port import (
    Partition,
    PartitionKind,
    Predicate,
    PredicateFailedError,
    Row,
    Versioned,
)

__all__ = ["KnownVersions", "Places", "Transaction", "Versions"]

_DROP_ROWS = 2_000
_DROP_BYTES = 4 << 20
_VERSIONS_KNOWN = 1024
_PLACES_TAKEN = 4096
"""A block of places costs a statement and a page of the log. Some 10^15 blocks are there."""


class Versions:
    """Issues versions of register rows: the number of this opening of the store, then a counter.

    An opening number is never issued twice and one process uses it, so a version identifies one write for
    ever, without randomness and without storing anything per write. A row that is deleted and written
    again with the same value has another version (no ABA).
    """

    def __init__(self, opening: int) -> None:
        self._prefix = opening.to_bytes(6, "big")
        self._count = 0

    def take(self) -> Predicate:
        """Returns a version that was never used."""
        self._count += 1
        return Predicate(self._prefix + self._count.to_bytes(6, "big"))


class Places:
    """Issues the places of companions in the order of all writes of the file, whatever process writes them.

    A counter in the file is what the last block ends with, so no place is issued twice. What is left of a block is
    used only while no other connection commits: its places would be of a later block, and greater than those of ours
    that come after them. Only the writer's thread uses it, inside transactions.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._data_version = -1
        self._next = 0
        # Invariant: the counter of the file is this, or another connection has committed since `_data_version`.
        self._last = -1

    def take(self, count: int, data_version: int) -> int:
        """Returns the first of `count` places, each greater than all that are in the file.

        Args:
            count: at least 1.
            data_version: of the present transaction (`sql.DATA_VERSION`).
        """
        if data_version != self._data_version or self._next + count - 1 > self._last:
            size = max(count, _PLACES_TAKEN)
            (self._last,) = self._connection.execute(sql.TAKE_PLACES, (size,)).fetchall()[0]
            self._next, self._data_version = self._last - size + 1, data_version
        self._next += count
        return self._next - count

    def forget(self) -> None:
        """Gives up the block, after a rollback: the counter may not have it."""
        self._last = -1


class KnownVersions:
    """The versions of register rows that transactions of a connection have read.

    They are known while no other connection commits, and until this one changes a register.
    """

    def __init__(self) -> None:
        self._data_version = -1
        self._versions: BoundedMap[tuple[str, bytes], Predicate] = BoundedMap(_VERSIONS_KNOWN)

    def get(self, name: tuple[str, bytes], data_version: int) -> Predicate | None:
        """Returns the version of a row, by the names of its partition and its key; None: it is not known."""
        if data_version != self._data_version:
            self._versions.clear()
            self._data_version = data_version
        return self._versions.get(name)

    def put(self, name: tuple[str, bytes], version: Predicate) -> None:
        """Keeps what was read after `get`."""
        self._versions.put(name, version)

    def forget(self) -> None:
        """Forgets all: before a register is changed, and after a rollback."""
        self._versions.clear()


class Transaction:
    """Applies writes in order. Rows to set are collected and sent many per statement, before any operation
    that could see them or whose order relative to them matters.

    A method that raises `PredicateFailedError` or INVALID has changed nothing itself, so the transaction
    may continue. A `sqlite3.Error` ends the transaction.

    Attributes:
        log_trim_due: a write of this transaction wants the log emptied afterwards.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        partitions: PartitionIds,
        versions: Versions,
        places: Places,
        known: KnownVersions,
    ) -> None:
        self._connection = connection
        self._partitions = partitions
        self._versions = versions
        self._places = places
        self.log_trim_due = False
        self._plains: list[int | bytes] = []
        self._registers: list[int | bytes] = []
        self._companions: list[tuple[int, bytes, bytes]] = []
        self._known = known
        self._data_version = -1

    def set_rows(
        self, partition: Partition, rows: Sequence[Row], companions: Sequence[Row] = ()
    ) -> None:
        """Writes rows unconditionally; the last row of a key wins."""
        number = self._partitions.create(partition)
        if partition.kind is PartitionKind.PLAIN:
            for key, value in rows:
                self._plains += (number, key, value)
        else:
            self._known.forget()
            for key, value in rows:
                self._registers += (number, key, value, self._versions.take())
        if companions:
            self._accompany(number, companions)

    def version_of(self, partition: Partition, key: bytes) -> Predicate | None:
        """Returns the version of a register row, with the changes of this transaction so far; None if it is absent."""
        name = partition.name, key
        version = self._known.get(name, self._seen())
        if version is None:
            if self._registers:
                self.flush()
            row = self._partitions.find(partition), key
            found = self._connection.execute(sql.GET_VERSION, row).fetchall()
            if found:
                version = Predicate(found[0][0])
                self._known.put(name, version)
        return version

    def _seen(self) -> int:
        """Returns the number that tells whether another connection has committed; the same in all of a transaction."""
        if self._data_version < 0:
            ((self._data_version,),) = self._connection.execute(sql.DATA_VERSION).fetchall()
        return self._data_version

    def _begin_change(self) -> None:
        """To be called before registers are changed by a statement of their own."""
        self.flush()
        self._known.forget()

    def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        """Compare-and-set; see `Kv.set_if`."""
        self._begin_change()
        version = self._versions.take()
        if predicate is None:
            number: int | None = self._partitions.create(partition)
            row = (number, key, value, version)
            changed = self._connection.execute(sql.CREATE_REGISTER, row).rowcount
        else:
            number = self._partitions.find(partition)
            update = (value, version, number, key, predicate)
            changed = self._connection.execute(sql.REPLACE_REGISTER, update).rowcount
        if changed != 1:
            raise PredicateFailedError(key, self._current(number, key))
        self._accompany(number, companions)
        return version

    def delete_rows(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """Removes rows that exist."""
        self._begin_change()
        number = self._partitions.find(partition)
        if number is not None:
            delete = sql.STATEMENTS[partition.kind].delete
            self._connection.executemany(delete, [(number, key) for key in keys])

    def delete_companions(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """Removes companions that exist."""
        self.flush()
        number = self._partitions.find(partition)
        if number is not None:
            delete = sql.COMPANION_STATEMENTS.delete
            self._connection.executemany(delete, [(number, key) for key in keys])

    def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        companions: Sequence[Row] = (),
    ) -> None:
        """Compare-and-delete; see `Kv.delete_if`."""
        self._begin_change()
        number = self._partitions.find(partition)
        delete = (number, key, predicate)
        if self._connection.execute(sql.DELETE_REGISTER, delete).rowcount != 1:
            raise PredicateFailedError(key, self._current(number, key))
        self._accompany(number, companions)

    def _accompany(self, number: int | None, companions: Sequence[Row]) -> None:
        """Adds companions, which get their places in the order of the calls."""
        if companions:
            assert number is not None, "its row was there"
            self._companions += [(number, key, value) for key, value in companions]

    def drop_head(self, partition: Partition) -> int:
        """Removes the first rows of a partition, a few thousand rows or a few MiB at most, so that other
        writers can run in between; after the rows, the companions. Returns how many it removed; 0: the partition is
        empty."""
        self._begin_change()
        number = self._partitions.find(partition)
        if number is None:
            return 0
        rows = self._drop_head(sql.STATEMENTS[partition.kind], number)
        return rows or self._drop_head(sql.COMPANION_STATEMENTS, number)

    def _drop_head(self, statements: sql.Statements, number: int) -> int:
        limit = _DROP_ROWS
        while True:
            head = self._connection.execute(statements.measure_head, (number, limit))
            last_key, count, size = head.fetchall()[0]
            if count <= 1 or size <= _DROP_BYTES:
                break
            # Shrink at least by half, because rows may differ in size.
            limit = max(1, min(count // 2, int(count * _DROP_BYTES / size)))
        if count:
            self._connection.execute(statements.delete_to, (number, last_key))
        return int(count)

    def flush(self) -> None:
        """Sends the collected rows to sqlite. Must be called before COMMIT."""
        if self._plains:
            self._put(sql.STATEMENTS[PartitionKind.PLAIN], self._plains)
        if self._registers:
            self._put(sql.STATEMENTS[PartitionKind.REGISTER], self._registers)
        if self._companions:
            first = self._places.take(len(self._companions), self._seen())
            placed: list[int | bytes] = []
            for place, row in enumerate(self._companions, first):
                placed += (*row, place)
            self._companions.clear()
            self._put(sql.COMPANION_STATEMENTS, placed)

    def _put(self, statements: sql.Statements, values: list[int | bytes]) -> None:
        at = 0
        left = len(values) // statements.columns
        while left:
            count = min(sql.ROWS_PER_STATEMENT, 1 << (left.bit_length() - 1))
            end = at + count * statements.columns
            self._connection.execute(statements.put[count], values[at:end])
            at = end
            left -= count
        values.clear()

    def _current(self, number: int | None, key: bytes) -> Versioned | None:
        get = sql.STATEMENTS[PartitionKind.REGISTER].get
        rows = self._connection.execute(get, (number, key)).fetchall()
        return Versioned(rows[0][0], Predicate(rows[0][1])) if rows else None
