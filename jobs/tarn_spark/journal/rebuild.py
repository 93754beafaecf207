"""What a rebuild makes of an epoch, computed by Spark with the rules of `tarn.journal.replay`.

Executors read each file once, with the checks of `tarn.journal.reading`, and keep its rows on their disks. The driver
judges which files count, and reads the records. Then the rows of the tokens that the records name are joined, and of
each path the newest one is taken. Only records come to the driver.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tarn.block.port import BlockStore
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.epochs import BaseFile, Epoch
from tarn.journal.events import BRANCHES
from tarn.journal.names import PassName
from tarn.journal.reading import FileFacts, PassSelector, read_base, read_pass
from tarn.journal.replay import Record, branch_of
from tarn_spark.collection.executor import StorePlace, arrow_task, error_in

__all__ = ["STAGED", "SparkRebuild", "spark_rebuild"]

T = TypeVar("T")

STAGED: Final = "branch string, path string, payload binary"
_FILES: Final = "at int, holder string, number bigint, day string, rows bigint, sha256 string"
_ROWS: Final = (
    "at int, facts binary, branch string, token string, key string, order bigint, payload binary"
)
_COLUMNS: Final = ["branch", "token", "key", "order", "payload"]
_ROWS_SCHEMA: Final = pa.schema(
    [
        ("at", pa.int32()),
        ("facts", pa.binary()),
        ("branch", pa.string()),
        ("token", pa.string()),
        ("key", pa.string()),
        ("order", pa.int64()),
        ("payload", pa.binary()),
    ]
)
_BATCH_ROWS: Final = 1 << 14


class _Told(msgspec.Struct, frozen=True):
    """What an executor found out about a file: its facts, or kind, reason and text of an error."""

    facts: FileFacts | None = None
    error: tuple[str, str, str] | None = None


@dataclass(frozen=True, slots=True)
class _ReadFiles:
    """Reads files; takes `_FILES`, yields `_ROWS`: a row with facts for each file, and its rows. A `BatchWork`."""

    namespace: str
    epoch: Epoch

    async def __call__(
        self, blocks: BlockStore, batch: pa.RecordBatch
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `BatchWork`."""
        for row in batch.to_pylist():
            if not row["holder"]:
                base = BaseFile(row["number"], row["rows"], row["sha256"])
                folder = self.epoch.folder
                facts, table = await read_base(blocks, self.namespace, folder, base)
            else:
                name = PassName(row["holder"], row["number"], row["day"])
                try:
                    facts, table = await read_pass(blocks, self.namespace, self.epoch, name)
                except TarnError as error:
                    told = _Told(error=(error.kind.value, error.reason.value, error.message))
                    yield _facts_batch(row["at"], told)
                    continue
            yield _facts_batch(row["at"], _Told(facts=facts))
            for part in table.select(_COLUMNS).to_batches(max_chunksize=_BATCH_ROWS):
                at = pa.repeat(pa.scalar(row["at"], pa.int32()), len(part))
                columns = [at, pa.nulls(len(part), pa.binary()), *part.columns]
                yield pa.RecordBatch.from_arrays(columns, schema=_ROWS_SCHEMA)


def _facts_batch(at: int, told: _Told) -> pa.RecordBatch:
    nothing = [pa.nulls(1, field.type) for field in list(_ROWS_SCHEMA)[2:]]
    first = [pa.array([at], pa.int32()), pa.array([msgspec.msgpack.encode(told)], pa.binary())]
    return pa.RecordBatch.from_arrays([*first, *nothing], schema=_ROWS_SCHEMA)


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

    Args:
        spark: runs the jobs.
        place: of the block store.
        namespace: of the journal.
        epoch: the newest one.
        names: its files, as `tarn.journal.reading.EpochReader.names` returns them.
        selector: that of the same reader, which has read the manifests.
        stack: frees what the executors keep; close it when the result is not needed any more.

    Raises:
        TarnError: CORRUPT: the base or the record of a branch is damaged. INTERNAL: Spark failed.
    """
    base = [(at, "", each.number, "", each.rows, each.sha256) for at, each in enumerate(epoch.base)]
    passes = [(len(base) + at, n.holder, n.number, n.day, 0, "") for at, n in enumerate(names)]
    files = spark.createDataFrame([*base, *passes], _FILES, verifySchema=False)
    pieces = max(1, min(len(base) + len(passes), 8 * spark.sparkContext.defaultParallelism))
    work = _ReadFiles(namespace, epoch)
    read = files.repartition(pieces).mapInArrow(arrow_task(place, work), _ROWS)
    read.persist(StorageLevel.DISK_ONLY)
    stack.callback(read.unpersist)
    left_out = _judged(read, len(base), names, selector)
    rows = read.where(f.col("facts").isNull())
    if left_out:
        rows = rows.join(
            f.broadcast(spark.createDataFrame([(at,) for at in left_out], "at int")),
            "at",
            "left_anti",
        )
    records = _done("read records", lambda: list(_records(rows)))
    return SparkRebuild(_staged(spark, rows, records), records)


def _judged(
    read: DataFrame, base_count: int, names: Sequence[PassName], selector: PassSelector
) -> list[int]:
    """Lets the selector judge all files; returns those that do not count."""
    told = read.where(f.col("facts").isNotNull()).select("at", "facts").orderBy("at")
    left_out = []
    for row in _done("read the journal", told.collect):
        found = msgspec.msgpack.decode(row["facts"], type=_Told)
        at = row["at"]
        if found.error is not None:
            kind, reason, text = found.error
            selector.add_error(names[at - base_count], TarnError(Kind(kind), Reason(reason), text))
            left_out.append(at)
        elif at < base_count:
            assert found.facts is not None
            selector.add_base(found.facts)
        else:
            assert found.facts is not None
            if not selector.counts(names[at - base_count], found.facts):
                left_out.append(at)
    return left_out


def _records(rows: DataFrame) -> Iterator[Record]:
    newest = f.max(f.struct("order", "payload")).alias("newest")
    found = rows.where(f.col("token") == "").groupBy("key").agg(newest)
    found = found.select("key", "newest.order", "newest.payload")
    for row in found.where(f.length("payload") > 0).orderBy("key").toLocalIterator():
        payload = bytes(row["payload"])
        yield Record(row["key"], payload, row["order"], branch_of(row["key"], payload))


def _staged(spark: SparkSession, rows: DataFrame, records: Sequence[Record]) -> DataFrame:
    layers = [
        (record.key.removeprefix(BRANCHES), str(token.token_id), rank)
        for record in records
        if record.branch is not None
        for rank, token in enumerate(record.branch.tokens)
    ]
    ranks = spark.createDataFrame(layers, "branch string, token string, rank int")
    named = rows.where(f.col("token") != "").join(f.broadcast(ranks), ["branch", "token"])
    together = named.repartition("branch", "key")
    newest = f.max(f.struct("order", "payload")).alias("newest")
    in_layer = together.groupBy("branch", "key", "rank").agg(newest)
    shown = in_layer.where(f.length("newest.payload") > 0)
    topmost = f.min(f.struct("rank", "newest.payload")).alias("topmost")
    found = shown.groupBy("branch", "key").agg(topmost)
    return found.select("branch", f.col("key").alias("path"), "topmost.payload")


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
