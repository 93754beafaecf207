"""The KV port: `(partition, key) → value`, keys in byte order, every method async and batch-first.

The port is deliberately small (docs/design/kv.md, "Contract") and independent of any engine. A partition is
declared as one of two kinds, because Cassandra must never mix them on a row: *register* (every write is
linearized) and *plain* (the last write wins). Drivers: `mem`, `embedded` (sqlite) and `cassandra`. One
contract suite (`tarn.testing.contract.kv_contract`) checks that all of them do what this module says.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Final, NewType, Protocol, runtime_checkable

import pyarrow as pa

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.value import hot_value

__all__ = [
    "COMPANIONS_MAX",
    "COMPANION_BYTES_MAX",
    "COMPANION_KEYS",
    "Companion",
    "CompanionName",
    "Group",
    "Kv",
    "PAST_COMPANIONS",
    "PartitionInfo",
    "ListingKv",
    "OutcomeUnknownError",
    "Partition",
    "PartitionKind",
    "Predicate",
    "PredicateFailedError",
    "ROWS_AT_ONCE_MAX",
    "ROW_SCHEMA",
    "ReadKv",
    "ReadsAtOnce",
    "ReadsTogether",
    "Row",
    "ScanKv",
    "SetsBeside",
    "SiftedPage",
    "RowFilter",
    "RowName",
    "Versioned",
    "row_batch",
    "KEY_BYTES_MAX",
    "SCAN_LIMIT_MAX",
    "VALUE_BYTES_MAX",
]

KEY_BYTES_MAX = 4096
VALUE_BYTES_MAX = 1 << 20
SCAN_LIMIT_MAX = 10_000
ROWS_AT_ONCE_MAX = 32
"""Rows of one `ReadsAtOnce.get_at_once`."""
COMPANIONS_MAX = 8
"""Companions of one group, or of one compare-and-set."""
COMPANION_BYTES_MAX = VALUE_BYTES_MAX + (16 << 10)
"""The value of a companion: a row's value, and what a journal says about it."""
COMPANION_KEYS: Final = b"journal/"
"""How the keys of companions begin; those of other rows do not. An engine that has one space of keys in a partition
tells them apart by it."""
PAST_COMPANIONS: Final = b"journal0"
"""The least key that is greater than all keys of companions."""

Row = tuple[bytes, bytes]
"""A key and its value."""

ROW_SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])
"""The schema of the batches that `Kv.scan_arrow` yields."""


def row_batch(keys: Sequence[bytes], values: Sequence[bytes]) -> pa.RecordBatch:
    """A batch of `ROW_SCHEMA` from a list of keys and the list of their values."""
    columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
    return pa.record_batch(columns, schema=ROW_SCHEMA)


Predicate = NewType("Predicate", bytes)
"""The version of a value, as `get_many` returned it. Opaque: callers only pass it back to the store, or compare two of
one row. A row that has the same version has the same value: versions are not used again.
"""


class PartitionKind(enum.Enum):
    """How writes to a partition are ordered."""

    REGISTER = "register"
    PLAIN = "plain"

    __hash__ = object.__hash__  # by identity: an enumeration's own hash costs every read


@hot_value
class Partition:
    """A set of rows that are stored together. The first write creates it; it can only be dropped whole.

    Attributes:
        name: unique; starts with the installation id. `tarn.kv.keys` has all layouts.
        kind: fixed for the life of the partition; using one name with two kinds is an error.
        buckets: the number of physical pieces into which a distributed engine splits it; single-machine
            engines ignore it. Part of the partition's identity: it never changes for a name.
    """

    name: str
    kind: PartitionKind
    buckets: int = 1

    def __hash__(self) -> int:
        return hash(self.name)  # unique; hashing the enum member costs a call


RowName = tuple[Partition, bytes]
"""A partition and a key of it."""


@hot_value
class Versioned:
    """A value and the predicate that identifies this version of it."""

    value: bytes
    predicate: Predicate


@hot_value
class Group:
    """Rows that are written atomically, such as an uploaded object's entry and its note.

    Attributes:
        anchor: key of the main row; decides the bucket. Only scans find the other rows (`Kv.get_many`).
        rows: at least one.
        companions: written with the rows, at most `COMPANIONS_MAX`; see `Companion`.
    """

    anchor: bytes
    rows: tuple[Row, ...]
    companions: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class Companion:
    """A row that is applied if and only if the rows beside it are, such as the event of a journal.

    Only `Kv.scan_companions` finds it. It goes with its partition, or by `Kv.delete_companions`.

    Attributes:
        key: begins with `COMPANION_KEYS`. A key that is written again replaces the companion.
        order: of its write. Of the companions of one row, the one with the greatest (order, value of the row) is that
            of the row's last write. Orders of different stores, and of different partitions, cannot be compared.
    """

    key: bytes
    value: bytes
    order: int


CompanionName = tuple[bytes, bytes]
"""Anchor of the group, or key of the row, beside which a companion was written; and the companion's own key."""


class PredicateFailedError(TarnError):
    """The stored value is not the expected one. The write was not applied.

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
    """The write may or may not have been applied. A read with `settle=True` decides."""

    def __init__(self, detail: str) -> None:
        super().__init__(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, f"outcome unknown: {detail}")


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The rows that `Kv.scan_without` leaves out.

    Attributes:
        value_begins: rows whose value begins so. Some values must be greater than all that begin so.
        hidden_by: partitions of either kind. Rows whose key has a row there, of any value, are unwanted, too.
    """

    value_begins: bytes
    hidden_by: Sequence[Partition] = ()


@dataclass(frozen=True, slots=True)
class SiftedPage:
    """A page of `Kv.scan_without`.

    Attributes:
        rows: in byte order.
        upto: every row up to and including this key was examined; None: every row of the range.
        probes: rows that were looked for one by one in a partition that may hide them. 0: the engine need not.
    """

    rows: list[Row]
    upto: bytes | None
    probes: int = 0


class ScanKv(Protocol):
    """The part of the port that bulk reads need."""

    def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`."""
        ...

    async def close(self) -> None:
        """See `Kv.close`."""
        ...


class Kv(Protocol):
    """One store. Tasks of one event loop may share an instance."""

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """Returns the values in the order of `keys`, None for each absent key.

        A row that a group wrote beside its anchor lies in the anchor's bucket. In a partition with several
        buckets, only scans are certain to find it; this method may return None for it.

        A read that begins after a write was acknowledged returns that write or a later one. With `settle`,
        an earlier compare-and-set of unknown outcome is decided before the answer (a SERIAL read on
        Cassandra; an ordinary read on the other engines).
        """
        ...

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """Writes groups. Each group is written whole or not at all, and succeeds or fails by itself.

        Returns one outcome per group, in order: None if it is durable, else the error
        (`OutcomeUnknownError` if it may have been written). In a plain partition the last write wins.
        """
        ...

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        """Compare-and-set in a register partition. Returns the predicate of the new version.

        Args:
            partition: of kind REGISTER.
            key: key of the row.
            value: the new value.
            predicate: None if the key must be absent, else the predicate that `get_many` returned.
            companions: rows that are applied if and only if the condition holds; see `Companion`.

        Raises:
            PredicateFailedError: the stored version is another one. Nothing was applied; the error carries
                the current value.
            OutcomeUnknownError: the write may or may not have been applied.
        """
        ...

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """Removes rows; absent keys are no error. Never use it for a key of a plain partition that may be
        written again: there a delete is a tombstone value (docs/design/kv.md, "Deletes and tombstones")."""
        ...

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        """Removes a row of a register partition if its version is still `predicate`, and adds `companions` (`set_if`).

        Raises:
            PredicateFailedError: as `set_if`; also if the key is absent (`current` is None).
            OutcomeUnknownError: as `set_if`.
        """
        ...

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """Returns one page: up to `limit` rows with `start <= key < end` in byte order (`end` None: up to
        the last key). A page shorter than `limit` ends the range. Pages are separate reads: a page holds
        every row that was acknowledged before it was requested, and may hold later ones."""
        ...

    async def scan_without(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
    ) -> SiftedPage:
        """Returns up to `limit` rows of `[start, end)`, as `scan` does, without the unwanted ones. The engine
        skips those as cheaply as it can (docs/design/tombstones.md). A page also ends after many examined rows,
        possibly without a row, but always after at least one examined row. The partitions of `hidden_by` are
        read with the page or after it, so a row that hides another is there for later reads."""
        ...

    def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Yields the same rows for bulk work, as record batches of two binary columns `key` and `value`, in
        byte order. Memory is bounded by a few batches of at most 65,536 rows each."""
        ...

    async def scan_companions(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Companion]:
        """Returns one page of companions, as `scan` returns rows: up to `limit` of `[start, end)`, by their keys.

        On a distributed engine, the companion of a write whose outcome is unknown may appear later.
        """
        ...

    async def delete_companions(self, partition: Partition, names: Sequence[CompanionName]) -> None:
        """Removes companions, and nothing else; absent ones are no error. Their keys are never written again.

        Each is removed by itself. After an error, some may be removed.

        Raises:
            TarnError: INVALID: a name is not that of a companion. UNAVAILABLE: some were not removed, or may be removed
                later (`OutcomeUnknownError`).
        """
        ...

    async def drop_partition(self, partition: Partition) -> None:
        """Removes a partition and all of its rows and companions without stalling other writers. Idempotent.
        A concurrent write may leave a row behind, so callers drop the partition again later."""
        ...

    async def close(self) -> None:
        """Finishes the operations that have begun and releases the store. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition that a store holds.

    Attributes:
        buckets: None if the engine does not split partitions and does not record the declared number.
    """

    name: str
    kind: PartitionKind
    buckets: int | None


class ListingKv(Kv, Protocol):
    """A store that can list its partitions, for tools that copy all of it (`tarn.snapshot.store`).

    Every driver implements it, although services never need it: they follow references between records.
    """

    def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        """Yields the partitions whose names start with `prefix`, each once, in no particular order.

        Every partition with a row that was acknowledged before the call is listed. A partition that is empty,
        or has become empty, may be listed or not.

        Raises:
            TarnError: CORRUPT: there are rows that belong to no known partition.
        """
        ...


@runtime_checkable
class ReadsTogether(Protocol):
    """A store for which rows of several partitions are one read, which costs less than a read of each.

    Others read partitions at the same time, so no read waits for another.
    """

    async def get_together(self, rows: Sequence[RowName]) -> list[Versioned | None]:
        """Returns the values of rows of register partitions in their order, None for each absent row.

        Each is read as by `Kv.get_many`; they need not be of one moment.
        """
        ...


@runtime_checkable
class ReadsAtOnce(Protocol):
    """A store in a file of this machine, which reads a few rows in less time than a task of the event loop costs."""

    def get_at_once(self, rows: Sequence[RowName]) -> list[Versioned | None]:
        """Returns the values of rows of any partitions in their order, None for each absent row; never waits.

        Each is read as by `Kv.get_many`, and all are of one moment: no transaction lies between them. Only that nothing
        was ever written to a partition may have been found a moment before.

        Args:
            rows: 1 to `ROWS_AT_ONCE_MAX`.
        """
        ...

    def get_at_once_beside(
        self, rows: Sequence[RowName], beside: RowName
    ) -> tuple[list[Versioned | None], Predicate | None]:
        """As `get_at_once`, and returns the version of a further register row, None if it is absent; it costs half as
        much as the row. A row that still has a version has its value.

        Args:
            rows: 1 to `ROWS_AT_ONCE_MAX` - 1.
            beside: the further row.
        """
        ...


@runtime_checkable
class SetsBeside(Protocol):
    """A store that tells of another row what it was when a write was applied, in the same atomic step."""

    def set_beside(
        self, partition: Partition, group: Group, beside: RowName
    ) -> Awaitable[Predicate | None]:
        """Writes a group as `Kv.set_many` does, and returns the version of a register row, None if it is absent.

        The version is that of one moment of the step that applies the group: each other step, of whatever process,
        comes before it or after it as a whole. So whoever changes that version later finds the rows of the group.

        Args:
            partition: of the group.
            group: rows and companions.
            beside: another row, of a register partition.

        Raises:
            TarnError: the error of the group, as `Kv.set_many` returns it.
        """
        ...


class ReadKv(Protocol):
    """The methods of `ListingKv` that read, with the same contract. Every `ListingKv` is a `ReadKv`.

    Code that inspects a store (`tarn fsck`) uses it, because it has no method that changes anything.
    """

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`."""
        ...

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        ...

    def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`."""
        ...

    def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        """See `ListingKv.partitions`."""
        ...

    async def close(self) -> None:
        """See `Kv.close`."""
        ...
