"""What a rebuild makes of an epoch, computed by Spark with the rules of `tarn.journal.replay`.

Executors read each file once, with the checks of `tarn.journal.reading`. They spread its rows over buckets, by a hash
of branch and path, so that all rows of a place are in one bucket. A row of Spark is a whole Arrow table of rows of one
bucket: Spark moves and keeps these, and Python never sees a single row. The driver judges which files count, and reads
the records. Then each bucket takes the rows of the tokens that the records name, and of each path the one that counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tarn.block.port import BlockStore
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.epochs import Epoch
from tarn.journal.names import PassName
from tarn.journal.reading import PassSelector, Source
from tarn.journal.replay import Record, layers_of, ranks_of, record_layers, record_of, topmost
from tarn_spark.collection.executor import StorePlace, arrow_task, error_in
from tarn_spark.journal.sources import judged, read_row, sources_frame

__all__ = ["STAGED", "SparkRebuild", "spark_rebuild"]

T = TypeVar("T")

STAGED: Final = "branch string, path string, payload binary"
_RECORDS: Final = "key string, order bigint, payload binary"
_PARTS: Final = "at int, facts binary, is_record boolean, bucket int, rows binary"
_PARTS_SCHEMA: Final = pa.schema(
    [
        ("at", pa.int32()),
        ("facts", pa.binary()),
        ("is_record", pa.bool_()),
        ("bucket", pa.int32()),
        ("rows", pa.binary()),
    ]
)
_SPREAD_ROWS: Final = 1 << 15
_SPREAD_ROWS_OF_BUCKET: Final = 64
"""Rows that are spread together: few enough for caches, and so many that the tables of buckets are not tiny."""
_BATCH_BYTES: Final = 64 << 20
_BUCKET_ROWS: Final = 250_000
_PASS_ROWS: Final = 20_000
"""Rows of a pass, if there is nothing to go by."""
_BUCKETS_MAX: Final = 4096
_HASHED_ROWS: Final = 1 << 16
_RECORD_RANKS: Final = {b"\0": 0}

_Bytes = npt.NDArray[np.uint32]
# Any fixed numbers do.
_WEIGHTS: Final[_Bytes] = np.random.default_rng(36).integers(1 << 32, size=256, dtype=np.uint32)


@dataclass(frozen=True, slots=True)
class _Spread:
    """Reads files, and spreads their rows; takes `SOURCES`, yields `_PARTS`: the facts of each file, and tables.

    Attributes:
        namespace: of the journal.
        epoch: of the files.
        buckets: how many.
    """

    namespace: str
    epoch: Epoch
    buckets: int

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        most = max(_SPREAD_ROWS, _SPREAD_ROWS_OF_BUCKET * self.buckets)
        held: list[tuple[int, pa.Table]] = []
        for row in batch.to_pylist():
            facts, table = await read_row(blocks, self.namespace, self.epoch, row["source"])
            yield _part(at=row["at"], facts=pa.py_buffer(facts))
            if table is None:
                continue
            for start in range(0, len(table), most):
                held.append((row["at"], table.slice(start, most)))
                if sum(len(each) for _, each in held) >= most:
                    for part in self._spread(held):
                        yield part
                    held = []
        for part in self._spread(held):
            yield part

    def _spread(self, held: Sequence[tuple[int, pa.Table]]) -> Iterator[pa.RecordBatch]:
        for is_record in (False, True):
            tables = [_layers(at, table, is_record=is_record) for at, table in held]
            rows = pa.concat_tables([each for some in tables for each in some] or [_NOTHING])
            for bucket, part in _by_bucket(rows, self.buckets):
                yield _part(is_record=is_record, bucket=bucket, rows=_packed(part))


def _part(
    at: int | None = None,
    facts: pa.Buffer | None = None,
    is_record: bool | None = None,
    bucket: int | None = None,
    rows: pa.Buffer | None = None,
) -> pa.RecordBatch:
    """Returns a row of `_PARTS`, without copies of its buffers."""
    columns = [
        pa.array([at], pa.int32()),
        _binary(facts),
        pa.array([is_record], pa.bool_()),
        pa.array([bucket], pa.int32()),
        _binary(rows),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_PARTS_SCHEMA)


def _binary(body: pa.Buffer | None) -> pa.Array:
    if body is None:
        return pa.nulls(1, pa.binary())
    offsets = pa.py_buffer(np.array([0, body.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, body])


_ROWS_SCHEMA: Final = pa.schema(
    [
        ("place", pa.binary()),
        ("layer", pa.dictionary(pa.int32(), pa.binary())),
        ("order", pa.int64()),
        ("payload", pa.binary()),
        ("at", pa.int32()),
    ]
)
"""`tarn.journal.replay.LAYER_SCHEMA`, and the position of the file."""
_NOTHING: Final = _ROWS_SCHEMA.empty_table()


def _layers(at: int, table: pa.Table, *, is_record: bool) -> Iterator[pa.Table]:
    """Yields the rows of a file as `_ROWS_SCHEMA`: those of records, or those of tokens."""
    mask = pc.equal(table.column("token"), "")
    counts = mask if is_record else pc.invert(mask)
    if not pc.any(counts, min_count=0).as_py():
        return
    some = table if pc.all(counts).as_py() else table.filter(counts)
    for batch in some.to_batches():
        layers = record_layers(batch) if is_record else layers_of(batch)
        columns = [
            layers.column("place"),
            layers.column("layer").dictionary_encode(),
            layers.column("order"),
            layers.column("payload"),
            pa.repeat(pa.scalar(at, pa.int32()), len(batch)),
        ]
        yield pa.Table.from_arrays(columns, schema=_ROWS_SCHEMA)


def _by_bucket(table: pa.Table, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    if not len(table):
        return
    table = table.unify_dictionaries().combine_chunks()
    bucket = _bucket_of(table.column("place").combine_chunks(), buckets)
    by_bucket = np.argsort(bucket, kind="stable")
    bucket = bucket[by_bucket]
    table = table.take(by_bucket)
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(bucket)], strict=True):
        yield int(bucket[start]), table.slice(start, end - start)


def _bucket_of(places: pa.BinaryArray, buckets: int) -> npt.NDArray[np.int64]:
    """Spreads places evenly: by a sum over their bytes. Equal ones get the same bucket."""
    _, offsets, data = places.buffers()
    ends = np.frombuffer(offsets, np.int32)[places.offset : places.offset + len(places) + 1]
    text = np.frombuffer(data, np.uint8)
    sums = np.empty(len(places), np.uint32)
    for start in range(0, len(places), _HASHED_ROWS):
        some = ends[start : start + _HASHED_ROWS + 1]
        weights = _WEIGHTS[text[some[0] : some[-1]]]
        np.add.reduceat(  # no place is empty
            weights, some[:-1] - some[0], out=sums[start : start + len(some) - 1]
        )
    mixed = (sums.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    return (mixed % np.uint64(buckets)).astype(np.int64)


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


def _unpacked(batches: Iterable[pa.RecordBatch], left_out: Sequence[int]) -> pa.Table:
    """Returns the rows of all tables in a column `rows`, without those of files that do not count."""
    bodies = [each for batch in batches for each in batch.column("rows") if each.is_valid]
    tables = [pa.ipc.open_stream(each.as_buffer()).read_all() for each in bodies]
    rows = pa.concat_tables(tables or [_NOTHING]).unify_dictionaries()
    if left_out:
        counts = pc.invert(pc.is_in(rows.column("at"), value_set=pa.array(left_out, pa.int32())))
        rows = rows.filter(counts)
    return rows.combine_chunks()


def _staged_rows(
    ranks: Mapping[bytes, int], left_out: Sequence[int]
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Returns a task for whole buckets; it yields `STAGED`."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = topmost(_unpacked(batches, left_out), ranks)
        for batch in found.to_batches():
            place = batch.column("place").cast(pa.string())
            halves = pc.split_pattern(place, "\0", max_splits=1).flatten()
            at = np.arange(0, len(halves), 2)
            columns = [halves.take(at), halves.take(at + 1), batch.column("payload")]
            yield pa.RecordBatch.from_arrays(columns, names=["branch", "path", "payload"])

    return task


def _newest_records(
    left_out: Sequence[int],
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Returns a task for whole buckets; it yields `_RECORDS`."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in topmost(_unpacked(batches, left_out), _RECORD_RANKS).to_batches():
            key = pc.binary_replace_slice(batch.column("place"), 0, 1, b"").cast(pa.string())
            columns = [key, batch.column("order"), batch.column("payload")]
            yield pa.RecordBatch.from_arrays(columns, names=["key", "order", "payload"])

    return task


@dataclass(frozen=True, slots=True)
class SparkRebuild:
    """The state of an epoch.

    Attributes:
        staged: the uncommitted rows of all branches (`STAGED`), each path of a branch once; computed when it is used.
        records: all records that exist, ascending by key.
    """

    staged: DataFrame
    records: Sequence[Record]

    def listing(self, branch_id: str) -> DataFrame:
        """Returns the uncommitted rows of a branch, ascending by path, in partitions that follow each other."""
        own = self.staged.where(f.col("branch") == branch_id).drop("branch")
        return own.repartitionByRange("path").sortWithinPartitions("path")


def spark_rebuild(
    spark: SparkSession,
    place: StorePlace,
    namespace: str,
    epoch: Epoch,
    names: Sequence[PassName],
    selector: PassSelector,
    stack: ExitStack,
) -> SparkRebuild:
    """Computes the state of an epoch; `selector` then has the accounts of all files.

    A bucket, some 250,000 rows of tokens, is in the memory of one task.

    Args:
        spark: runs the jobs; its settings stay as they are.
        place: of the block store.
        namespace: of the journal.
        epoch: the newest one.
        names: its files, as `tarn.journal.reading.EpochReader.names` returns them.
        selector: that of the same reader, which has read the compaction and the manifests.
        stack: frees what the executors keep; close it when the result is not needed any more.

    Raises:
        TarnError: CORRUPT: the base is damaged. INTERNAL: Spark failed.
    """
    spark = spark.newSession()
    slots = spark.sparkContext.defaultParallelism
    spark.conf.set("spark.sql.shuffle.partitions", str(slots))
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(_BATCH_BYTES))
    compaction = selector.compaction
    whole = epoch.base if compaction is None else compaction.files
    sources: list[Source] = [*whole, *names]
    about = sum(each.rows for each in whole) + _PASS_ROWS * len(names)
    buckets = max(slots, min(_BUCKETS_MAX, about // _BUCKET_ROWS))
    work = _Spread(namespace, epoch, buckets)
    read = sources_frame(spark, sources).mapInArrow(arrow_task(place, work), _PARTS)
    read.persist(StorageLevel.DISK_ONLY)
    stack.callback(read.unpersist)
    told = read.where(f.col("facts").isNotNull()).select("at", "facts").orderBy("at")
    left_out, _ = judged(_done("read the journal", told.collect), sources, selector)
    rows = read.where(f.col("facts").isNull()).select("is_record", "bucket", "rows")
    of_records = rows.where("is_record").repartitionById(slots, f.col("bucket") % slots)
    newest = of_records.mapInArrow(_newest_records(left_out), _RECORDS).orderBy("key")
    records = _done("read records", lambda: list(_records(newest)))
    ranks: dict[bytes, int] = {}
    for record in records:
        if record.branch is not None:
            ranks |= ranks_of(record.key, record.branch)
    of_tokens = rows.where("not is_record").repartitionById(buckets, f.col("bucket"))
    return SparkRebuild(of_tokens.mapInArrow(_staged_rows(ranks, left_out), STAGED), records)


def _records(newest: DataFrame) -> Iterator[Record]:
    for row in newest.toLocalIterator():
        payload = bytes(row["payload"])
        yield record_of(row["key"], payload, row["order"])


def _done(step: str, action: Callable[[], T]) -> T:
    """Runs an action of Spark.

    Raises:
        TarnError: the error of an executor, or INTERNAL.
    """
    try:
        return action()
    except Exception as error:
        if not type(error).__module__.startswith(("py4j.", "pyspark.")):
            raise
        found = error_in(str(error))
        text = f"Spark could not {step}: {str(error)[:500]}; see the log of Spark"
        raise found or TarnError(Kind.INTERNAL, Reason.INTERNAL, text) from error
