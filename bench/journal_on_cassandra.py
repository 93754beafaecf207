"""What the events of the journal cost PUTs on a real Cassandra node: the part of `bench/journal.py` for that store.

Two gateways with all services in this process have a keyspace each on one node, whose Java is warm; one has
`journal.enabled`. They take turns, in an order that changes: a turn sends rounds of PUTs, each round one PUT on each
connection. The processor time of Tarn is that of this process, so with its client; that of Cassandra is its process',
with what the node does in the background meanwhile. At last the node ends, which writes its tables: their files by
keyspace, divided by the PUTs of it.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.counts import Clients, cheapest
from bench.load.cassandra import cassandra_node
from bench.load.processes import Processes
from bench.telemetry import gateway
from tests.support.servers.cassandra_nodes import CassandraNodes

__all__ = ["ON", "OFF", "compare"]

ON, OFF = "with a journal", "without"
_KEYSPACES = {OFF: "without_journal", ON: "with_journal"}
_CONNECTIONS = (1, 32)
_PUTS_OF_A_TURN = {1: 150, 32: 960}
_COUNTED = 10
_END_SECONDS = 120


@dataclass
class _Turn:
    """Seconds of one turn for each PUT: by the clock, of this process, of Cassandra's."""

    clock: float
    tarn: float
    cassandra: float


class _Side:
    """A gateway on its keyspace, and its connections by their number."""

    def __init__(self, clients: Mapping[int, Clients], node: Processes) -> None:
        self._clients = clients
        self._node = node
        self.puts = 0

    async def instructions(self) -> int:
        """Returns the least of the event loop's thread for a lone PUT."""
        self.puts += 2 * _COUNTED
        return (await cheapest(self._clients[1], "PUT", _COUNTED))[0]

    async def turn(self, connections: int) -> _Turn:
        clients, count = self._clients[connections], _PUTS_OF_A_TURN[connections]
        rounds = [clients.requests("PUT") for _ in range(count // connections)]
        began = time.perf_counter(), time.process_time(), self._node.cpu_s()
        for requests in rounds:
            await clients.send("PUT", requests)
        ended = time.perf_counter(), time.process_time(), self._node.cpu_s()
        self.puts += count
        return _Turn(*((end - begin) / count for begin, end in zip(began, ended, strict=True)))


async def compare(seconds: float, warm_seconds: float) -> None:
    """Measures, and prints what it found.

    Args:
        seconds: of the turns with each number of connections.
        warm_seconds: of PUTs before them.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with cassandra_node(folder / "cassandra") as nodes:
            async with AsyncExitStack() as stack:
                sides = {name: await _side(folder, name, nodes, stack) for name in (OFF, ON)}
                await _turns(sides, 32, warm_seconds)
                for name, side in sides.items():
                    print(f"{name}: {await side.instructions()} instructions for a lone PUT")
                for connections in _CONNECTIONS:
                    _show(connections, await _turns(sides, connections, seconds))
            nodes.end(0, _END_SECONDS)
            for name, side in sides.items():
                print(
                    f"{name}: {_table_bytes(folder, name) / side.puts:.0f} bytes of tables for a PUT"
                )


async def _side(folder: Path, name: str, nodes: CassandraNodes, stack: AsyncExitStack) -> _Side:
    settings = {
        "TARN_METADATA_DB_TYPE": "cassandra",
        "TARN_METADATA_DB_CASSANDRA_CONTACT_POINTS": ",".join(nodes.contact_points),
        "TARN_METADATA_DB_CASSANDRA_REPLICATION_FACTOR": "1",
        "TARN_METADATA_DB_CASSANDRA_KEYSPACE": _KEYSPACES[name],
        "TARN_JOURNAL_ENABLED": str(name == ON).lower(),
    }
    found = await gateway(folder / name, stack, measured=False, settings=settings)
    clients: dict[int, Clients] = {}
    first = 0
    for connections in _CONNECTIONS:
        # Each has paths of its own.
        clients[connections] = Clients(found, connections, first)
        stack.callback(clients[connections].close)
        first += 10**7
    return _Side(clients, Processes(nodes.pids))


async def _turns(
    sides: Mapping[str, _Side], connections: int, seconds: float
) -> dict[str, list[_Turn]]:
    found: dict[str, list[_Turn]] = defaultdict(list)
    names, rng = list(sides), random.Random(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(found[OFF]) < 4:
        rng.shuffle(names)
        for name in names:
            found[name].append(await sides[name].turn(connections))
    return found


def _show(connections: int, found: Mapping[str, Sequence[_Turn]]) -> None:
    print(f"{connections} at once, {len(found[OFF])} turns each:")
    for name in (OFF, ON):
        rate = 1 / statistics.median(each.clock for each in found[name])
        tarn, cassandra = (
            statistics.median(getattr(each, part) for each in found[name]) * 1e6
            for part in ("tarn", "cassandra")
        )
        print(f"  {name}: {rate:.0f} PUTs/s; {tarn:.0f} µs of Tarn, {cassandra:.0f} of Cassandra")
    for part in ("clock", "tarn", "cassandra"):
        ratios = [
            (getattr(on, part) / getattr(off, part) - 1) * 100
            for on, off in zip(found[ON], found[OFF], strict=True)
            if getattr(off, part)
        ]
        low, middle, high = statistics.quantiles(ratios, n=4)
        error = 1.2533 * (high - low) / 1.349 / len(ratios) ** 0.5
        print(
            f"  {part}, with a journal: {middle:+.1f} ± {error:.1f} % ({low:+.1f} to {high:+.1f})"
        )


def _table_bytes(folder: Path, name: str) -> int:
    tables = (folder / "cassandra").glob(f"node*/data/{_KEYSPACES[name]}/*/*")
    return sum(each.stat().st_size for each in tables if each.is_file())
