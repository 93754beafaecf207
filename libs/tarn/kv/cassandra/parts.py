"""What a store is made of, put together on the running event loop."""

from __future__ import annotations

import random
from dataclasses import dataclass

from cassandra.cluster import Session

from tarn.core.clock import Clock, IdSource
from tarn.kv.cassandra.heads import Heads
from tarn.kv.cassandra.lanes import Lanes
from tarn.kv.cassandra.listing import Listing
from tarn.kv.cassandra.registers import Registers
from tarn.kv.cassandra.retry import Retry
from tarn.kv.cassandra.scans import Scans
from tarn.kv.cassandra.session import CassandraSession
from tarn.kv.cassandra.settings import CassandraLimits
from tarn.kv.cassandra.statements import Statements
from tarn.kv.cassandra.timestamps import Timestamps
from tarn.kv.cassandra.turns import PlainWrites, Reads

__all__ = ["Parts"]


@dataclass(frozen=True, slots=True)
class Parts:
    """One of each; see their modules."""

    session: CassandraSession
    statements: Statements
    retry: Retry
    timestamps: Timestamps
    reads: Reads
    plain_writes: PlainWrites
    registers: Registers
    heads: Heads
    scans: Scans
    listing: Listing

    @classmethod
    def of(
        cls,
        driver: Session,
        statements: Statements,
        clock: Clock,
        ids: IdSource,
        limits: CassandraLimits,
    ) -> Parts:
        """The parts on a connected session."""
        session = CassandraSession(driver, clock, limits)
        # Chance spreads the attempts of many processes; it protects nothing.
        chance = random.Random(ids.nonce())  # noqa: S311
        retry = Retry(clock, chance, limits.attempts, limits.retry_seconds)
        reads = Reads(session, statements, limits, retry)
        registers = Registers(Lanes(session, clock, limits), reads, statements, ids, retry)
        heads = Heads(reads, registers)
        return cls(
            session=session,
            statements=statements,
            retry=retry,
            timestamps=Timestamps(clock),
            reads=reads,
            plain_writes=PlainWrites(session, statements, limits, retry),
            registers=registers,
            heads=heads,
            scans=Scans(session, statements, limits, retry),
            listing=Listing(session, statements, heads, retry),
        )
