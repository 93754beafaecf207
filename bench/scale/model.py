"""How many processes and nodes a larger installation takes, and which limit it meets first. Takes seconds.

    python -m bench.scale.model [--requests 100000] [--branches 10000] [--repositories 100] [--users 1000]
        [--affinity 2]

Counts of requests come from `bench.scale.measure`, costs of listings from `bench.scale.growth`, processor time from the
table of `UnitCosts`. Each process of Tarn is a queue with one server, its event loop (`bench.scale.queueing`). The
operations in flight in a replica of graveler follow by Little's law from its own waits and those for the store. They
decide how many operations share one request to the store: that is measured, and the model interpolates.
docs/design/scale.md has the result, and what the model leaves out.
"""

from __future__ import annotations

import argparse
import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, exp, inf, log
from typing import Any

from bench.scale.measure import IDLE, own_requests
from bench.scale.measure import RESULT as MEASURED
from bench.scale.queueing import in_system, mean_wait_s

__all__ = [
    "Installation",
    "Limit",
    "Sharing",
    "Target",
    "UnitCosts",
    "auth_processes",
    "limits",
    "listing_s",
    "needed",
    "sharing_of",
]

PROCESSES = (1, 2, 4, 8, 16, 32, 64)
OPERATIONS = ("GET", "PUT", "LIST")
_ROUNDS = 50
_RECORD_SECONDS = 2.0
"""For how long a replica trusts the record of a branch that it has read (`tarn_graveler.records.branches`)."""
_SHOWN_MAX = 1e8
"""Rates above this are shown as none."""


@dataclass(frozen=True, slots=True)
class Target:
    """What an installation is to carry, and what is assumed about it.

    Attributes:
        objects: of all branches' heads together, each object of a shared history once.
        requests: per second.
        branches: live ones, each with a head of its own.
        commits_per_day: of the installation.
        hot_share: share of all writes and reads that go to one branch.
        shares: of the operations.
        repositories: over which objects and branches are spread alike.
        users: access keys that are in use at every moment, each on every gateway.
        distinct: share of the branches whose head has a listing of its own: those that were committed to.
        affinity: replicas of graveler that serve a branch; the hot one has all. 0: all serve every branch, as is built.
        spread: share of the ranges of the hot branch's listing that the writes between two compactions touch.
        replication: copies of a row.
        quorum: copies that a read asks.
        node_cores: of a node of Cassandra.
        headroom: busy share up to which a resource is planned.
    """

    objects: float = 1.5e9
    requests: float = 100_000.0
    branches: int = 10_000
    commits_per_day: float = 1_000
    hot_share: float = 0.5
    shares: Mapping[str, float] = field(
        default_factory=lambda: {"GET": 0.70, "PUT": 0.25, "LIST": 0.05}
    )
    repositories: int = 100
    users: int = 1_000
    distinct: float = 1.0
    affinity: int = 0
    spread: float = 0.0
    replication: int = 3
    quorum: int = 2
    node_cores: int = 8
    headroom: float = 0.5

    @property
    def hot_writes(self) -> float:
        """Writes to the hot branch, per second."""
        return self.requests * self.shares["PUT"] * self.hot_share

    @property
    def unread_share(self) -> float:
        """Share of the requests for a branch that is not hot whose replica has not read its record for 2 s.

        Requests come by chance, alike to all of these branches and to all replicas that serve them.
        """
        if not self.affinity:
            return 1.0
        each = self.requests * (1 - self.hot_share) / max(1, self.branches) / self.affinity
        return exp(-_RECORD_SECONDS * each)

    @property
    def ranges(self) -> float:
        """Ranges of the listing of one repository."""
        return self.objects / self.repositories / 20_000


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Processor time in microseconds, where it was measured on an idle machine (docs/design/performance.md).

    Attributes:
        gateway: of an operation in the gateway. All processes take 312 for a GET and 355 for a PUT over gRPC on the
            embedded store, and 1,500 for a LIST (bench/DETAILS.md); the gateway has some 40 % of it.
        graveler: of an operation in graveler, the rest.
        cql: of a CQL request in graveler's driver (docs/design/kv.md, "Measured").
        request: of a CQL request in its coordinator: (559 - 476) / (0.82 - 0.35) of a PUT, as much as of a GET.
        replica_read: of a row that one replica reads: half of the rest of a GET, which reads two.
        replica_write: of a row that one replica writes: the rest of a PUT without its two reads.
        row_staged: of a staged row that a compaction reads: a commit of 1,000,000 of them takes 4.5 s with Cassandra.
        row_folded: of a row that a compaction writes again; 1.5 s for 1,000,000.
        listing_row: of a row of a metarange that is read and decoded (`bench.scale.growth`: 0.47 s for 75,000).
        authorization: of one question to auth, in auth: two reads and the driver. Estimated.
    """

    gateway: Mapping[str, float] = field(
        default_factory=lambda: {"GET": 125.0, "PUT": 140.0, "LIST": 600.0}
    )
    graveler: Mapping[str, float] = field(
        default_factory=lambda: {"GET": 187.0, "PUT": 215.0, "LIST": 900.0}
    )
    cql: float = 125.0
    request: float = 180.0
    replica_read: float = 69.0
    replica_write: float = 276.0
    row_staged: float = 4.5
    row_folded: float = 1.5
    listing_row: float = 6.0
    authorization: float = 300.0


_GRANT_SECONDS = 10.0
"""A grant is asked for again after this time (services/auth/README.md)."""
_HELD_ROWS = 200_000
"""Rows of metaranges that a replica holds (`tarn.block.rangereader`)."""
_COMPACTED_ROWS = 1_000_000
"""Rows from which a branch is due (`tarn_compactor.policy`)."""
_REST_FACTOR = 5.0
"""A branch rests so many times as long as its compaction took (`tarn_compactor.policy`)."""
_STORE_SECONDS = 0.003
"""Time of one read or write of three nodes without a queue (docs/design/kv.md, "Measured", rounded up)."""
_TRIPS = {"GET": 1, "PUT": 3, "LIST": 2}
"""Requests to the store one after the other."""
_UNSHARED = {"GET": 2.0, "PUT": 3.0, "LIST": 5.0}
"""CQL requests of an operation that shares none, with warm caches: as `bench.scale.growth` counts, with a read of
timestamps for each write, and four buckets for each scan. On a branch that its replica has not read for 2 s, the record
is read once more: with many branches and replicas, that is every branch but the hot one."""
_CAS_PER_SECOND = 200.0
"""Compare-and-sets of one branch, from one process (docs/operate/cassandra.md)."""
_READS_AND_WRITES = {"GET": (2.0, 0.0), "PUT": (2.0, 1.0), "LIST": (6.0, 0.0)}
"""Rows that one replica reads and writes; a LIST asks each bucket of a token, and the branch."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """CQL requests of one operation, by the requests in flight in one replica of graveler. Ascending.

    Attributes:
        in_flight: connections of clients for each replica.
        requests: CQL requests per operation.
    """

    in_flight: Sequence[float]
    requests: Sequence[float]

    def at(self, in_flight: float) -> float:
        """Returns the requests per operation: interpolated by the logarithm, and constant beyond the measurements."""
        place = bisect_left(self.in_flight, in_flight)
        if place == 0:
            return self.requests[0]
        if place == len(self.in_flight):
            return self.requests[-1]
        low, high = self.in_flight[place - 1], self.in_flight[place]
        part = log(in_flight / low) / log(high / low)
        return self.requests[place - 1] + part * (self.requests[place] - self.requests[place - 1])


@dataclass(frozen=True, slots=True)
class Limit:
    """A resource, and the rate of all requests at which it is busy to the headroom.

    Attributes:
        requests: per second.
        grows: what moves it.
    """

    resource: str
    requests: float
    grows: str


def sharing_of(rows: Sequence[Mapping[str, Any]], operation: str, *, hot: bool) -> Sharing:
    """Returns the measured curve of one operation: the mean of all rows with as many connections for each replica.

    What an installation asks of the store without requests is left out: it does not grow with them. On a slow machine
    caches end while requests wait, and these ask again: what exceeds an operation that shares nothing is cut off.
    """
    idle = {row["processes"]: row for row in rows if row["operation"] == IDLE}
    found: dict[float, list[float]] = {}
    for row in rows:
        if row["operation"] == operation and bool(row.get("hot")) == hot:
            own = own_requests(row, idle[row["processes"]])
            found.setdefault(row["connections_per_gateway"], []).append(
                min(own, _UNSHARED[operation] + (not hot))
            )
    places = sorted(found)
    return Sharing(places, [sum(found[place]) / len(found[place]) for place in places])


def _curves(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, bool], Sharing]:
    pairs = [(operation, hot) for operation in ("GET", "PUT") for hot in (False, True)]
    found = {(operation, hot): sharing_of(rows, operation, hot=hot) for operation, hot in pairs}
    found["LIST", False] = found["LIST", True] = sharing_of(rows, "LIST", hot=False)
    return found


class Installation:
    """The model of one target and one number of processes.

    Args:
        target: the load.
        costs: processor time.
        curves: CQL requests of an operation, by operation and whether it is on the hot branch.
    """

    def __init__(
        self, target: Target, costs: UnitCosts, curves: Mapping[tuple[str, bool], Sharing]
    ) -> None:
        self._target = target
        self._costs = costs
        self._curves = curves

    def cql(self, operation: str, in_flight: float) -> float:
        """Returns the CQL requests of an operation, half hot as the target says, in a replica with so many."""
        hot = self._target.hot_share
        curves = self._curves
        most = _UNSHARED[operation] + self._target.unread_share
        other = min(curves[operation, False].at(in_flight), most)
        return hot * curves[operation, True].at(in_flight) + (1 - hot) * other

    def mean(self, of: Mapping[str, float]) -> float:
        """Returns the mean of a cost over the mix of operations."""
        return sum(share * of[operation] for operation, share in self._target.shares.items())

    def graveler_s(self, in_flight: float) -> float:
        """Returns the mean processor time of an operation in graveler, in seconds."""
        costs = self._costs
        cql = {each: self.cql(each, in_flight) for each in OPERATIONS}
        return (self.mean(costs.graveler) + costs.cql * self.mean(cql)) / 1e6

    def cassandra_s(self, in_flight: float) -> float:
        """Returns the processor time of an operation in all nodes together, in seconds."""
        target, costs = self._target, self._costs
        total = {}
        for operation in OPERATIONS:
            reads, writes = _READS_AND_WRITES[operation]
            replicas = (
                reads * target.quorum * costs.replica_read
                + writes * target.replication * costs.replica_write
            )
            total[operation] = costs.request * self.cql(operation, in_flight) + replicas
        return self.mean(total) / 1e6

    def in_flight(self, rate: float, replicas: int) -> float:
        """Returns the operations in flight in one replica of graveler, by Little's law; infinite if it cannot keep up.

        A fixed point: the more are in flight, the more share a request, and the less each costs.
        """
        each = rate / replicas
        trips = self.mean(_TRIPS)
        found = 1.0
        for _ in range(_ROUNDS):
            service_s = self.graveler_s(found)
            wait_s = mean_wait_s(1, each, service_s)
            found = in_system(each, wait_s + service_s + trips * _STORE_SECONDS)
            if found == inf:
                return inf
        return found

    def most(self, replicas: int) -> float:
        """Returns the rate that `replicas` of graveler take at the headroom."""
        low, high = 0.0, replicas / self.graveler_s(1e9)
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            flying = self.in_flight(middle, replicas)
            busy = middle / replicas * self.graveler_s(flying)
            low, high = (middle, high) if busy < self._target.headroom else (low, middle)
        return low


def limits(
    installation: Installation, target: Target, costs: UnitCosts, processes: int, nodes: int
) -> list[Limit]:
    """Returns all limits of an installation, the lowest first.

    Args:
        installation: the model.
        target: the load; its rate is not used.
        costs: processor time.
        processes: number of gateways, and of replicas of graveler.
        nodes: of Cassandra.
    """
    room = target.headroom
    most = installation.most(processes)
    flying = installation.in_flight(most, processes)
    cores = nodes * target.node_cores
    per_write = target.shares["PUT"] * target.hot_share
    record_s = target.quorum / target.replication * costs.replica_read / 1e6
    reading = target.shares["PUT"] + target.shares["GET"] + target.shares["LIST"]
    again_s = listing_s(target, costs, processes)
    bucket_s = (costs.replica_write + record_s * 1e6) / 4 / 1e6
    return sorted(
        [
            Limit(
                "gateways", processes * room / (installation.mean(costs.gateway) / 1e6), "processes"
            ),
            Limit("graveler", most, "processes"),
            Limit("Cassandra's cores", cores * room / installation.cassandra_s(flying), "nodes"),
            Limit(
                "record of the hot branch",
                target.node_cores * room / (record_s * reading * target.hot_share),
                "cores of one node",
            ),
            Limit(
                "token of the hot branch",
                target.node_cores * room / (bucket_s * per_write),
                "cores of one node, buckets",
            ),
            Limit(
                "compactor, hot branch", _compactor(target, costs) / per_write, "locality of writes"
            ),
            Limit(
                "listings read anew",
                processes * room / again_s if again_s else inf,
                "processes, rows held",
            ),
            Limit("outbox, commits of a branch", _commits(target), "compare-and-sets of one row"),
        ],
        key=lambda each: each.requests,
    )


def _compactor(target: Target, costs: UnitCosts) -> float:
    """Returns the writes of the hot branch per second beyond which more rows gather than make it due.

    A compaction takes its own rows, and all rows of the ranges that it touches. Then the branch rests.
    """
    again = target.spread * target.ranges * 20_000
    lasts_s = (_COMPACTED_ROWS * costs.row_staged + again * costs.row_folded) / 1e6
    return _COMPACTED_ROWS / (lasts_s * (1 + _REST_FACTOR))


def listing_s(target: Target, costs: UnitCosts, replicas: int) -> float:
    """Returns the processor time that reading metaranges anew adds to an operation, in seconds.

    Every replica reads of all branches, or of its part of them. Reads of the hot branch find its listing; of the
    others, as many miss as do not fit into what a replica holds.
    """
    part = min(1.0, target.affinity / replicas) if target.affinity else 1.0
    wanted = max(1.0, target.branches * target.distinct * part) * max(1.0, target.ranges)
    missing = max(0.0, 1 - _HELD_ROWS / wanted) * (1 - target.hot_share)
    reading = target.shares["GET"] + target.shares["LIST"]
    return reading * missing * max(1.0, target.ranges) * costs.listing_row / 1e6


def auth_processes(target: Target, costs: UnitCosts, callers: int) -> int:
    """Returns the processes of auth that answer so many gateways and replicas, whatever the rate of requests is."""
    asked = target.users * callers / _GRANT_SECONDS
    return ceil(asked * costs.authorization / 1e6 / target.headroom)


def _commits(target: Target) -> float:
    """Returns the rate of requests at which commits, which grow with it, fill the compare-and-sets of one branch."""
    per_second = target.commits_per_day / 86_400 * target.hot_share
    return target.requests * (_CAS_PER_SECOND / 2 * target.headroom) / per_second


def needed(installation: Installation, target: Target, costs: UnitCosts) -> dict[str, int]:
    """Returns the numbers of processes and nodes for the target's rate."""
    room, rate = target.headroom, target.requests
    gravelers = 1
    while installation.most(gravelers) < rate:
        gravelers += 1
    flying = installation.in_flight(rate, gravelers)
    gateways = ceil(rate * installation.mean(costs.gateway) / 1e6 / room)
    cores = rate * installation.cassandra_s(flying) / room
    return {
        "gateways": gateways,
        "replicas of graveler": gravelers,
        "more for listings read anew": ceil(rate * listing_s(target, costs, gravelers) / room),
        "processes of auth": auth_processes(target, costs, gateways + gravelers),
        "nodes of Cassandra": max(target.replication, ceil(cores / target.node_cores)),
    }


def _shown(value: float) -> str:
    return "-" if value > _SHOWN_MAX else f"{value:,.0f}"


def _print_limits(model: Installation, target: Target, costs: UnitCosts, nodes: int) -> None:
    """Prints the rates that each resource carries, a line for each, and a column for each number of processes."""
    found = {
        count: {each.resource: each for each in limits(model, target, costs, count, nodes)}
        for count in PROCESSES
    }
    last = found[PROCESSES[-1]]
    print(
        f"\nrequests/s at which a resource is {target.headroom:.0%} busy, {nodes} nodes of Cassandra,"
    )
    print(f"{'by gateways, and as many replicas:':36}" + "".join(f"{n:>10}" for n in PROCESSES))
    for resource in sorted(last, key=lambda name: last[name].requests):
        rates = "".join(f"{_shown(found[count][resource].requests):>10}" for count in PROCESSES)
        print(f"{resource:36}{rates}  {last[resource].grows}")
    first = "".join(f"{next(iter(found[count])).split()[0]:>10}" for count in PROCESSES)
    print(f"{'first limit':36}{first}")
    auth = "".join(f"{auth_processes(target, costs, 2 * count):>10}" for count in PROCESSES)
    print(f"{'processes of auth':36}{auth}  users x processes")


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    target = Target()
    for name in ("requests", "branches", "repositories", "users", "distinct", "affinity", "spread"):
        default = getattr(target, name)
        parser.add_argument(f"--{name}", type=type(default), default=default)
    target = replace(target, **vars(parser.parse_args()))
    costs = UnitCosts()
    rows = json.loads(MEASURED.read_text())["rows"]
    model = Installation(target, costs, _curves(rows))
    counts = needed(model, target, costs)
    for name, count in counts.items():
        print(f"{name:36}{count:>10,}")
    flying = model.in_flight(target.requests, counts["replicas of graveler"])
    print(f"{'operations in flight in a replica':36}{flying:>10.1f}")
    for operation in OPERATIONS:
        print(f"{f'CQL requests of a {operation}':36}{model.cql(operation, flying):>10.2f}")
    _print_limits(model, target, costs, counts["nodes of Cassandra"])


if __name__ == "__main__":
    main()
