"""Counters of a running installation: its own metrics, those of its Cassandra node, and processor time."""

from __future__ import annotations

import re
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.load.processes import Processes
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy

__all__ = ["Counts", "NodeViews", "Place", "counts_of", "parsed"]

_SAMPLE = re.compile(r"^([a-z_]+(?:\{[^}]*\})?) ([0-9.e+-]+)$", re.MULTILINE)
_KEPT = ("tarn_kv_", "tarn_rpc_duration_seconds_count", "tarn_cache_", "tarn_gateway_requests")
_SCRAPE_SECONDS = 60
_VIEWS = {"coordinator": "coordinator", "replica": "local"}
_KINDS = ("read", "scan", "write")


def parsed(page: str) -> dict[str, float]:
    """Returns the samples of a page of metrics that this benchmark counts, by name and labels."""
    return {
        name: float(value)
        for name, value in _SAMPLE.findall(page)
        if name.startswith(_KEPT) and "in_flight" not in name
    }


Samples = defaultdict[str, float]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the counters of a process are.

    Attributes:
        address: `host:port` of its admin port.
        pid: its process id.
    """

    address: str
    pid: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals of one moment, or the difference of two moments.

    Attributes:
        metrics: of all processes of a service together, by service and sample.
        cpu_s: processor seconds by service.
        node: counters of Cassandra.
    """

    metrics: Mapping[str, Mapping[str, float]]
    cpu_s: Mapping[str, float]
    node: Mapping[str, float]

    def since(self, before: Counts) -> Counts:
        """Returns what was counted since an earlier moment."""
        metrics = {
            service: _difference(after, before.metrics[service])
            for service, after in self.metrics.items()
        }
        cpu_s = _difference(self.cpu_s, before.cpu_s)
        return Counts(metrics, cpu_s, _difference(self.node, before.node))

    def total(self, sample: str) -> float:
        """Returns the sum of one sample over all services."""
        return sum(counted.get(sample, 0.0) for counted in self.metrics.values())

    def by_label(self, family: str, label: str) -> dict[str, float]:
        """Returns the sums of a family by the value of one label."""
        shape = re.compile(re.escape(family) + r"\{(?:.*,)?" + label + r'="([^"]*)"')
        found = Samples(float)
        for counted in self.metrics.values():
            for name, value in counted.items():
                if match := shape.match(name):
                    found[match[1]] += value
        return dict(sorted(found.items()))


class NodeViews:
    """Reads the counters of the nodes of a cluster, each through a connection of its own.

    Args:
        contact_points: `host:port` of every node.
        keyspace: whose tables are counted.
    """

    def __init__(self, contact_points: tuple[str, ...], keyspace: str) -> None:
        self._keyspace = keyspace
        self._clusters: list[Any] = []
        for each in contact_points:
            host, _, port = each.rpartition(":")
            only = WhiteListRoundRobinPolicy([host])
            profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(load_balancing_policy=only)}
            self._clusters.append(Cluster([host], port=int(port), execution_profiles=profiles))
        self._sessions = [cluster.connect() for cluster in self._clusters]

    def counts(self) -> Samples:
        """Returns sums over the nodes: CQL statements, and reads and writes of coordinators and of replicas.

        `statements` are prepared statements that ran alone, not in a batch. `coordinator_reads/<table>` are reads of
        one Cassandra partition each, `replica_reads/<table>` those that replicas served; a statement that reads four
        buckets is four of them. The table `paxos` is that of lightweight transactions.
        """
        found = Samples(float)
        for session in self._sessions:
            for name, value in session.execute("SELECT name, value FROM system_views.cql_metrics"):
                if name == "prepared_statements_executed":
                    found["statements"] += value
            for side, view in _VIEWS.items():
                for kind in _KINDS:
                    query = f"SELECT keyspace_name, table_name, count FROM system_views.{view}_{kind}_latency"
                    for keyspace, table, count in session.execute(query):
                        if keyspace == self._keyspace or (keyspace, table) == ("system", "paxos"):
                            found[f"{side}_{kind}s/{table}"] += count
        return found

    def close(self) -> None:
        """Closes the connections."""
        for cluster in self._clusters:
            cluster.shutdown()


def counts_of(places: Mapping[str, Place], views: NodeViews, nodes: Processes) -> Counts:
    """Counts everything now.

    Args:
        places: of each process, by name; `graveler-2` is a graveler.
        views: of the nodes of Cassandra.
        nodes: the nodes' processes; none if they run elsewhere.
    """
    metrics: dict[str, Samples] = {}
    cpu_s = Samples(float)
    for name, place in places.items():
        service = name.partition("-")[0]
        url = f"http://{place.address}/metrics"
        with urllib.request.urlopen(url, timeout=_SCRAPE_SECONDS) as page:
            samples = metrics.setdefault(service, Samples(float))
            for sample, value in parsed(page.read().decode()).items():
                samples[sample] += value
        cpu_s[service] += Processes([place.pid]).with_children().cpu_s()
    cpu_s["cassandra"] = nodes.cpu_s()
    return Counts(metrics, cpu_s, views.counts())


def _difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0.0) for name, value in after.items()}
