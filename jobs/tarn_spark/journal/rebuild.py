"""Replays a large journal in Spark, and folds the uncommitted rows of each branch into a listing.

The rules are those of `tarn.journal.replay`, and listings are written by `tarn.block.committed`, as in one process.
Executors read each file twice. First they check it, and tell its facts, the records in it, and some of its places. The
driver judges which files count, takes the newest records, and divides all places into spans of some 250,000 rows. Then
executors read the columns that are needed, and hand each row of a token that a record names to the task of its span. A
row of Spark is a whole Arrow table of such rows: Python never sees a single row, and Spark moves and keeps tables. The
task of a span takes the row that counts of each place, and builds the listing of the span. The driver joins the
listings of a branch.

Spans end where listings are cut (`tarn.core.listing.breaks`), so the joined ranges are those of one build. All files
have names that follow from their contents, so a task or a job that is repeated writes the same ones.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tarn.block.committed import Committed, open_committed
from tarn.block.port import BlockKey, BlockStore, read_whole
from tarn.collection.progress import CollectionProgress
from tarn.core.branch import Branch
from tarn.core.commit import commit_id_of, commit_path, from_json
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, MetarangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.spans import PathSpan, path_after
from tarn.journal.accounts import Accounts
from tarn.journal.epochs import Epoch
from tarn.journal.events import BRANCHES
from tarn.journal.reading import EpochReader, FileFacts, Source
from tarn.journal.replay import (
    RANKED_SCHEMA,
    REPLAYED,
    Record,
    newest,
    ranked,
    ranks_of,
    record_layers,
    record_of,
    staged_rows,
    topmost,
)
from tarn.journal.replayed import BuiltListing, ReplayedJournal
from tarn.journal.source import entries_in, files_digest, find_source
from tarn.kv.keys import RepositoryKeys
from tarn.kv.records import encode_head_change
from tarn_spark.collection.actions import SparkActions
from tarn_spark.collection.executor import StorePlace, arrow_task
from tarn_spark.journal.sources import judged, read_row, read_row_again, sources_frame

__all__ = ["SESSION_SETTINGS", "SparkReplay"]

SESSION_SETTINGS: Final = {
    # Spark's default of 1 GiB is for drivers whose executors are elsewhere. With spark-submit its own option counts.
    "spark.driver.memory": "2g",
    # Arrow's own allocator gives memory back after each table, so the kernel clears pages anew: 1 µs for an event.
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Settings of a session that replays, where its user has set none."""

_TOLD: Final = (
    "at int, facts binary, sample binary, key string, order bigint, payload binary, entry binary"
)
_TOLD_SCHEMA: Final = pa.schema(
    [
        ("at", pa.int32()),
        ("facts", pa.binary()),
        ("sample", pa.binary()),
        ("key", pa.string()),
        ("order", pa.int64()),
        ("payload", pa.binary()),
        ("entry", pa.binary()),
    ]
)
_SPREAD: Final = "span int, rows binary"
_SPREAD_SCHEMA: Final = pa.schema([("span", pa.int32()), ("rows", pa.binary())])
_BUILT: Final = "span int, branch string, listing string, rows bigint, problem string"
_BUILT_SCHEMA: Final = pa.schema(
    [
        ("span", pa.int32()),
        ("branch", pa.string()),
        ("listing", pa.string()),
        ("rows", pa.int64()),
        ("problem", pa.string()),
    ]
)
_UNREADABLE: Final = b""
"""In the place of the entries of a record that cannot be read."""
_BATCH_BYTES: Final = 2 << 20
"""Of a batch on its way to Python: Java reserves larger ones apart, in new memory, again and again while they grow."""
_SPAN_ROWS: Final = 250_000
"""Rows of a span, on average: in the memory of one task, at most some four times as many."""
_SPREAD_ROWS: Final = 1 << 15
_SPREAD_ROWS_OF_SPAN: Final = 64
"""Rows that are spread together: few enough for caches, and so many that the tables of spans are not tiny."""
_PIECE_ROWS: Final = 1024
"""Most rows of a table on its way. Java reserves each value of half a megabyte and more apart, in new memory."""
_THREADS: Final = 2
"""Of a task that builds; tasks use the cores."""
_CACHE_BYTES: Final = 256 << 20
_COMMIT_BYTES_MAX: Final = 16 << 20
_DAMAGE: Final = {Kind.CORRUPT, Kind.NOT_FOUND}


@dataclass(frozen=True, slots=True)
class _Judge:
    """Reads files; takes `SOURCES`, yields `_TOLD`: the facts of each file with places, its newest records, entries of
    reflogs."""

    namespace: str
    epoch: Epoch
    rule: BreakRule

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        for row in batch.to_pylist():
            facts, table = await read_row(
                blocks, self.namespace, self.epoch, row["source"], REPLAYED
            )
            told: list[dict[str, Any]] = [{"facts": facts}]
            if table is not None:
                told[0]["sample"] = _packed(_sample(table, self.rule)).to_pybytes()
                told += _records_in(table)
            rows = [{"at": row["at"], **each} for each in told]
            yield pa.RecordBatch.from_pylist(rows, schema=_TOLD_SCHEMA)


def _sample(table: pa.Table, rule: BreakRule) -> pa.Table:
    """Returns the rows of tokens after whose paths a listing is cut, with the columns `REPLAYED`."""
    rows = table.select(REPLAYED).filter(pc.not_equal(table.column("token"), ""))
    ends = [rule.ends_after(piece) for piece in rows.column("key").chunks]
    return rows.filter(pa.array(np.concatenate([np.zeros(0, np.bool_), *ends])))


def _records_in(table: pa.Table) -> Iterator[dict[str, Any]]:
    records = table.filter(pc.equal(table.column("token"), ""))
    for batch in records.to_batches():
        for branch, entries in entries_in(batch):
            if entries is None:
                yield {"key": branch, "entry": _UNREADABLE}
            else:
                for each in entries:
                    yield {"key": branch, "entry": encode_head_change(each)}
    if len(records):
        layers = pa.Table.from_batches([record_layers(each) for each in records.to_batches()])
        found = newest(layers)
        columns = [found.column(name).to_pylist() for name in ("place", "order", "payload")]
        for place, order, payload in zip(*columns, strict=True):
            yield {"key": place[1:].decode(), "order": order, "payload": payload}


@dataclass(frozen=True, slots=True)
class _Spread:
    """Reads files again; takes `SOURCES`, yields `_SPREAD`: tables of rows of one span.

    Attributes:
        namespace: of the journal.
        epoch: of the files.
        ranks: of the layers whose rows are wanted.
        ends: the last place of each span but the last one, ascending.
    """

    namespace: str
    epoch: Epoch
    ranks: Mapping[bytes, int]
    ends: Sequence[bytes]

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        most = max(_SPREAD_ROWS, _SPREAD_ROWS_OF_SPAN * (len(self.ends) + 1))
        held: list[pa.Table] = []
        count = 0
        for source in batch.column("source").to_pylist():
            table = await read_row_again(blocks, self.namespace, self.epoch, source, REPLAYED)
            for start in range(0, len(table), most):
                held.append(ranked(table.slice(start, most), self.ranks))
                count += len(held[-1])
                if count >= most:
                    for part in self._spread(held):
                        yield part
                    held, count = [], 0
        for part in self._spread(held):
            yield part

    def _spread(self, held: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
        rows = pa.concat_tables([RANKED_SCHEMA.empty_table(), *held]).combine_chunks()
        if not len(rows):
            return
        ends = pa.array(self.ends, pa.binary())
        places = rows.column("place").combine_chunks()
        span = pc.search_sorted(ends, places, side="left").to_numpy().astype(np.int64)
        if np.any(span[1:] < span[:-1]):  # rows of a compaction have the order of their places
            by_span = np.argsort(span, kind="stable")
            span = span[by_span]
            rows = rows.take(by_span)
        starts = np.flatnonzero(np.diff(span, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(span)], strict=True):
            for at in range(start, end, _PIECE_ROWS):
                columns = [
                    pa.array([int(span[start])], pa.int32()),
                    _binary(_packed(rows.slice(at, min(_PIECE_ROWS, end - at)))),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=_SPREAD_SCHEMA)


def _binary(body: pa.Buffer) -> pa.Array:
    """Returns a column of one value, without a copy of it."""
    offsets = pa.py_buffer(np.array([0, body.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, body])


def _packed(table: pa.Table) -> pa.Buffer:
    size = pa.MockOutputStream()  # a buffer that grows would be copied again and again
    with pa.ipc.new_stream(size, table.schema) as stream:
        stream.write_table(table)
    body = pa.allocate_buffer(size.size())
    with (
        pa.FixedSizeBufferWriter(body) as sink,
        pa.ipc.new_stream(sink, table.schema) as stream,
    ):
        stream.write_table(table)
    return body


def _unpacked(bodies: Iterable[pa.Buffer]) -> Iterator[pa.Table]:
    return (pa.ipc.open_stream(each).read_all() for each in bodies)


@dataclass(frozen=True, slots=True)
class _Part:
    """The paths of a branch in one span.

    Attributes:
        branch_id: its name.
        base: the listing beneath its uncommitted rows.
        head: that of its commit.
        paths: from where to where.
        is_first: whether it is the first part of the branch.
    """

    branch_id: str
    base: MetarangeId
    head: MetarangeId
    paths: PathSpan
    is_first: bool


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
    """Builds the listings of a span; takes one batch with all of its tables, yields `_BUILT`.

    Attributes:
        namespace: of the repository.
        parts: of each span.
        erased: see `Committed.build`.
        rule: where listings are cut.
    """

    namespace: str
    parts: Mapping[int, Sequence[_Part]]
    erased: _KnownErasures
    rule: BreakRule

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        span: int = batch.column("span")[0].as_py()
        found = topmost(pa.concat_tables(_unpacked(x.as_buffer() for x in batch.column("rows"))))
        found = found.take(pc.sort_indices(found.column("place")))
        rows = {each.branch_id: each for each in staged_rows(found)}
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

    async def built(
        self, committed: Committed, span: int, part: _Part, batches: Sequence[pa.RecordBatch]
    ) -> pa.RecordBatch:
        """Builds one part; damage is in the result."""
        listing, problem = "", ""
        try:
            made = await committed.build_part(
                self.namespace,
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
        row = {
            "span": span,
            "branch": part.branch_id,
            "listing": listing,
            "rows": sum(map(len, batches)),
            "problem": problem,
        }
        return pa.RecordBatch.from_pylist([row], schema=_BUILT_SCHEMA)


async def _layer(batches: Sequence[pa.RecordBatch]) -> AsyncIterator[pa.RecordBatch]:
    for batch in batches:
        yield batch


def _of_whole_span(
    task: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Returns a task that gets all rows of a partition, which are those of one span, as one batch."""

    def whole(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        held = [each for each in batches if len(each)]
        return task([pa.concat_batches(held)]) if held else []

    return whole


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
        spark = self.spark.newSession()
        slots = spark.sparkContext.defaultParallelism
        spark.conf.set("spark.sql.shuffle.partitions", str(slots))
        # Plans that adapt are made anew after each shuffle; nothing here depends on what Spark counts.
        spark.conf.set("spark.sql.adaptive.enabled", "false")
        spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(_BATCH_BYTES))
        work = _Work(self, spark, SparkActions(spark, self.progress), epoch)
        await work.read([*(epoch.base if compaction is None else compaction.files), *names], reader)
        return ReplayedJournal(
            namespace=self.namespace,
            epoch=epoch.number,
            folder=epoch.folder,
            files_sha256=files_digest(epoch, compaction, names),
            report=accounts.report(),
            records=tuple((each.key, each.payload, each.order) for each in work.records),
            entries=tuple(sorted(work.entries)),
            unreadable=tuple(sorted(work.unreadable)),
            listings=tuple(await work.fold()),
        )


@dataclass(slots=True)
class _Work:
    """One replay.

    Attributes:
        records: that exist, ascending by key.
        entries: of reflogs.
        unreadable: how many records of a branch cannot be read.
        sources: the files that count.
        facts: of each.
        sample: some rows of tokens.
        ranks: of the layers whose rows are wanted.
        problems: branches whose uncommitted rows are lost.
    """

    job: SparkReplay
    spark: SparkSession
    actions: SparkActions
    epoch: Epoch
    records: list[Record] = field(default_factory=list)
    entries: list[tuple[str, bytes]] = field(default_factory=list)
    unreadable: list[tuple[str, int]] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    facts: list[FileFacts] = field(default_factory=list)
    sample: list[pa.Table] = field(default_factory=list)
    ranks: dict[bytes, int] = field(default_factory=dict)
    problems: dict[str, BuiltListing] = field(default_factory=dict)

    async def read(self, sources: Sequence[Source], reader: EpochReader) -> None:
        """Reads all files, and takes what counts beside the rows of tokens."""
        work = _Judge(self.job.namespace, self.epoch, self.job.rule)
        read = sources_frame(self.spark, sources)
        told = read.mapInArrow(arrow_task(self.job.place, work), _TOLD)
        told.persist(StorageLevel.DISK_ONLY)
        try:
            facts = told.where(f.col("facts").isNotNull()).select("at", "facts", "sample")
            found = await self.actions.run("read the journal", facts.collect)
            found.sort(key=lambda row: row["at"])
            left_out, self.facts = judged(found, sources, reader.selector)
            kept = [at for at in range(len(sources)) if at not in {*left_out}]
            self.sources = [sources[at] for at in kept]
            samples = [pa.py_buffer(found[at]["sample"]) for at in kept]
            self.sample = list(_unpacked(samples))
            counts = told.where(~f.col("at").isin(left_out)) if left_out else told
            rows = await self.actions.run("read records", _records(counts).collect)
        finally:
            told.unpersist()
        for row in sorted(rows, key=lambda row: row["key"]):
            if row["entry"] is None:
                if payload := bytes(row["newest"]["payload"]):
                    self.records.append(record_of(row["key"], payload, row["newest"]["order"]))
            elif entry := bytes(row["entry"]):
                self.entries.append((row["key"], entry))
            else:
                self.unreadable.append((row["key"], row["count"]))

    async def fold(self) -> list[BuiltListing]:
        """Builds the listings of all branches with uncommitted rows."""
        ends, parts = await self._divided()
        if not parts:
            return sorted(self.problems.values(), key=lambda each: each.branch_id)
        prefix = RepositoryKeys.ERASED.decode()
        erased = _KnownErasures(
            frozenset(
                bytes.fromhex(each.key.removeprefix(prefix))
                for each in self.records
                if each.key.startswith(prefix)
            )
        )
        building = _Build(self.job.namespace, parts, erased, self.job.rule)
        spreading = _Spread(self.job.namespace, self.epoch, self.ranks, ends)
        digests = [each.sha256 for each in self.facts]
        spread = sources_frame(self.spark, self.sources, digests).mapInArrow(
            arrow_task(self.job.place, spreading), _SPREAD
        )
        task = _of_whole_span(arrow_task(self.job.place, building))
        spans = spread.repartitionById(len(ends) + 1, f.col("span"))
        built = await self.actions.run("fold", spans.mapInArrow(task, _BUILT).collect)
        done = {(row["branch"], row["span"]): row for row in built}
        return await self._joined(done, building)

    async def _divided(self) -> tuple[list[bytes], dict[int, list[_Part]]]:
        """Divides the places of all wanted rows; returns where spans end, and the parts of each."""
        counts: dict[bytes, int] = {}
        for facts in self.facts:
            for (name, token), count in facts.counts.items():
                layer = f"{name}\0{token}".encode()
                counts[layer] = counts.get(layer, 0) + count
        bases: dict[str, tuple[MetarangeId, MetarangeId]] = {}
        rows = 0
        for record in self.records:
            if record.branch is None:
                continue
            ranks = ranks_of(record.key, record.branch)
            own = sum(counts.get(layer, 0) for layer in ranks)
            name = record.key.removeprefix(BRANCHES)
            if own and (found := await self._base_of(name, record.branch)):
                bases[name] = found
                self.ranks |= ranks
                rows += own
        ends = self._ends(-(-rows // self.job.span_rows))
        return ends, _parts(ends, bases)

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

    def _ends(self, spans: int) -> list[bytes]:
        """Returns the last places of so many spans, at most, with about as many rows each; not of the last one."""
        places: list[bytes] = sorted(
            place
            for table in self.sample
            for place in ranked(table, self.ranks).column("place").to_pylist()
        )
        at = [len(places) * number // spans for number in range(1, spans)]
        return sorted({places[each] for each in at}) if places else []

    async def _joined(
        self, done: Mapping[tuple[str, int], Any], building: _Build
    ) -> list[BuiltListing]:
        """Joins the listings of each branch."""
        wanted: dict[str, list[tuple[int, _Part]]] = {}
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
                        if row is None:  # no row is in the span, so it had no task
                            made = await building.built(committed, span, part, [])
                            (row,) = made.to_pylist()
                        rows.append(row)
                    found.append(await self._listing(committed, places[0][1], rows))
        return sorted(found, key=lambda each: each.branch_id)

    async def _listing(
        self, committed: Committed, part: _Part, rows: Sequence[Any]
    ) -> BuiltListing:
        name, count = part.branch_id, sum(row["rows"] for row in rows)
        problem = next((row["problem"] for row in rows if row["problem"]), "")
        listing = None
        if not problem:
            listings = [MetarangeId(row["listing"]) for row in rows]
            listing = await committed.joined(self.job.namespace, listings, head=part.head)
        return BuiltListing(name, count, listing, problem)


def _records(told: DataFrame) -> DataFrame:
    """Returns the newest of each record, whose `entry` is null, and each entry of a reflog once."""
    newest_of = f.max(f.struct("order", "payload")).alias("newest")
    rows = told.where(f.col("key").isNotNull()).groupBy("key", "entry")
    return rows.agg(newest_of, f.count("*").alias("count"))


def _parts(
    ends: Sequence[bytes], bases: Mapping[str, tuple[MetarangeId, MetarangeId]]
) -> dict[int, list[_Part]]:
    """Returns the parts of the branches in each span."""
    found: dict[int, list[_Part]] = {}
    for name, (base, head) in sorted(bases.items()):
        begin = name.encode() + b"\0"
        first = bisect_left(ends, begin)
        after = bisect_left(ends, name.encode() + b"\1")
        inner = [each[len(begin) :].decode() for each in ends[first:after]]
        starts = ["", *map(path_after, inner)]
        stops = [*starts[1:], None]
        for number, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            part = _Part(name, base, head, PathSpan(start, stop), is_first=not number)
            found.setdefault(first + number, []).append(part)
    return found


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
