"""Replays a large journal in Spark, and folds the uncommitted rows of each branch into a listing.

The rules are those of `tarn.journal.replay`, and listings are written by `tarn.block.committed`, as in one process.
All places are divided into spans of some 250,000 rows, by a sample of the files (`dividing`). Then executors read each
file once, check it, tell its facts and its records, and hand the rows of tokens to the task of their span
(`spreading`). The driver judges which files count, and takes the newest records. Only then the task of a span knows
which of its rows are wanted: it takes the row that counts of each place, and builds the listing of the span. The
driver joins the listings of a branch.

Spark keeps what was read on the disks of executors. If one of them dies, its files are read again: they must be the
files that were judged, and the spans must get as many rows as those told. Otherwise the job fails.

Spans end where listings are cut (`tarn.core.listing.breaks`), so the joined ranges are those of one build. All files
have names that follow from their contents, so a task or a job that is repeated writes the same ones.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD
from pyspark.sql import SparkSession

from tarn.block.committed import Committed, open_committed
from tarn.block.port import BlockKey, BlockStore, read_whole
from tarn.collection.progress import CollectionProgress
from tarn.core.branch import Branch
from tarn.core.commit import commit_id_of, commit_path, from_json
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, MetarangeId
from tarn.core.listing.breaks import BreakRule
from tarn.journal.accounts import Accounts
from tarn.journal.epochs import Epoch
from tarn.journal.events import BRANCHES
from tarn.journal.groups import FileGroups, changed_error
from tarn.journal.reading import EpochReader, Source
from tarn.journal.replay import Record, StagedRows, ranks_of, record_of, staged_rows, topmost
from tarn.journal.replayed import BuiltListing, ReplayedJournal
from tarn.journal.source import files_digest, find_source
from tarn.kv.keys import RepositoryKeys
from tarn_spark.collection.actions import SparkActions
from tarn_spark.collection.executor import PartitionWork, StorePlace, partition_task
from tarn_spark.journal.dividing import Part, by_span, ends_of, is_wanted, parts_of
from tarn_spark.journal.sources import as_bytes, judged, pieces_of, sha256_in
from tarn_spark.journal.spreading import FileTold, InPlace, JudgeFiles, SpreadFiles, TakeTold, taken

__all__ = ["SESSION_SETTINGS", "SparkReplay"]

SESSION_SETTINGS: Final = {
    # Spark's default of 1 GiB is for drivers whose executors are elsewhere. With spark-submit its own option counts.
    "spark.driver.memory": "2g",
    # Java's best compiler takes longer than all the work that is left for Java, which only moves bytes.
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    # Arrow's own allocator gives memory back after each table, so the kernel clears pages anew: 1 µs for an event.
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Settings of a session that replays, where its user has set none."""

_SPAN_ROWS: Final = 250_000
"""Rows of a span, on average: in the memory of one task, at most some four times as many."""
_FILES_OF_TASK: Final = 8
"""Files that a task reads, if there are enough tasks; a task costs as much as some 100,000 events."""
_THREADS: Final = 2
"""Of a task that builds; tasks use the cores."""
_CACHE_BYTES: Final = 256 << 20
_COMMIT_BYTES_MAX: Final = 16 << 20
_DAMAGE: Final = {Kind.CORRUPT, Kind.NOT_FOUND}


class _Built(NamedTuple):
    """A part that was built.

    Attributes:
        span: of the part.
        branch_id: likewise.
        listing: empty if there is a problem.
        rows: uncommitted ones.
        problem: why it could not be built.
    """

    span: int
    branch_id: str
    listing: str
    rows: int
    problem: str


@dataclass(frozen=True, slots=True)
class _KnownErasures:
    """Implements `tarn.block.replacements.ErasedRows`."""

    addresses: AbstractSet[bytes]

    async def any(self) -> bool:
        """See `ErasedRows.any`."""
        return bool(self.addresses)

    async def among(self, addresses: Sequence[bytes]) -> AbstractSet[bytes]:
        """See `ErasedRows.among`."""
        return self.addresses & set(addresses)


@dataclass(frozen=True, slots=True)
class _Build:
    """Builds the listings of a span; takes what `taken` needs, yields the number of rows and a `_Built` of each part.

    Attributes:
        reading: of which journal, with the ends of spans, and the ranks of the layers whose rows are wanted.
        parts: of each span.
        erased: see `Committed.build`.
        rule: where listings are cut.
    """

    reading: SpreadFiles
    parts: Mapping[int, Sequence[Part]]
    erased: _KnownErasures
    rule: BreakRule

    async def __call__(
        self, blocks: BlockStore, items: Iterable[tuple[int, InPlace | bytes]]
    ) -> AsyncIterator[_Built | int]:
        """See `PartitionWork`."""
        span, count, found = await self.staged(blocks, items)
        yield count
        if not count:
            return
        rows = {each.branch_id: each for each in found}
        with tempfile.TemporaryDirectory(prefix="tarn-rebuild-") as folder:
            opened = open_committed(
                blocks, Path(folder), cache_bytes=_CACHE_BYTES, rule=self.rule, threads=_THREADS
            )
            async with opened as committed:
                for part in self.parts[span]:
                    own = rows.get(part.branch_id)
                    batches = []
                    if own is not None:
                        columns = [own.paths, own.payloads]
                        batches = [pa.record_batch(columns, names=["path", "value"])]
                    yield await self.built(committed, span, part, batches)

    async def staged(
        self, blocks: BlockStore, items: Iterable[tuple[int, InPlace | bytes]]
    ) -> tuple[int, int, list[StagedRows]]:
        """Returns the span, how many rows it got, and those that count."""
        held = list(items)
        if not held:
            return 0, 0, []
        span, _ = held[0]
        table = await taken(blocks, [item for _, item in held], self.reading, span)
        found = topmost(table)
        found = found.take(pc.sort_indices(found.column("place")))
        return span, len(table), list(staged_rows(found))

    async def built(
        self, committed: Committed, span: int, part: Part, batches: Sequence[pa.RecordBatch]
    ) -> _Built:
        """Builds one part; damage is in the result."""
        listing, problem = "", ""
        try:
            made = await committed.build_part(
                self.reading.namespace,
                part.base,
                [_layer(batches)],
                part.paths,
                head=part.head,
                finely=part.is_first,
                erased=self.erased,
            )
            listing = made.metarange_id
        except TarnError as error:
            if error.kind not in _DAMAGE:
                raise
            problem = error.message
        return _Built(span, part.branch_id, listing, sum(map(len, batches)), problem)


async def _layer(batches: Sequence[pa.RecordBatch]) -> AsyncIterator[pa.RecordBatch]:
    for batch in batches:
        yield batch


@dataclass(slots=True)
class SparkReplay:
    """Replays a journal.

    Attributes:
        spark: runs the jobs; its settings stay as they are.
        place: opens the block store on executors.
        blocks: the same store, for the driver.
        namespace: of the journal.
        rule: where listings are cut.
        span_rows: see `_SPAN_ROWS`.
        progress: told of the steps.
    """

    spark: SparkSession
    place: StorePlace
    blocks: BlockStore
    namespace: str
    rule: BreakRule = field(default_factory=BreakRule)
    span_rows: int = _SPAN_ROWS
    progress: CollectionProgress = field(default_factory=CollectionProgress)

    async def run(self) -> ReplayedJournal:
        """Replays the newest epoch; all listings are durable on return.

        Raises:
            TarnError: as `tarn.journal.source.find_source`; CORRUPT: the base or the record of a branch is damaged;
                INTERNAL: Spark failed. Errors of the store.
        """
        epoch = (await find_source(self.blocks, self.namespace)).epoch
        accounts = Accounts(epoch.number, epoch.begin_time_us)
        reader = EpochReader(self.blocks, self.namespace, epoch, accounts)
        names = await reader.names()
        compaction = reader.selector.compaction
        work = _Work(self, SparkActions(self.spark, self.progress), epoch)
        await work.read([*(epoch.base if compaction is None else compaction.files), *names], reader)
        return ReplayedJournal(
            namespace=self.namespace,
            epoch=epoch.number,
            folder=epoch.folder,
            files_sha256=files_digest(epoch, compaction, names),
            report=accounts.report(),
            records=tuple((each.key, each.payload, each.order) for each in work.records),
            entries=tuple(work.entries),
            unreadable=tuple(work.unreadable),
            listings=tuple(await work.fold()),
        )


@dataclass(slots=True)
class _Work:
    """One replay.

    Attributes:
        records: that exist, ascending by key.
        entries: of reflogs.
        unreadable: how many records of a branch cannot be read.
        sources: all files.
        files: what those tell that count, by position.
        digests: their SHA-256.
        counts: rows of each layer in these files.
        problems: branches whose uncommitted rows are lost.
    """

    job: SparkReplay
    actions: SparkActions
    epoch: Epoch
    records: list[Record] = field(default_factory=list)
    entries: list[tuple[str, bytes]] = field(default_factory=list)
    unreadable: list[tuple[str, int]] = field(default_factory=list)
    sources: list[bytes] = field(default_factory=list)
    files: dict[int, FileTold] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    counts: Counter[bytes] = field(default_factory=Counter)
    problems: dict[str, BuiltListing] = field(default_factory=dict)

    async def read(self, sources: Sequence[Source], reader: EpochReader) -> None:
        """Reads what all files tell, and takes what counts beside the rows of tokens."""
        context = self.job.spark.sparkContext
        self.sources = [as_bytes(each) for each in sources]
        judging = JudgeFiles(self.job.namespace, self.epoch, self.job.rule)
        read = self._tasks(list(enumerate(self.sources)), judging).partitionBy(1, index)

        async def told_by(step: str, take: TakeTold) -> list[Any]:
            taking = read.mapPartitions(take)
            return list(await self.actions.run(step, lambda: context.runJob(taking, list)))

        *told, records = await told_by("read the journal", TakeTold())
        told.sort()
        damaged, kept = judged([(each.at, each.facts) for each in told], sources, reader.selector)
        left_out = frozenset(damaged)
        if left_out:
            *again, records = await told_by("read records", TakeTold(left_out))
            if sorted(map(_named, again)) != [*map(_named, told)]:
                raise changed_error()
        self.files = {each.at: each for each in told if each.at not in left_out}
        for at, each in zip(self.files, kept, strict=True):
            self.digests[at] = each.sha256
            for (name, token), count in each.counts.items():
                if token:
                    self.counts[f"{name}\0{token}".encode()] += count
        for key, (order, payload) in sorted(records.newest.items()):
            if payload:
                self.records.append(record_of(key, payload, order))
        self.entries = sorted(records.entries)
        self.unreadable = sorted(records.unreadable.items())

    def _tasks(self, items: Sequence[Any], work: PartitionWork[Any, Any]) -> RDD[Any]:
        """Returns an RDD of what tasks make of files."""
        context = self.job.spark.sparkContext
        slots = context.defaultParallelism
        tasks = min(pieces_of(len(items), slots), max(2 * slots, len(items) // _FILES_OF_TASK))
        return context.parallelize(items, tasks).mapPartitions(partition_task(self.job.place, work))

    async def fold(self) -> list[BuiltListing]:
        """Builds the listings of all branches with uncommitted rows."""
        ranks, bases = await self._layers()
        if not bases:
            return sorted(self.problems.values(), key=lambda each: each.branch_id)
        wanted = {at: _wanted(each.groups, ranks) for at, each in self.files.items()}
        ends = self._ends(ranks, wanted)
        reading = SpreadFiles(self.job.namespace, self.epoch, ends, ranks)
        prefix = RepositoryKeys.ERASED.decode()
        erased = _KnownErasures(
            frozenset(
                bytes.fromhex(each.key.removeprefix(prefix))
                for each in self.records
                if each.key.startswith(prefix)
            )
        )
        building = _Build(reading, parts_of(ends, bases), erased, self.job.rule)
        folded = self._divided(reading, wanted).mapPartitions(
            partition_task(self.job.place, building)
        )
        run = self.job.spark.sparkContext.runJob
        found = await self.actions.run("fold", lambda: run(folded, list))
        if sum(each for each in found if isinstance(each, int)) != sum(
            self.counts[layer] for layer in ranks
        ):
            raise changed_error()
        built = [each for each in found if isinstance(each, _Built)]
        return await self._joined({(each.branch_id, each.span): each for each in built}, building)

    async def _layers(self) -> tuple[dict[bytes, int], dict[str, tuple[MetarangeId, MetarangeId]]]:
        """Returns the ranks of all layers that records name, and the listings of the branches that have rows."""
        bases: dict[str, tuple[MetarangeId, MetarangeId]] = {}
        all_ranks: dict[bytes, int] = {}
        for record in self.records:
            if record.branch is None:
                continue
            ranks = ranks_of(record.key, record.branch)
            name = record.key.removeprefix(BRANCHES)
            if any(layer in self.counts for layer in ranks) and (
                found := await self._base_of(name, record.branch)
            ):
                bases[name] = found
                all_ranks |= ranks
        return all_ranks, bases

    def _ends(
        self, ranks: Mapping[bytes, int], wanted: Mapping[int, FileGroups | None]
    ) -> list[bytes]:
        """Returns the last places of the spans."""
        samples = []
        for at, file in wanted.items():
            if file is not None:
                numbers = {each.number for each in file.groups}
                samples += [each for each in self.files[at].samples if each.group in numbers]
        rows = sum(self.counts[layer] for layer in ranks)
        return ends_of(samples, rows, self.job.span_rows)

    def _divided(self, reading: SpreadFiles, wanted: Mapping[int, FileGroups | None]) -> RDD[Any]:
        """Returns an RDD with a partition for each span: its files to read in place, and pieces of the others."""
        context = self.job.spark.sparkContext
        spans: list[list[tuple[int, InPlace]]] = [[] for _ in range(len(reading.ends) + 1)]
        exchanged = []
        for at, file in wanted.items():
            found = None if file is None else by_span(file, reading.ends)
            if found is None:
                exchanged.append((self.sources[at], self.digests[at]))
                continue
            for span, groups in found.items():
                spans[span].append((span, InPlace(self.sources[at], groups)))
        items = [each for span in spans for each in span]
        if not exchanged:
            return context.parallelize(spans, len(spans)).flatMap(list)
        pieces = self._tasks(exchanged, reading)
        return context.union([context.parallelize(items, 1), pieces]).partitionBy(len(spans), index)

    async def _base_of(self, name: str, branch: Branch) -> tuple[MetarangeId, MetarangeId] | None:
        """Returns the listing beneath the uncommitted rows of a branch, and that of its commit."""
        try:
            head = await _listing_of(self.job.blocks, self.job.namespace, branch.commit_id)
        except TarnError as error:
            if error.kind not in _DAMAGE:
                raise
            self.problems[name] = BuiltListing(name, 0, None, error.message)
            return None
        return branch.compacted_metarange_id or head, head

    async def _joined(
        self, done: Mapping[tuple[str, int], _Built], building: _Build
    ) -> list[BuiltListing]:
        """Joins the listings of each branch."""
        wanted: dict[str, list[tuple[int, Part]]] = {}
        for span, parts in sorted(building.parts.items()):
            for part in parts:
                wanted.setdefault(part.branch_id, []).append((span, part))
        found = [*self.problems.values()]
        with tempfile.TemporaryDirectory(prefix="tarn-rebuild-") as folder:
            opened = open_committed(
                self.job.blocks, Path(folder), cache_bytes=_CACHE_BYTES, rule=self.job.rule
            )
            async with opened as committed:
                for name, places in sorted(wanted.items()):
                    rows = []
                    for span, part in places:
                        row = done.get((name, span))
                        if row is None:  # no row that counts is in the span
                            row = await building.built(committed, span, part, [])
                        rows.append(row)
                    found.append(await self._listing(committed, places[0][1], rows))
        return sorted(found, key=lambda each: each.branch_id)

    async def _listing(
        self, committed: Committed, part: Part, rows: Sequence[_Built]
    ) -> BuiltListing:
        name, count = part.branch_id, sum(row.rows for row in rows)
        problem = next((row.problem for row in rows if row.problem), "")
        listing = None
        if not problem:
            listings = [MetarangeId(row.listing) for row in rows]
            listing = await committed.joined(self.job.namespace, listings, head=part.head)
        return BuiltListing(name, count, listing, problem)


def _wanted(file: FileGroups | None, ranks: Mapping[bytes, int]) -> FileGroups | None:
    """Returns the groups of a file that may have rows of layers that records name."""
    if file is None:
        return None
    groups = tuple(each for each in file.groups if is_wanted(each, ranks))
    return msgspec.structs.replace(file, groups=groups)


def _named(told: FileTold) -> tuple[int, str]:
    return told.at, sha256_in(told.facts)


async def _listing_of(blocks: BlockStore, namespace: str, commit_id: CommitId) -> MetarangeId:
    """Returns the listing of a commit, as its object in the bucket says.

    Raises:
        TarnError: BLOCK_NOT_FOUND; CORRUPT: the object is damaged. Errors of the store.
    """
    path = commit_path(commit_id)
    commit = from_json(await read_whole(blocks, BlockKey(namespace, path), _COMMIT_BYTES_MAX))
    if commit_id_of(commit) != commit_id:
        text = f"{path} is damaged: it has another commit"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=path)
    return commit.metarange_id
