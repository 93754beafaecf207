"""Preview of retention rules: time and memory, on the embedded store and local blocks. Prints a table. No asserts.

    python -m bench.retention [--commits 10000] [--objects 2000000]

Each commit replaces the objects of one range of 20,000. The commits are one year old at most, equally spaced, and the
reflog has ended. The rules keep 30 days of the branch. Ranges are not written, because a preview opens none. It runs in
a process of its own, with graveler in it, so nothing is cached but the files of the system.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

from tarn.aio.task_set import TaskSet
from tarn.block.local import open_local
from tarn.block.port import BlockKey, BlockStore
from tarn.block.rangefile import encode_metarange, metarange_path
from tarn.client.collections import CollectionClient
from tarn.collection.expiry_preview import preview_expiry
from tarn.collection.progress import CollectionProgress
from tarn.core.clock import DAY_US
from tarn.core.commit import Commit
from tarn.core.ids import BranchId, CommitId, RangeId, RepositoryId
from tarn.core.listing.metarange import Metarange, RangeInfo
from tarn.core.retention import parse_retention
from tarn.kv.embedded import open_embedded
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.wire.call import Call
from tarn_graveler.assembly import Graveler, GravelerSettings, assemble
from tarn_graveler.config import open_committed
from tarn_graveler.records.branches import BranchName
from tarn_proto.graveler.v1 import collection_service_pb2 as pb

MAIN = BranchId("main")
RANGE_ROWS = 20_000
OBJECT_BYTES = 1_000_000
PAGE_ROWS = 1_000
RULES = '{"branches": [{"match": "main", "keep_days": 30}], "detached": {"keep_days": 30}}'


class InProcess(CollectionClient):
    """Asks graveler without a transport."""

    def __init__(self, graveler: Graveler) -> None:
        self._graveler = graveler

    async def get(self, _: Call, repository_id: str) -> pb.Collection:
        repository = await self._graveler.repositories.get(repository_id)
        return pb.Collection(storage_namespace=repository.storage_namespace)

    async def list_history(
        self, _: Call, repository_id: str, *, page_token: str = ""
    ) -> pb.ListHistoryResponse:
        repository = await self._graveler.repositories.get(repository_id)
        history = self._graveler.history_pages
        page, next_page_token = await history.page(repository, page_token, PAGE_ROWS)
        page.next_page_token = next_page_token
        return pb.ListHistoryResponse.FromString(page.SerializeToString())


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[tuple[Graveler, BlockStore]]:
    clock = SystemClock()
    kv = await open_embedded(directory / "kv.sqlite", durability="os")
    blocks = await open_local(directory / "blocks", clock=clock)
    tasks = TaskSet()
    async with open_committed(blocks, directory / "cache") as committed:
        yield (
            assemble(
                settings=GravelerSettings("bench"),
                kv=kv,
                blocks=blocks,
                committed=committed,
                clock=clock,
                ids=SystemIds(clock),
                tasks=tasks,
            ),
            blocks,
        )
        await tasks.close()
    await blocks.close()
    await kv.close()


def described(commit: int, number: int) -> RangeInfo:
    """Returns a range that a commit wrote."""
    first, last = (f"table/{number:06}/{place:08}" for place in (0, RANGE_ROWS - 1))
    return RangeInfo(
        RangeId(sha256(f"{commit} {number}".encode()).hexdigest()),
        first,
        last,
        RANGE_ROWS,
        2_000_000,
        RANGE_ROWS * OBJECT_BYTES,
    )


async def build(directory: Path, commits: int, objects: int) -> None:
    now_us = SystemClock().now_us()
    async with opened(directory) as (graveler, blocks):
        reservation = await graveler.repositories.reserve(RepositoryId("lake"), "", MAIN)
        repository = reservation.repository
        count = max(1, objects // RANGE_ROWS)
        ranges = [described(0, number) for number in range(count)]
        parents: tuple[CommitId, ...] = ()
        for number in range(commits):
            ranges[number % count] = described(number, number % count)
            made = Metarange(tuple(ranges))
            body = encode_metarange(made).to_pybytes()
            path = metarange_path(made.metarange_id)
            await blocks.put(BlockKey(repository.storage_namespace, path), body)
            time_us = now_us - (commits - number) * 365 * DAY_US // commits
            commit = Commit(parents, made.metarange_id, "ann", f"commit {number}", time_us, number)
            parents = (await graveler.commits.add(repository, commit),)
        await graveler.branches.create(BranchName(repository, MAIN), parents[0])
        await graveler.repositories.publish(reservation)


async def preview(directory: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with opened(directory) as (graveler, blocks):
        call, now_us = Call("", "bench", 1e9), SystemClock().now_us()
        rules, progress = parse_retention(RULES), CollectionProgress()
        began, cpu = time.perf_counter(), time.process_time()
        found = await preview_expiry(
            InProcess(graveler), lambda: call, "lake", blocks, now_us, progress, rules
        )
        seconds, busy = time.perf_counter() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{found.commit_count:,} commits, {sum(found.expiring.values()):,} would expire, with up to "
        f"{found.objects_max:,} objects: {seconds:.1f} s, {busy:.1f} s of CPU, peak {peak >> 10} MiB "
        f"({before >> 10} MiB before)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--objects", type=int, default=2_000_000)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.directory:
        asyncio.run(preview(given.directory))
        return
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(build(Path(name), given.commits, given.objects))
        own = [sys.executable, "-m", "bench.retention", "--directory", name]
        subprocess.run(own, check=True)


if __name__ == "__main__":
    main()
