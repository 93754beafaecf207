"""Benchmark of listings under uncommitted deletes, with leaps and by the plain merge. Prints a table. No asserts.

    python -m bench.deletes --rows 100000 --rounds 7
    python -m bench.deletes --cassandra

Each round lists 1,000 objects of each case: on a clean branch, by a replica that has never listed the branch
(first), by one that has (again), and by the plain merge. The ratios compare within one run. The last line is the
first listing of a replica that has deleted the objects itself, by DeleteObjects requests of 1,000 keys.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from bench.lake import MAIN, opened_parts
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.aio.task_set import TaskSet
from tarn.core.collection import LIMITS
from tarn.core.entry import TOMBSTONE, Entry, pack
from tarn.core.levels import ALL_FEATURES
from tarn.core.listing.pages import MayLeap, PageRequest
from tarn.kv.keys import path_key, path_of
from tarn.kv.port import Group, Kv
from tarn.rpc.process.system import SystemIds
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.leaps import Leaps
from tarn_graveler.branch.object_events import ObjectEvents
from tarn_graveler.branch.staging import Staging
from tarn_graveler.guards.address_age import AddressAge
from tarn_graveler.records.branches import BranchName

AT_ONCE = 2_000
LISTED = 1_000
OWN_ROUNDS = 3
OWN_KEYS = 1_000


@dataclass(frozen=True)
class Case:
    """A folder whose deleted rows a listing has to pass.

    Attributes:
        kept: one row of this many is not deleted; 0: all are deleted.
    """

    what: str
    folder: str
    is_committed: bool
    kept: int = 0


CASES = (
    Case("over committed objects", "over/", is_committed=True),
    Case("the same, one object in 100 kept", "some/", is_committed=True, kept=100),
    Case("over staged objects only", "temporary/", is_committed=False),
)


def key_of(folder: str, number: int) -> bytes:
    return path_key(f"{folder}date=2026-01-01/part-{number:09}.parquet")


class Lake:
    """A repository with one branch."""

    def __init__(self, graveler: Graveler, kv: Kv, name: BranchName) -> None:
        self.graveler, self.kv, self.name = graveler, kv, name

    async def stage(self, folder: str, numbers: range, *, dead: int | None = None) -> None:
        """Stages objects, or tombstones except for one of `dead` rows (0: for all), directly in the token."""
        branch = (await self.graveler.branches.fresh(self.name)).branch
        token = self.graveler.repositories.keys_of(self.name.repository).token(MAIN, branch.staging)
        for start in range(0, len(numbers), AT_ONCE):
            groups = []
            for number in numbers[start : start + AT_ONCE]:
                key = key_of(folder, number)
                md5 = number.to_bytes(16, "big")
                value = pack(Entry(1, 0, md5, md5))
                if dead is not None:
                    if dead and number % dead == 0:
                        continue
                    value = TOMBSTONE
                groups.append(Group(key, ((key, value),)))
            for error in await self.kv.set_many(token, groups):
                if error is not None:
                    raise error

    def layers(self) -> Layers:
        """Returns the reader of a replica that has listed nothing yet."""
        parts = self.graveler
        return Layers(
            self.kv, parts.repositories, parts.commits, parts.committed, parts.branches.events
        )

    async def delete(self, layers: Layers, folder: str, numbers: range) -> float:
        """Deletes objects as a replica with these layers; returns the processor time of a request, in ms."""
        staging = Staging(
            self.kv,
            self.graveler.branches,
            layers,
            TaskSet(),
            AddressAge(self.graveler.clock, LIMITS),
            events=ObjectEvents(
                self.graveler.clock, SystemIds(self.graveler.clock), ALL_FEATURES, is_on=False
            ),
        )
        worked = time.process_time()
        for start in range(0, len(numbers), OWN_KEYS):
            paths = [path_of(key_of(folder, each)) for each in numbers[start : start + OWN_KEYS]]
            if any(await staging.unstage(self.name, paths)):
                raise RuntimeError("a delete was refused")
        return (time.process_time() - worked) * 1e3 / max(1, len(numbers) // OWN_KEYS)

    async def list(self, layers: Layers, prefix: str) -> None:
        """Lists as the gateway does: until there are 1,000 lines, or the end."""
        branch = (await self.graveler.branches.fresh(self.name)).branch
        base = await layers.base_of(self.name.repository, branch)
        request = PageRequest(prefix=prefix, limit=LISTED)
        found = 0
        while found < LISTED:
            page = await layers.page(self.name, branch.tokens, base, request)
            found += len(page.paths)
            if page.next_after is None:
                break
            request = replace(request, after=page.next_after, limit=LISTED - found or 1)
        if found != LISTED:
            raise RuntimeError(f"{prefix} lists {found} objects, not {LISTED}")


async def took(lake: Lake, layers: Layers, prefix: str) -> tuple[float, float]:
    """Returns the time and the processor time of one listing in milliseconds."""
    began, worked = time.perf_counter(), time.process_time()
    await lake.list(layers, prefix)
    return (time.perf_counter() - began) * 1e3, (time.process_time() - worked) * 1e3


async def took_plainly(lake: Lake, prefix: str) -> tuple[float, float]:
    """As `took`, of a listing that declines every leap."""

    async def decline(_leaps: Leaps, _offer: MayLeap) -> None:
        return None

    with mock.patch.object(Leaps, "answer", decline):
        return await took(lake, lake.layers(), prefix)


async def measure(lake: Lake, rows: int, rounds: int) -> None:
    await lake.stage("clean/", range(2 * LISTED))
    for number in range(OWN_ROUNDS):
        await lake.stage(f"own{number}/", range(rows + 2 * LISTED))
    for case in CASES:
        await lake.stage(case.folder, range(rows if case.is_committed else 0))
        await lake.stage(case.folder, range(rows, rows + 2 * LISTED))
    await lake.graveler.committing.commit(lake.name, CommitRequest("ann", "rows"))
    for case in CASES:
        if not case.is_committed:
            await lake.stage(case.folder, range(rows))
        await lake.stage(case.folder, range(rows), dead=case.kept)
    print(f"{'median (least) ms, CPU ms':44} {'first':>24} {'again':>24} {'plain merge':>24}")
    warm = lake.layers()
    clean = [await took_plainly(lake, "clean/") for _ in range(rounds)]
    print(f"{'clean':44} {'':24} {'':24} {told(clean):>24}", flush=True)
    for case in CASES:
        await lake.list(warm, case.folder)
        figures: list[list[tuple[float, float]]] = [[], [], []]
        first, again, plain = figures
        for _ in range(rounds):
            first.append(await took(lake, lake.layers(), case.folder))
            again.append(await took(lake, warm, case.folder))
            plain.append(await took_plainly(lake, case.folder))
        print(f"{case.what:44} {' '.join(f'{told(each):>24}' for each in figures)}", flush=True)
        ratios = [median(each) / median(plain) for each in figures]
        print(f"{'':44} {' '.join(f'{ratio:>24.2f}' for ratio in ratios)}", flush=True)
    own, requests = [], []
    for number in range(OWN_ROUNDS):
        layers = lake.layers()
        requests.append(await lake.delete(layers, f"own{number}/", range(rows)))
        own.append(await took(lake, layers, f"own{number}/"))
    print(f"{'over committed objects, own deletes':44} {told(own):>24}")
    print(f"{'a request of 1,000 deletes, CPU ms':44} {min(requests):>24.1f}")


def median(figures: list[tuple[float, float]]) -> float:
    return sorted(figures)[len(figures) // 2][0]


def told(figures: list[tuple[float, float]]) -> str:
    least = min(figures)[0]
    worked = sorted(work for _, work in figures)[len(figures) // 2]
    return f"{median(figures):.1f} ({least:.1f}), {worked:.1f}"


async def run(folder: Path, rows: int, rounds: int, store: dict[str, str]) -> None:
    async with opened_parts(folder, store) as parts:
        await measure(Lake(*parts), rows, rounds)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="deleted rows of each case")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--cassandra", action="store_true", help="on a Cassandra node that it starts"
    )
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = {}
        if given.cassandra:
            nodes = stack.enter_context(CassandraNodes(folder / "cassandra", start_seconds=400))
            store = {
                "TARN_METADATA_DB_TYPE": "cassandra",
                "TARN_METADATA_DB_CASSANDRA_REPLICATION_FACTOR": "1",
                "TARN_METADATA_DB_CASSANDRA_CONTACT_POINTS": ",".join(nodes.contact_points),
            }
        asyncio.run(run(folder, given.rows, given.rounds, store))


if __name__ == "__main__":
    main()
