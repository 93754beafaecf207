"""What the events of the journal cost a PUT of a small object.

    python -m bench.journal [--seconds 60] [--rounds 10]
    python -m bench.journal --store cassandra [--seconds 60] [--warm 30]

On Cassandra: see `bench/journal_on_cassandra.py`. On the embedded store:

Two gateways as in `bench/telemetry.py`, one with `journal.enabled`. First the bytecode instructions of a PUT are
counted (`bench/counts.py`), which a busy machine does not change. Then batches of 10 PUTs take turns on both
(`bench/interleaved.py`): the processor time is that of client, server and the thread that writes. At last, two stores
alone take the same rows in turns, with and without events: processor time and bytes of the file by row.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path

from bench import journal_on_cassandra
from bench.counts import Clients, cheapest
from bench.interleaved import BASELINE, CONTROL, difference, rounds
from bench.journal_on_cassandra import OFF as _OFF
from bench.journal_on_cassandra import ON as _ON
from bench.telemetry import BATCH, BODY, Gateway, gateway

from tarn.core.entry import Entry, pack
from tarn.core.levels import ALL_FEATURES
from tarn.kv.embedded import open_embedded
from tarn.kv.keys import path_key
from tarn.kv.port import Group, Partition, PartitionKind
from tarn.rpc.process.defects import new_loop
from tarn.rpc.process.log import LogConfig, logging_to
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_graveler.branch.object_events import ObjectEvents, Origin

_CONNECTIONS = 1
_WARM_UP = 32
_ROWS, _TURNS = 3_200, 5


class Puts:
    """Batches of PUTs on one gateway, each to a path of its own."""

    def __init__(self, of: Gateway) -> None:
        self._gateway = of
        self.count = 0

    async def batch(self) -> float:
        """Returns the processor time of a batch, in seconds."""
        requests = [self._request() for _ in range(BATCH)]
        began = time.process_time()
        for request in requests:
            await self._gateway.ask(request)
        return time.process_time() - began

    def _request(self) -> bytes:
        self.count += 1
        path = f"/lake/main/year=2026/month=11/day=29/hour=17/part-{self.count:09}.snappy.parquet"
        return self._gateway.signer.request("PUT", path, body=BODY).head


def groups_of(events: ObjectEvents, numbers: range, *, is_on: bool) -> list[Group]:
    """Returns the rows that PUTs stage: paths of 78 bytes, and entries."""
    groups = []
    for number in numbers:
        path = f"lake/tables/events/year=2026/month=11/day=29/part-{number:09}-c000.snappy.parquet"
        packed = pack(Entry(number, 0, os.urandom(16), os.urandom(16)))
        event = events.put(Origin(bytes(16))).companions(path, packed) if is_on else ()
        key = path_key(path)
        groups.append(Group(key, ((key, packed),), event))
    return groups


async def store(folder: Path, turns: int) -> None:
    """Prints what rows cost two stores."""
    clock = SystemClock()
    events = ObjectEvents(clock, SystemIds(clock), ALL_FEATURES, is_on=True)
    token = Partition("bench/token", PartitionKind.PLAIN)
    figures: dict[tuple[str, int], list[float]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        stores = {}
        for name in (_OFF, _ON):
            stores[name] = await open_embedded(folder / f"{name}.db", durability="os")
            stack.push_async_callback(stores[name].close)
        for turn in range(turns):
            for among in (1, 64):
                numbers = range(
                    (2 * turn + (among > 1)) * _ROWS, (2 * turn + (among > 1) + 1) * _ROWS
                )
                for name in sorted(stores, reverse=bool(turn % 2)):
                    groups = groups_of(events, numbers, is_on=name == _ON)
                    began = time.process_time()
                    for at in range(0, _ROWS, among):
                        await stores[name].set_many(token, groups[at : at + among])
                    figures[name, among].append((time.process_time() - began) / _ROWS * 1e6)
    for among in (1, 64):
        off, on = (figures[name, among] for name in (_OFF, _ON))
        ratios = [one / other for one, other in zip(on, off, strict=True)]
        print(
            f"store alone, {among} at once: {statistics.median(off):.1f} µs of processor for a row, "
            f"{statistics.median(on):.1f} with its event; ratio {statistics.median(ratios):.2f}"
        )
    rows = 2 * turns * _ROWS
    sizes = [(folder / f"{name}.db").stat().st_size / rows for name in (_OFF, _ON)]
    print(f"store alone: {sizes[0]:.0f} bytes of the file for a row, {sizes[1]:.0f} with its event")


async def compare(seconds: float, counted: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folders = {name: Path(place) / str(number) for number, name in enumerate((_OFF, _ON))}
        puts: dict[str, Puts] = {}
        async with AsyncExitStack() as stack:
            for name, folder in folders.items():
                settings = {"TARN_JOURNAL_ENABLED": str(name == _ON).lower()}
                found = await gateway(folder, stack, measured=False, settings=settings)
                clients = Clients(found, _CONNECTIONS)
                stack.callback(clients.close)
                for _ in range(_WARM_UP):
                    await clients.send("PUT", clients.requests("PUT"))
                instructions, calls, _ = await cheapest(clients, "PUT", counted)
                print(
                    f"{name}: {instructions / _CONNECTIONS:.0f} instructions, "
                    f"{calls / _CONNECTIONS:.0f} calls for a lone PUT"
                )
                puts[name] = Puts(found)
            spent = await rounds(puts[_OFF].batch, {_ON: puts[_ON].batch}, seconds)
            each = statistics.median(spent[BASELINE]) / BATCH * 1e6
            print(f"{len(spent[BASELINE])} rounds; {each:.0f} µs of processor for a PUT {_OFF}")
            for name in (CONTROL, _ON):
                print(f"{name}: {difference(spent, name)}")
        await store(Path(place), _TURNS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=10, help="in which instructions are counted")
    parser.add_argument("--store", choices=("embedded", "cassandra"), default="embedded")
    parser.add_argument(
        "--warm", type=float, default=30, help="seconds of PUTs before, on Cassandra"
    )
    given = parser.parse_args()
    with (
        logging_to(LogConfig(output="/dev/null")),
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        if given.store == "cassandra":
            runner.run(journal_on_cassandra.compare(given.seconds, given.warm))
        else:
            runner.run(compare(given.seconds, given.rounds))


if __name__ == "__main__":
    main()
