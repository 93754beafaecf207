"""The nightly compaction of a large journal in Spark, by the rules of `tarn.journal.compacting`.

Executors read each file with the checks of all readers, leave out what goes before it leaves their process, and write
the sorted rows under names that no other attempt of a task has. So a run that dies leaves files that nobody names, and
the driver publishes what the last attempts wrote.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tarn.block.port import BlockStore
from tarn.collection.progress import CollectionProgress
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.compacting import SORTED_BY, CompactedWriter, Leaving, records_in
from tarn.journal.compactions import CompactedFile
from tarn.journal.epochs import Epoch
from tarn.journal.events import EVENT_SCHEMA
from tarn.journal.reading import FileFacts, PassSelector, Source
from tarn_spark.collection.actions import SparkActions
from tarn_spark.collection.executor import StorePlace, arrow_task
from tarn_spark.collection.tasks import new_attempt
from tarn_spark.journal.sources import judged, read_row, sources_frame

__all__ = ["SparkCompaction"]

_TOLD: Final = "at int, facts binary, branch string, order bigint, payload binary"
_TOLD_SCHEMA: Final = pa.schema(
    [
        ("at", pa.int32()),
        ("facts", pa.binary()),
        ("branch", pa.string()),
        ("order", pa.int64()),
        ("payload", pa.binary()),
    ]
)
_EVENTS: Final = (
    "event_id binary, branch string, token string, order bigint, time_us bigint, user_uid binary, "
    "session_uid binary, operation string, key string, payload binary, cause binary"
)
_FILES: Final = "name string, rows bigint, sha256 string, first string, last string"
_BATCH_ROWS: Final = 1 << 14
_TASK_ROWS: Final = 200_000
"""Rows that one task writes, on average; a batch of them is a file."""
_TASK_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class _Judge:
    """Reads files; takes `SOURCES`, yields `_TOLD`: the facts of each file, and its newest records of branches."""

    namespace: str
    epoch: Epoch

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        for row in batch.to_pylist():
            facts, table = await read_row(blocks, self.namespace, self.epoch, row["source"])
            told: list[tuple[bytes | None, str | None, int | None, bytes | None]]
            told = [(facts, None, None, None)]
            found = records_in(table) if table is not None else {}
            told += [(None, name, order, payload) for name, (order, payload) in found.items()]
            columns = [[row["at"]] * len(told), *map(list, zip(*told, strict=True))]
            yield pa.RecordBatch.from_pydict(
                dict(zip(_TOLD_SCHEMA.names, columns, strict=True)), schema=_TOLD_SCHEMA
            )


@dataclass(frozen=True, slots=True)
class _ReadKept:
    """Reads files that count; takes `SOURCES`, yields the events that stay."""

    namespace: str
    epoch: Epoch
    leaving: Leaving

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        for source in batch.column("source").to_pylist():
            _, table = await read_row(blocks, self.namespace, self.epoch, source)
            if table is None:
                text = "a file of the journal was damaged while it was compacted; nothing was changed: run it again"
                raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
            for part in self.leaving.kept(table).to_batches(max_chunksize=_BATCH_ROWS):
                ids = part.column("event_id").cast(pa.binary())
                yield pa.RecordBatch.from_arrays([ids, *part.columns[1:]], names=EVENT_SCHEMA.names)


@dataclass(frozen=True, slots=True)
class _Write:
    """Writes sorted events; yields `_FILES`."""

    namespace: str
    folder: str

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        columns = [batch.column(each.name).cast(each.type) for each in EVENT_SCHEMA]
        writer = CompactedWriter(blocks, self.namespace, self.folder, new_attempt)
        await writer.add(pa.Table.from_arrays(columns, schema=EVENT_SCHEMA))
        await writer.finish()
        if writer.files:
            names = [each.partition(" ")[0] for each in _FILES.split(", ")]
            found = {name: [getattr(each, name) for each in writer.files] for name in names}
            yield pa.RecordBatch.from_pydict(found)


@dataclass(slots=True)
class SparkCompaction:
    """Reads and writes the rows of a compaction in Spark. Implements `tarn.journal.compacting.CompactionRows`.

    Attributes:
        spark: runs the jobs; its settings stay as they are.
        place: opens the block store on executors.
        namespace: of the journal.
        epoch: the newest one.
        progress: told of the steps.
    """

    spark: SparkSession
    place: StorePlace
    namespace: str
    epoch: Epoch
    progress: CollectionProgress = field(default_factory=CollectionProgress)
    _facts: list[FileFacts] = field(default_factory=list, init=False)

    async def judge(
        self, sources: Sequence[Source], selector: PassSelector
    ) -> tuple[list[int], dict[str, bytes]]:
        """See `CompactionRows`."""
        spark = self.spark.newSession()
        slots = spark.sparkContext.defaultParallelism
        spark.conf.set("spark.sql.shuffle.partitions", str(slots))
        actions = SparkActions(spark, self.progress)
        work = _Judge(self.namespace, self.epoch)
        read = sources_frame(spark, sources).mapInArrow(arrow_task(self.place, work), _TOLD)
        read.persist(StorageLevel.DISK_ONLY)
        try:
            facts = read.where(f.col("facts").isNotNull()).select("at", "facts").orderBy("at")
            told = await actions.run("read the journal", facts.collect)
            left_out, self._facts = judged(told, sources, selector)
            if left_out:
                read = read.where(~f.col("at").isin(left_out))
            records = await actions.run("read records", _newest(read).collect)
        finally:
            read.unpersist()
        return left_out, {row["branch"]: bytes(row["payload"]) for row in records}

    async def write(self, sources: Sequence[Source], leaving: Leaving) -> list[CompactedFile]:
        """See `CompactionRows`."""
        spark = self.spark.newSession()
        # A task gets the rows of a file as one batch.
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(_TASK_ROWS))
        spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(_TASK_BYTES))
        count = sum(
            rows
            for facts in self._facts
            for place, rows in facts.counts.items()
            if place not in leaving.tokens
        )
        pieces = max(1, -(-count // _TASK_ROWS))
        spark.conf.set("spark.sql.shuffle.partitions", str(pieces))
        work = _ReadKept(self.namespace, self.epoch, leaving)
        rows = sources_frame(spark, sources).mapInArrow(arrow_task(self.place, work), _EVENTS)
        ordered = rows.distinct().repartitionByRange(pieces, *SORTED_BY)
        ordered = ordered.sortWithinPartitions(*SORTED_BY)
        writing = _Write(self.namespace, self.epoch.folder)
        written = ordered.mapInArrow(arrow_task(self.place, writing), _FILES)
        found = await SparkActions(spark, self.progress).run("write the files", written.collect)
        return [CompactedFile(**row.asDict()) for row in found]


def _newest(told: DataFrame) -> DataFrame:
    newest = f.max(f.struct("order", "payload")).alias("newest")
    rows = told.where(f.col("branch").isNotNull()).groupBy("branch").agg(newest)
    return rows.select("branch", "newest.payload")
