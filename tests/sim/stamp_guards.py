"""Guards of the timestamps of plain rows: they replace the rule of the simulated Cassandra (see `lake_guards`)."""

from collections.abc import Sequence

from tests.support.faults.guards import Guard, Weakening
from tests.support.sim.kv_cassandra import SimCassandra
from tests.support.sim.stamps import OwnClock, OwnRowsRecent, ProcessMaximum

__all__ = ["STAMP_GUARDS"]

STAMP_GUARDS: Sequence[Guard] = (
    Guard(
        "stamp-after-seen",
        "timestamps",
        "I1 I4",
        "a plain row gets its writer's clock",
        (Weakening(SimCassandra, "stamps", OwnClock),),
        runs=300,
    ),
    Guard(
        "stamp-by-reading",
        "timestamps",
        "I1 I4",
        "a plain row goes above all timestamps that its process has seen, without a read",
        (Weakening(SimCassandra, "stamps", ProcessMaximum),),
        runs=300,
    ),
    Guard(
        "stamp-always-read",
        "timestamps",
        "I1 I4",
        "no read for a row that the process has just written itself",
        (Weakening(SimCassandra, "stamps", OwnRowsRecent),),
        runs=600,
    ),
)
