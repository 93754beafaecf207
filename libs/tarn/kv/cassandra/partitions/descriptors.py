"""Partition descriptors: one row per partition name, which the first write to the partition creates.

A descriptor holds the kind and the number of buckets, so that all processes use a name in the same way, and
the *generation*. A dropped partition that is written again continues under another physical name, which the
tombstones of the drop do not cover (they lie in the future, see timestamps.py). Live descriptors are cached
for good. So a process that used a name before *another* process dropped it must not write to it again: its
writes would be lost. Tarn never reuses a dropped name.

The row is in table `cas`, in bucket -1 of the name itself, and outlives the partition. It takes about 100
bytes for each staging token that ever existed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from tarn.aio.bounded_map import BoundedMap
from tarn.aio.single_flight import SingleFlight
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.cassandra.cluster.outcomes import read_error
from tarn.kv.cassandra.cluster.statements import open_value
from tarn.kv.cassandra.partitions.buckets import BUCKETS_MAX
from tarn.kv.cassandra.rows.registers import Registers
from tarn.kv.cassandra.rows.request_batches import CassandraPartition, Reads
from tarn.kv.limits import kinds_mixed_error
from tarn.kv.port import (
    OutcomeUnknownError,
    Partition,
    PartitionKind,
    Predicate,
    PredicateFailedError,
    Versioned,
)

__all__ = ["DESCRIPTOR_BUCKET", "PartitionDescriptor", "PartitionDescriptors"]

DESCRIPTOR_BUCKET = -1
_KEY = b""
_CACHED_MAX = 65_536


@dataclass(frozen=True, slots=True)
class PartitionDescriptor:
    """The state of one partition.

    Attributes:
        generation: the number of drops that were followed by a write.
        dropped: whether the current generation is dropped.
    """

    kind: PartitionKind
    buckets: int
    generation: int = 0
    dropped: bool = False

    def physical(self, name: str) -> bytes:
        """The physical name under which the rows are stored."""
        return b"%s\0%d" % (name.encode(), self.generation)

    def check(self, partition: Partition) -> None:
        """Raises `TarnError` INVALID if `partition` has another kind or another number of buckets."""
        if partition.kind is not self.kind:
            raise kinds_mixed_error(partition, self.kind)
        if partition.buckets != self.buckets:
            text = (
                f"partition {partition.name!r} has {self.buckets} buckets, not {partition.buckets}"
            )
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, partition=partition.name)

    def encode(self) -> bytes:
        """Encodes the descriptor as text, which people can read in a CQL shell."""
        state = "dropped" if self.dropped else "live"
        return f"{self.kind.value} {self.buckets} {self.generation} {state}".encode()

    @classmethod
    def decode(cls, value: bytes) -> PartitionDescriptor:
        """Decodes the descriptor of a row.

        Raises:
            TarnError: CORRUPT: the value is not a descriptor.
        """
        try:
            kind, buckets, generation, state = value.decode().split(" ")
            return cls(PartitionKind(kind), int(buckets), int(generation), state == "dropped")
        except ValueError as error:
            text = f"the descriptor of a partition cannot be read: {value!r}"
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text) from error


class PartitionDescriptors:
    """Finds and creates descriptors. Belongs to the running event loop."""

    def __init__(self, reads: Reads, registers: Registers) -> None:
        self._reads = reads
        self._registers = registers
        # Invariant: only live descriptors.
        self._known: BoundedMap[str, PartitionDescriptor] = BoundedMap(_CACHED_MAX)
        # Tasks that make a descriptor at once would only race each other.
        self._making = SingleFlight[str, PartitionDescriptor]()

    async def find(self, partition: Partition) -> bytes | None:
        """Returns the physical name; None if the partition holds nothing.

        Raises:
            TarnError: INVALID: the partition is of another kind. UNAVAILABLE: the nodes do not answer.
        """
        descriptor = self._known.get(partition.name)
        if descriptor is None:
            _check_buckets(partition)
            versioned = await self._read(partition.name)
            if versioned is None:
                return None
            descriptor = PartitionDescriptor.decode(versioned.value)
        descriptor.check(partition)
        if descriptor.dropped:
            return None
        self._known.put(partition.name, descriptor)
        return descriptor.physical(partition.name)

    async def describe(self, name: str) -> PartitionDescriptor | None:
        """Returns the descriptor of a name, dropped or not; None if the name was never written to.

        Raises:
            TarnError: CORRUPT: the descriptor cannot be read. UNAVAILABLE: the nodes do not answer.
        """
        versioned = await self._read(name)
        return None if versioned is None else PartitionDescriptor.decode(versioned.value)

    async def require(self, partition: Partition) -> bytes:
        """Returns the physical name to write to; creates the partition if it does not exist.

        Raises:
            TarnError: as `find`. The outcome is never unknown, because the caller's write was not sent yet.
        """
        descriptor = self._known.get(partition.name)
        if descriptor is not None:
            descriptor.check(partition)
            return descriptor.physical(partition.name)
        _check_buckets(partition)
        descriptor = await self._making.run(partition.name, partial(self._make, partition))
        descriptor.check(partition)
        return descriptor.physical(partition.name)

    async def drop(self, partition: Partition) -> bytes | None:
        """Marks a partition as dropped. Returns the physical name to empty, None if there is none.

        Raises:
            TarnError: as `find`.
        """
        versioned = await self._read(partition.name)
        while versioned is not None:
            descriptor = PartitionDescriptor.decode(versioned.value)
            descriptor.check(partition)
            self._known.pop(partition.name)
            if descriptor.dropped:
                return descriptor.physical(partition.name)
            versioned = await self._change(
                partition.name, replace(descriptor, dropped=True), versioned.predicate
            )
        return None

    async def _make(self, partition: Partition) -> PartitionDescriptor:
        """Returns the live descriptor, and creates it if need be."""
        versioned = await self._read(partition.name)
        while True:
            if versioned is None:
                descriptor = PartitionDescriptor(partition.kind, partition.buckets)
                versioned = await self._change(partition.name, descriptor, None)
            else:
                descriptor = PartitionDescriptor.decode(versioned.value)
                descriptor.check(partition)
                if not descriptor.dropped:
                    self._known.put(partition.name, descriptor)
                    return descriptor
                descriptor = replace(
                    descriptor, generation=descriptor.generation + 1, dropped=False
                )
                versioned = await self._change(partition.name, descriptor, versioned.predicate)

    async def _change(
        self, name: str, descriptor: PartitionDescriptor, predicate: Predicate | None
    ) -> Versioned | None:
        """Tries to store a descriptor; returns the descriptor that is stored afterwards."""
        place = CassandraPartition(name.encode(), DESCRIPTOR_BUCKET)
        try:
            version = await self._registers.set_if(place, _KEY, descriptor.encode(), predicate)
        except PredicateFailedError as error:
            return error.current
        except OutcomeUnknownError as error:
            # The caller's own write was not sent, so its outcome is not unknown.
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, str(error)) from error
        return Versioned(descriptor.encode(), version)

    async def _read(self, name: str) -> Versioned | None:
        try:
            found = await self._reads.read(
                self._reads.cas, name.encode(), {DESCRIPTOR_BUCKET: (_KEY,)}
            )
        except TarnError:
            raise
        except Exception as error:
            raise read_error(error) from error
        row = found[DESCRIPTOR_BUCKET].get(_KEY)
        return None if row is None else Versioned(open_value(row[1]), Predicate(row[2]))


def _check_buckets(partition: Partition) -> None:
    if not 1 <= partition.buckets <= BUCKETS_MAX:
        text = (
            f"partition {partition.name!r} has {partition.buckets} buckets, not 1 to {BUCKETS_MAX}"
        )
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, partition=partition.name)
