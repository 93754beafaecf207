"""The KV port: `(partition, key) → value`, keys in byte order, everything async and batch-first.

It is deliberately small (docs/design/kv.md, "Contract") and owes nothing to one engine. A
partition is declared as one of two kinds because Cassandra must never mix them on a row: *register*
(every write is linearised) and *plain* (last write wins). Drivers: `mem`, `embedded` (sqlite),
`cassandra`; one contract suite (`tarn.testing.contract.kv_contract`) holds all of them to this text.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

import pyarrow as pa

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.value import hot_value

__all__ = [
    "Group",
    "Kv",
    "Listed",
    "ListingKv",
    "OutcomeUnknownError",
    "Partition",
    "PartitionKind",
    "Predicate",
    "PredicateFailedError",
    "Row",
    "ScanKv",
    "Versioned",
    "KEY_BYTES_MAX",
    "SCAN_LIMIT_MAX",
    "VALUE_BYTES_MAX",
]

KEY_BYTES_MAX = 4096
VALUE_BYTES_MAX = 1 << 20
SCAN_LIMIT_MAX = 10_000

Row = tuple[bytes, bytes]
"""Key and value."""

Predicate = NewType("Predicate", bytes)
"""Opaque: the version of a value as `get_many` returned it. Only ever handed back to the store."""


class PartitionKind(enum.Enum):
    """How writes to a partition are ordered."""

    REGISTER = "register"
    PLAIN = "plain"


@hot_value
class Partition:
    """Where rows live together. Created by its first write; dropped as a whole.

    Attributes:
        name: starts with the installation id; unique; see `tarn.kv.keys` for all layouts.
        kind: fixed for the life of the partition; using a name with two kinds is an error.
        buckets: how many physical pieces a distributed engine splits it into; single-machine
            engines ignore it. Part of the partition's identity: it never changes under a name.
    """

    name: str
    kind: PartitionKind
    buckets: int = 1

    def __hash__(self) -> int:
        return hash(self.name)  # says it all; the hash of an enum's member is a call of its own


@hot_value
class Versioned:
    """A value and the predicate that names this version of it."""

    value: bytes
    predicate: Predicate


@hot_value
class Group:
    """Rows that land atomically: a staged entry and its journal event, for instance.

    Attributes:
        anchor: decides the bucket; the key of the main row. The other rows are for scans (`Kv.get_many`).
        rows: at least one.
    """

    anchor: bytes
    rows: tuple[Row, ...]


class PredicateFailedError(TarnError):
    """The stored value is not the expected one: surely not applied.

    Attributes:
        current: the value that is stored now, None if the key is absent.
    """

    def __init__(self, key: bytes, current: Versioned | None) -> None:
        found = "another version" if current is not None else "no value"
        super().__init__(
            Kind.CONFLICT, Reason.REF_MOVED, f"key {key!r} holds {found}", key=repr(key)
        )
        self.current = current


class OutcomeUnknownError(TarnError):
    """The write may or may not have been applied; settle it with a read that may (`settle=True`)."""

    def __init__(self, detail: str) -> None:
        super().__init__(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, f"outcome unknown: {detail}")


class ScanKv(Protocol):
    """What bulk work needs of a store."""

    def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`."""
        ...

    async def close(self) -> None:
        """See `Kv.close`."""
        ...


class Kv(Protocol):
    """One store. Instances are safe to share between tasks of one event loop."""

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """Values in the order of `keys`, None where absent.

        A row that a group put beside its anchor lies in the anchor's bucket. In a partition of several
        buckets only scans find it for sure; this may answer None for it.

        A read that begins after a write was acknowledged sees that write or a later one. With
        `settle`, an undecided earlier compare-and-set is decided before the answer (a SERIAL read
        on Cassandra; the same read elsewhere).
        """
        ...

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """Writes groups; each lands whole or not at all, and they succeed or fail one by one.

        Returns one outcome per group, in order: None when durable, else why not
        (`OutcomeUnknownError` when it may have landed). In a plain partition the last write wins.
        """
        ...

    async def set_if(
        self, partition: Partition, key: bytes, value: bytes, predicate: Predicate | None
    ) -> Predicate:
        """Compare-and-set in a register partition; returns the new version's predicate.

        Args:
            partition: of kind REGISTER.
            key: the row.
            value: its new value.
            predicate: None when the key must be absent, else what `get_many` returned.

        Raises:
            PredicateFailedError: surely not applied; carries the current value.
            OutcomeUnknownError: may have been applied.
        """
        ...

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """Removes rows, absent ones too. Never for a key of a plain partition that may be written
        again: there a delete is a tombstone value (docs/design/kv.md, "Deletes and tombstones")."""
        ...

    async def delete_if(self, partition: Partition, key: bytes, predicate: Predicate) -> None:
        """Removes a row of a register partition if its version is still `predicate`.

        Raises:
            PredicateFailedError: as `set_if`; also when the key is absent (`current` is None).
            OutcomeUnknownError: as `set_if`.
        """
        ...

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """One page: up to `limit` rows with `start <= key < end` in byte order (end None: to the
        last). Shorter than `limit` means the range is exhausted. Pages are separate reads: rows
        that were acknowledged before a page was asked for are in it, later ones may be."""
        ...

    def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """The same rows as record batches of two binary columns `key` and `value`, in byte order,
        for bulk work. Memory is bounded by a few batches of at most 65,536 rows."""
        ...

    async def drop_partition(self, partition: Partition) -> None:
        """Removes a partition and all of its rows without stalling other writers. Idempotent.
        A write that was under way may leave a row behind: callers drop again later."""
        ...

    async def close(self) -> None:
        """Finishes what was begun and releases the store. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Listed:
    """A partition that a store holds.

    Attributes:
        buckets: None: the engine splits nothing and does not remember how many were declared.
    """

    name: str
    kind: PartitionKind
    buckets: int | None


class ListingKv(Kv, Protocol):
    """A store that can say what it holds, for tools that take all of it (`tarn.kv.transfer`).

    Services go from record to record and never need it; every driver has it all the same.
    """

    def partitions(self, prefix: str) -> AsyncIterator[Listed]:
        """The partitions whose names start with `prefix`, each once, in no order.

        None that holds a row acknowledged before the call is missing; one that holds nothing (any
        more) may be there or not.

        Raises:
            TarnError: CORRUPT: there are rows that belong to no known partition.
        """
        ...
