"""The writes that can be queued. They are plain data until the writer thread applies them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tarn.kv.embedded.transaction import Transaction
from tarn.kv.port import Group, Partition, Predicate, Row, RowName

__all__ = [
    "Action",
    "DeleteCompanions",
    "DeleteIf",
    "DeleteRows",
    "DropHead",
    "SetBeside",
    "SetIf",
    "SetRows",
    "TrimLog",
]

ROW_OVERHEAD_BYTES = 512
"""Added to the size of each row's key and value, for its objects in the queue and for the work of writing
it. With it, a bound in bytes also bounds the number of rows."""

ResultT_co = TypeVar("ResultT_co", covariant=True)


class Action(Protocol[ResultT_co]):
    """One write, applied whole or not at all."""

    @property
    def size_bytes(self) -> int:
        """The size that counts towards the bounds of the queue and of the transaction, in bytes."""
        ...

    def apply(self, transaction: Transaction) -> ResultT_co:
        """Applies the write. Raises `TarnError` only if it has changed nothing."""
        ...


@dataclass(slots=True)
class SetRows:
    """Unconditional writes. Groups are added until the action is queued."""

    partition: Partition
    rows: list[Row] = field(default_factory=list)
    companions: list[Row] = field(default_factory=list)
    size_bytes: int = ROW_OVERHEAD_BYTES

    def add(self, group: Group, size_bytes: int) -> None:
        """Adds the rows of one group, whose rows and companions have that size."""
        self.rows += group.rows
        self.companions += group.companions
        count = len(group.rows) + len(group.companions)
        self.size_bytes += size_bytes + ROW_OVERHEAD_BYTES * count

    def apply(self, transaction: Transaction) -> None:
        """See `Action.apply`."""
        transaction.set_rows(self.partition, self.rows, self.companions)


class SetBeside:
    """The unconditional write of one group, which tells the version of a register row."""

    __slots__ = ("_beside", "_group", "_partition", "size_bytes")

    def __init__(
        self, partition: Partition, group: Group, size_bytes: int, beside: RowName
    ) -> None:
        self._partition = partition
        self._group = group
        self._beside = beside
        count = 1 + len(group.rows) + len(group.companions)
        self.size_bytes = size_bytes + ROW_OVERHEAD_BYTES * count

    def apply(self, transaction: Transaction) -> Predicate | None:
        """See `Action.apply`."""
        version = transaction.version_of(*self._beside)
        transaction.set_rows(self._partition, self._group.rows, self._group.companions)
        return version


@dataclass(frozen=True, slots=True)
class SetIf:
    """A compare-and-set."""

    partition: Partition
    key: bytes
    value: bytes
    predicate: Predicate | None
    companions: Sequence[Row] = ()

    @property
    def size_bytes(self) -> int:
        """See `Action.size_bytes`."""
        return ROW_OVERHEAD_BYTES + len(self.key) + len(self.value) + _size(self.companions)

    def apply(self, transaction: Transaction) -> Predicate:
        """See `Action.apply`."""
        return transaction.set_if(
            self.partition, self.key, self.value, self.predicate, self.companions
        )


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Unconditional deletes."""

    partition: Partition
    keys: Sequence[bytes]

    @property
    def size_bytes(self) -> int:
        """See `Action.size_bytes`."""
        return sum([ROW_OVERHEAD_BYTES + len(key) for key in self.keys])

    def apply(self, transaction: Transaction) -> None:
        """See `Action.apply`."""
        transaction.delete_rows(self.partition, self.keys)


@dataclass(frozen=True, slots=True)
class DeleteCompanions(DeleteRows):
    """As `DeleteRows`, of companions."""

    def apply(self, transaction: Transaction) -> None:
        """See `Action.apply`."""
        transaction.delete_companions(self.partition, self.keys)


@dataclass(frozen=True, slots=True)
class DeleteIf:
    """A compare-and-delete."""

    partition: Partition
    key: bytes
    predicate: Predicate
    companions: Sequence[Row] = ()

    @property
    def size_bytes(self) -> int:
        """See `Action.size_bytes`."""
        return ROW_OVERHEAD_BYTES + len(self.key) + _size(self.companions)

    def apply(self, transaction: Transaction) -> None:
        """See `Action.apply`."""
        transaction.delete_if(self.partition, self.key, self.predicate, self.companions)


@dataclass(frozen=True, slots=True)
class DropHead:
    """One step of dropping a partition. Its result counts the removed rows; 0: the partition is empty."""

    partition: Partition

    @property
    def size_bytes(self) -> int:
        """See `Action.size_bytes`."""
        return ROW_OVERHEAD_BYTES

    def apply(self, transaction: Transaction) -> int:
        """See `Action.apply`."""
        return transaction.drop_head(self.partition)


def _size(companions: Sequence[Row]) -> int:
    return sum([ROW_OVERHEAD_BYTES + len(key) + len(value) for key, value in companions])


@dataclass(frozen=True, slots=True)
class TrimLog:
    """Writes nothing; has the write-ahead log emptied after its transaction."""

    @property
    def size_bytes(self) -> int:
        """See `Action.size_bytes`."""
        return ROW_OVERHEAD_BYTES

    def apply(self, transaction: Transaction) -> None:
        """See `Action.apply`."""
        transaction.log_trim_due = True
