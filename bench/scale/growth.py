"""What operations cost as a lake grows: requests, rows, files and bytes are counted; processor time is a remark.

    python -m bench.scale.growth [--axis objects] [--scale 1]

One replica of graveler runs on stores in memory that count (`bench.scale.counting_stores`). A lake of more than 200,000
objects is metadata only beyond these: its listing names ranges that do not exist, and no measured operation opens one.
Each operation is measured by a replica whose caches are empty (`cold`), and once more (`warm`). The result is
`bench/results/scale-growth.json`. docs/design/scale.md explains each curve that is not flat.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from bench.commit import staged
from bench.scale.counting_stores import CountingBlocks, CountingKv

from tarn.aio.task_set import TaskSet
from tarn.block.port import BlockKey
from tarn.block.rangefile import decode_metarange, encode_metarange, metarange_path
from tarn.core.branch import Token
from tarn.core.commit import Commit
from tarn.core.ids import BranchId, CommitId, MetarangeId, RangeId, RepositoryId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.metarange import Metarange, RangeInfo
from tarn.core.listing.pages import PageRequest
from tarn.kv.records import Repository
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_graveler.assembly import Graveler, GravelerSettings, assemble
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.config import open_committed
from tarn_graveler.graph.walk import Span
from tarn_graveler.records.branches import BranchName
from tarn_graveler.versioning.merges import MergeRequest
from tarn_graveler.views.diffing import DiffSides

__all__ = ["RESULT", "Lake", "grown", "listing_of"]

RESULT = Path(__file__).parents[1] / "results" / "scale-growth.json"
OBJECTS = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_500_000_000)
BRANCHES = (10, 100, 1_000, 10_000)
COMMITS = (10, 1_000, 10_000, 100_000)
_OBJECTS_ELSE = 10_000
"""Objects of the lake whose branches or commits grow."""
_REAL_ROWS = 200_000
_RANGE_ROWS = 20_000
_RANGE_BYTES = BreakRule().bytes_max
"""A build takes ranges of this size for whole, whatever their last path is."""
_CHANGES = 1_000
_PAGE = 1_000
MAIN, DEV, OLD = BranchId("main"), BranchId("dev"), BranchId("old")


def listing_of(real: Metarange, objects: int) -> Metarange:
    """Returns a listing of about `objects` entries: those of `real`, and ranges behind them that do not exist."""
    invented = max(0, objects - real.count) // _RANGE_ROWS
    # The last range ended with the rows. A build that finds it before another one cuts both anew.
    ranges = list(real.ranges[:-1] if invented else real.ranges)
    for number in range(invented):
        first, last = (
            f"lake/tables/date=2026-01-01/part-{at:010}.parquet"
            for at in (number * _RANGE_ROWS, (number + 1) * _RANGE_ROWS - 1)
        )
        name = RangeId(hashlib.sha256(number.to_bytes(8, "big")).hexdigest())
        ranges.append(RangeInfo(name, first, last, _RANGE_ROWS, _RANGE_BYTES, _RANGE_ROWS))
    return Metarange(tuple(ranges))


@dataclass
class Lake:
    """Stores with one repository, and what operations on it cost.

    Attributes:
        rows: one for each measured operation.
    """

    folder: Path
    axis: str
    size: int
    clock: SystemClock = field(default_factory=SystemClock)
    kv: CountingKv = field(default_factory=CountingKv)
    rows: list[dict[str, Any]] = field(default_factory=list)
    repository: Repository = field(init=False)
    root: CommitId = field(init=False)

    def __post_init__(self) -> None:
        self.blocks = CountingBlocks(self.clock)
        self._replicas = 0

    @asynccontextmanager
    async def replica(self) -> AsyncIterator[Graveler]:
        """Opens a replica whose caches are empty."""
        self._replicas += 1
        tasks = TaskSet()
        async with open_committed(
            self.blocks, self.folder / f"cache-{self._replicas}"
        ) as committed:
            yield assemble(
                settings=GravelerSettings("scale"),
                kv=self.kv,
                blocks=self.blocks,
                committed=committed,
                clock=self.clock,
                ids=SystemIds(self.clock),
                tasks=tasks,
            )
            await asyncio.sleep(0)
            await tasks.close()

    async def make(self, objects: int) -> None:
        """Makes the repository, whose first commit has `objects` entries."""
        async with self.replica() as graveler:
            reserved = await graveler.repositories.reserve(RepositoryId("lake"), "", MAIN)
            self.repository = repository = reserved.repository
            namespace = repository.storage_namespace
            numbers = np.arange(min(objects, _REAL_ROWS), dtype=np.int64) * 10
            built = await graveler.committed.build(namespace, None, [_rows(numbers)])
            place = BlockKey(namespace, metarange_path(built.metarange_id))
            real = decode_metarange(built.metarange_id, await self.blocks.read(place))
            whole = listing_of(real, objects)
            place = BlockKey(namespace, metarange_path(whole.metarange_id))
            await self.blocks.put(place, encode_metarange(whole).to_pybytes())
            self.root = await self.add_commit(graveler, (), whole.metarange_id)
            await graveler.branches.create(BranchName(repository, MAIN), self.root)
            await graveler.repositories.publish(reserved)

    async def add_commit(
        self,
        graveler: Graveler,
        parents: Sequence[CommitId],
        listing: MetarangeId,
        generation: int = 0,
    ) -> CommitId:
        """Adds a commit that no branch names yet."""
        made = Commit(tuple(parents), listing, "ann", "", self.clock.now_us(), generation)
        return await graveler.commits.add(self.repository, made)

    async def count(
        self, operation: str, cache: str, work: Callable[[], Awaitable[object]]
    ) -> None:
        """Counts one operation."""
        self.kv.counts.clear()
        self.blocks.counts.clear()
        cpu = time.process_time()
        await work()
        spent = time.process_time() - cpu
        counts = Counter(self.kv.counts) + Counter(self.blocks.counts)
        self.rows.append(
            {
                "axis": self.axis,
                "size": self.size,
                "operation": operation,
                "cache": cache,
                **dict(sorted(counts.items())),
                "cpu_ms": round(1e3 * spent, 2),
            }
        )

    async def stage(self, graveler: Graveler, branch: BranchId, offset: int) -> None:
        """Stages neighbouring new objects."""
        name = BranchName(self.repository, branch)
        for batch in staged(np.arange(_CHANGES, dtype=np.int64) * 10 + offset, offset):
            paths, values = (column.to_pylist() for column in batch.columns)
            for path, value in zip(paths, values, strict=True):
                await graveler.staging.stage(name, path, value)


async def _rows(numbers: np.ndarray) -> AsyncIterator[pa.RecordBatch]:
    for at in range(0, len(numbers), 65_536):
        for batch in staged(numbers[at : at + 65_536], at):
            yield batch


def _path(number: int) -> str:
    return f"lake/events/date=2026-01-01/part-{number:09}.parquet"


async def _requests(lake: Lake) -> None:
    """Measures GET, PUT, LIST and the creation of a branch."""
    main = BranchName(lake.repository, MAIN)
    (batch,) = staged(np.array([7], dtype=np.int64), 7)
    packed = batch.column(1)[0].as_py()
    async with lake.replica() as graveler:
        operations: dict[str, Callable[[], Awaitable[object]]] = {
            "GET": lambda: graveler.reading.lookup(lake.repository, "main", _path(500)),
            "PUT": lambda: graveler.staging.stage(main, _path(7), packed),
            "LIST 1,000": lambda: graveler.reading.page(
                lake.repository, "main", PageRequest(prefix="lake/", after=_path(1000), limit=_PAGE)
            ),
        }
        for cache in ("cold", "warm"):
            for operation, work in operations.items():
                await lake.count(operation, cache, work)
            made = BranchName(lake.repository, BranchId(f"made-{cache}"))
            await lake.count(
                "CreateBranch", cache, partial(graveler.branches.create, made, lake.root)
            )


async def _versions(lake: Lake) -> None:
    """Measures commits of 1,000 changes, their merges and differences."""
    async with lake.replica() as graveler:
        head = (await graveler.branches.fresh(BranchName(lake.repository, MAIN))).branch.commit_id
        await graveler.branches.create(BranchName(lake.repository, DEV), head)
    async with lake.replica() as graveler:
        for number, cache in enumerate(("cold", "warm")):
            for branch, offset in ((DEV, 1), (MAIN, 50_003)):
                await lake.stage(graveler, branch, offset + number)
                name = BranchName(lake.repository, branch)
                commit = CommitRequest("ann", "changes")
                work = partial(graveler.committing.commit, name, commit)
                if branch == DEV:
                    await lake.count("commit of 1,000", cache, work)
                else:
                    await work()
            async with lake.replica() as cold:
                await _merge(lake, graveler if number else cold, cache)


async def _merge(lake: Lake, graveler: Graveler, cache: str) -> None:
    main, dev = (BranchName(lake.repository, each) for each in (MAIN, DEV))
    source = (await graveler.branches.fresh(dev)).branch.commit_id
    head = (await graveler.branches.fresh(main)).branch.commit_id
    sides = DiffSides(head, source)
    await lake.count(
        "diff of 2,000",
        cache,
        lambda: graveler.diffing.commits(lake.repository, sides, prefix="", after="", limit=5000),
    )
    request = MergeRequest(source, "ann", "merge")
    await lake.count("merge of 1,000", cache, lambda: graveler.merges.merge(main, request))


async def _whole(lake: Lake) -> None:
    """Measures what looks at a whole repository: the roots of a collection, and a compactor that has just started."""
    async with lake.replica() as graveler:

        async def roots() -> None:
            cursor = ""
            while True:
                page = await graveler.roots.page(lake.repository, cursor, _PAGE)
                cursor = page.cursor
                if not cursor:
                    return

        async def staged_branches() -> None:
            repository = branch = ""
            while True:
                page = await graveler.staged_branches.page(repository, branch, _PAGE)
                repository, branch = page.next_repository, page.next_branch
                if not repository:
                    return

        await lake.count("roots of a collection", "cold", roots)
        await lake.count("compactor's first look", "cold", staged_branches)


async def _log(lake: Lake) -> None:
    async with lake.replica() as graveler:
        head = (await graveler.branches.fresh(BranchName(lake.repository, MAIN))).branch.commit_id
        for cache in ("cold", "warm"):
            await lake.count(
                "log of 100",
                cache,
                lambda: graveler.history.page(lake.repository, Span.of(head), 100),
            )


async def _old_merge(lake: Lake) -> None:
    """Measures the search for the merge base of a branch that was made before all other commits."""
    async with lake.replica() as graveler:
        old = BranchName(lake.repository, OLD)
        await graveler.branches.create(old, lake.root)
        await lake.stage(graveler, OLD, 100_009)
        made = await graveler.committing.commit(old, CommitRequest("ann", "old"))
        head = (await graveler.branches.fresh(BranchName(lake.repository, MAIN))).branch.commit_id
    async with lake.replica() as graveler:
        for cache in ("cold", "warm"):
            await lake.count(
                "merge base of a branch made at the root",
                cache,
                partial(graveler.merges.bases, lake.repository, head, made.commit_id),
            )


async def grown(axis: str, size: int) -> list[dict[str, Any]]:
    """Makes a lake of one size, and returns a row for each operation."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder), axis, size)
        await lake.make(size if axis == "objects" else _OBJECTS_ELSE)
        if axis == "branches":
            await _make_branches(lake, size)
        if axis == "commits":
            await _make_commits(lake, size)
        await _requests(lake)
        await _whole(lake)
        await _log(lake)
        await _versions(lake)
        if axis == "commits":
            await _old_merge(lake)
        return lake.rows


async def _make_branches(lake: Lake, count: int) -> None:
    async with lake.replica() as graveler:
        for number in range(count):
            name = BranchName(lake.repository, BranchId(f"branch-{number:06}"))
            await graveler.branches.create(name, lake.root)


async def _make_commits(lake: Lake, count: int) -> None:
    """Makes a line of commits that change nothing, of which `main` is the last."""
    async with lake.replica() as graveler:
        main = BranchName(lake.repository, MAIN)
        listing = (await graveler.commits.get(lake.repository, lake.root)).metarange_id
        last = lake.root
        for number in range(1, count):
            last = await lake.add_commit(graveler, [last], listing, number)
        await graveler.branches.delete(main, _announces_nothing)
        await graveler.branches.create(main, last)


async def _announces_nothing(_: Sequence[Token]) -> None:
    """There are no rows to drop."""


def main() -> None:
    """Measures, prints a line for each operation, and writes the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    sizes = {"objects": OBJECTS, "branches": BRANCHES, "commits": COMMITS}
    parser.add_argument("--axis", choices=sizes, action="append", help="default: all")
    parser.add_argument("--most", type=int, default=max(OBJECTS), help="leave larger sizes out")
    parser.add_argument("--output", type=Path, default=RESULT)
    given = parser.parse_args()
    axes = given.axis or list(sizes)
    before = json.loads(given.output.read_text())["rows"] if given.output.exists() else []
    rows = [row for row in before if row["axis"] not in axes]
    for axis in axes:
        for size in sizes[axis]:
            if size <= given.most:
                made = asyncio.run(grown(axis, size))
                rows += made
                print(*map(json.dumps, made), sep="\n", flush=True)
    given.output.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
