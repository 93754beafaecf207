"""Builds the parts of a store on the running event loop."""

from __future__ import annotations

import random
from dataclasses import dataclass

from cassandra.cluster import Session

from tarn.core.clock import Clock, IdSource
from tarn.kv.cassandra.cluster.retry import Retry
from tarn.kv.cassandra.cluster.session import CassandraSession
from tarn.kv.cassandra.cluster.statements import Statements
from tarn.kv.cassandra.partitions.descriptors import PartitionDescriptors
from tarn.kv.cassandra.partitions.listing import Listing
from tarn.kv.cassandra.rows.partition_queues import PartitionQueues
from tarn.kv.cassandra.rows.registers import Registers
from tarn.kv.cassandra.rows.request_batches import PlainWrites, Reads
from tarn.kv.cassandra.rows.scans import Scans
from tarn.kv.cassandra.rows.timestamps import Timestamps
from tarn.kv.cassandra.settings import CassandraLimits
from tarn.telemetry.meters import Histogram

__all__ = ["Components"]


@dataclass(frozen=True, slots=True)
class Components:
    """The parts of a store, one of each; see their modules."""

    session: CassandraSession
    statements: Statements
    retry: Retry
    timestamps: Timestamps
    reads: Reads
    plain_writes: PlainWrites
    queues: PartitionQueues
    registers: Registers
    descriptors: PartitionDescriptors
    scans: Scans
    listing: Listing

    def measure_batches(self, sizes: Histogram) -> None:
        """Records the number of rows of each request that sets or deletes rows from now on."""
        self.plain_writes.sizes = self.queues.sizes = sizes

    @classmethod
    def of(
        cls,
        driver: Session,
        statements: Statements,
        clock: Clock,
        ids: IdSource,
        limits: CassandraLimits,
    ) -> Components:
        """Builds the parts on a connected session."""
        session = CassandraSession(driver, clock, limits)
        # Randomness only spreads the attempts of many processes; no guarantee depends on it.
        chance = random.Random(ids.nonce())  # noqa: S311
        retry = Retry(clock, chance, limits.attempts, limits.retry_seconds)
        reads = Reads(session, statements, limits, retry)
        queues = PartitionQueues(session, clock, limits)
        registers = Registers(queues, reads, statements, ids, retry)
        descriptors = PartitionDescriptors(reads, registers)
        return cls(
            session=session,
            statements=statements,
            retry=retry,
            timestamps=Timestamps(clock),
            reads=reads,
            plain_writes=PlainWrites(session, statements, limits, retry),
            queues=queues,
            registers=registers,
            descriptors=descriptors,
            scans=Scans(session, statements, limits, retry),
            listing=Listing(session, statements, descriptors, retry),
        )
