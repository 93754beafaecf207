"""The tables of a collection in Spark: the blocks in use, the listed blocks, and the listed blocks that are not in
use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from tarn.block.rangefile import metarange_path, range_path
from tarn.collection.block_names import BlockKind
from tarn.collection.quarantine import PART_ROWS, Part, Tally
from tarn.collection.references import EMPTY_KEY, MissingFiles, Roots
from tarn.collection.root_files import RootParts
from tarn.core.collection import LISTING_IDS_MAX
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId, RangeId
from tarn_spark.collection.actions import SparkActions
from tarn_spark.collection.columns import KEYS, KINDS, LISTED, MISSING, kind_number
from tarn_spark.collection.executor import BatchWork, StorePlace, arrow_task
from tarn_spark.collection.slices import Slice
from tarn_spark.collection.tasks import (
    LACKS,
    PARTS,
    SLICES,
    FindListings,
    ListSlices,
    OpenListings,
    ReadQuarantine,
    ReadRoots,
)

__all__ = ["Frames", "Tallies"]

Tallies = dict[BlockKind, Tally]

_FILES_OF_TASK: Final = 256
"""Listings that one task opens, unless there are few."""
_ROWS_OF_TASK: Final = 16
"""Hours or files that one task reads, unless there are few."""
_TASKS_MAX: Final = 10_000
_JOINED_ROWS: Final = 1_000_000
"""Rows of both sides in one partition of a join."""
_BY_HASH_TABLE: Final = "shuffle_hash"
"""Spark would sort both sides. A table of one side of a partition takes 100 MiB at most, because hashes spread evenly,
and an existence join holds a key once however often it is referenced."""


class Frames:
    """Makes the tables of one run. The tables that it keeps on the executors are freed with `stack`.

    Args:
        spark: of this run alone: its settings are changed.
        actions: runs jobs.
        place: of the block store.
        namespace: of the repository.
        stack: closed at the end of the run.
    """

    def __init__(
        self,
        spark: SparkSession,
        actions: SparkActions,
        place: StorePlace,
        namespace: str,
        stack: ExitStack,
    ) -> None:
        # A task gets the rows of a file of the quarantine as one batch.
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(PART_ROWS))
        spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(256 << 20))
        self._spark = spark
        self._actions = actions
        self._place = place
        self.namespace = namespace
        self._stack = stack
        self.slots: int = spark.sparkContext.defaultParallelism
        """Tasks that run at the same time."""
        self._join_in(self.slots)

    def _join_in(self, partitions: int) -> None:
        """Chooses the partitions of the next joins and groups. Spark does not merge those of a table that is kept."""
        partitions = min(max(self.slots, partitions), _TASKS_MAX)
        self._spark.conf.set("spark.sql.shuffle.partitions", str(partitions))

    def scatter(self, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
        """Returns a table of a few rows, spread over as many tasks as help."""
        pieces = max(1, min(len(rows), max(self.slots * 2, len(rows) // _ROWS_OF_TASK)))
        frame = self._spark.createDataFrame(list(rows), schema, verifySchema=False)
        return frame.repartition(pieces)

    def mapped(self, frame: DataFrame, work: BatchWork, schema: str) -> DataFrame:
        """Returns the rows that a task makes of the rows of a table."""
        return frame.mapInArrow(arrow_task(self._place, work), schema)

    def kept(self, frame: DataFrame) -> DataFrame:
        """Keeps a table on the disks of the executors until the run ends, and returns it."""
        frame.persist(StorageLevel.DISK_ONLY)
        self._stack.callback(frame.unpersist)
        return frame

    async def parts(self, step: str, parts: Sequence[Part], *, are_roots: bool) -> DataFrame:
        """Returns the rows of files of the run: roots as `KEYS`, a quarantine as `LISTED`. They are kept.

        Raises:
            TarnError: CORRUPT if a file is missing or damaged, or rows are missing.
        """
        names = [(p.path, p.kind, p.count, p.size_bytes, p.sha256) for p in parts]
        work: BatchWork = ReadRoots(self.namespace) if are_roots else ReadQuarantine(self.namespace)
        schema = KEYS if are_roots else LISTED
        frame = self.kept(self.mapped(self.scatter(names, PARTS), work, schema))
        found = await self._actions.run(step, lambda: counts_of(frame))
        expected = {kind: sum(p.count for p in parts if p.kind == kind.value) for kind in KINDS}
        if found != expected:
            text = (
                f"the files of this collection of {self.namespace} have the rows {_shown(expected)}, and Spark read "
                f"{_shown(found)}; nothing was deleted; begin another run"
            )
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
        return frame

    async def references(
        self, parts: RootParts, roots: Roots
    ) -> tuple[DataFrame, dict[BlockKind, int], tuple[MetarangeId, ...]]:
        """Returns the keys that are in use (`KEYS`, some more than once), their numbers, and the abandoned listings.

        Args:
            parts: files of the roots.
            roots: tells which of the listings with missing files are needed.

        Raises:
            TarnError: CORRUPT if a part of the roots is missing, a listing damaged, or one missing that is needed.
        """
        whole = await self.parts("read the roots", parts.whole, are_roots=True)
        emptied = await self.parts("read emptied listings", parts.emptied, are_roots=True)
        named = sum(part.count for part in parts.whole if part.kind == BlockKind.METARANGE.value)
        self._join_in(named // _JOINED_ROWS)
        has_file = f.col("key") != f.lit(EMPTY_KEY)
        metaranges = whole.where(_is(BlockKind.METARANGE) & has_file)
        opened = self.kept(self._opened(metaranges.distinct(), named).distinct())
        range_count = await self._actions.run("open listings", opened.count)
        ranges = opened.where(_is(BlockKind.RANGE))
        empty = self.scatter([(kind_number(BlockKind.METARANGE), EMPTY_KEY)], KEYS)
        # The ranges of emptied listings are in use; the blocks behind them are not, so they are not opened.
        emptied_count = sum(part.count for part in parts.emptied)
        bare = self._opened(emptied.where(has_file).distinct(), emptied_count)
        tables = [whole, opened, self._opened(ranges, range_count), empty, emptied, bare]
        found = tables[0]
        for table in tables[1:]:
            found = found.unionAll(table)
        self.kept(found)
        numbers = await self._actions.run("open ranges", lambda: numbers_of(found))
        abandoned: tuple[MetarangeId, ...] = ()
        if any(number >= MISSING for number in numbers):
            lost = found.where(f.col("kind") >= MISSING)
            listings = metaranges.unionAll(emptied.where(has_file)).distinct()
            abandoned = await self._abandoned(lost, listings, named + emptied_count, roots)
        return found.where(f.col("kind") < MISSING), _counts(numbers), abandoned

    async def _abandoned(
        self, lost: DataFrame, listings: DataFrame, count: int, roots: Roots
    ) -> tuple[MetarangeId, ...]:
        """Returns the listings that lack files, if nothing needs them. Few rows come to this process.

        Raises:
            TarnError: CORRUPT: one is needed, or there are too many.
        """
        missing = MissingFiles(self.namespace)
        some = lost.distinct().limit(2 * (LISTING_IDS_MAX + 1))
        for row in await self._actions.run("find missing files", some.collect):
            block_id = bytes(row["key"]).hex()
            if KINDS[row["kind"] - MISSING] is BlockKind.RANGE:
                missing.add_range(RangeId(block_id))
            else:
                missing.add_listing(MetarangeId(block_id), metarange_path(MetarangeId(block_id)))
        if missing.ranges:
            keys = frozenset(map(bytes.fromhex, missing.ranges))
            pieces = self._pieces(count)
            work = FindListings(self.namespace, keys)
            lacking = self.mapped(listings.repartition(pieces), work, LACKS)
            most = lacking.limit(LISTING_IDS_MAX + 1)
            step = "find the listings of missing ranges"
            for row in await self._actions.run(step, most.collect):
                path = range_path(RangeId(bytes(row["lacks"]).hex()))
                missing.add_listing(MetarangeId(bytes(row["listing"]).hex()), path)
        return await missing.abandoned(roots)

    def _opened(self, frame: DataFrame, count: int) -> DataFrame:
        """Returns the keys in the listings of a table with at most `count` rows."""
        opening = frame.repartition(self._pieces(count))
        return self.mapped(opening, OpenListings(self.namespace), KEYS)

    def _pieces(self, count: int) -> int:
        """Returns the number of tasks that open `count` listings."""
        return max(1, min(count, max(self.slots * 2, count // _FILES_OF_TASK), _TASKS_MAX))

    async def listed(self, slices: Iterable[Slice]) -> tuple[DataFrame, Tallies]:
        """Returns all blocks of the slices (`LISTED`, kept), and their tallies."""
        rows = [(each.kind.value, each.prefix, each.after) for each in slices]
        frame = self.kept(
            self.mapped(self.scatter(rows, SLICES), ListSlices(self.namespace), LISTED)
        )
        return frame, await self._actions.run("list the bucket", lambda: tallies_of(frame))

    async def unreferenced(
        self, rows: DataFrame, references: DataFrame, about: int
    ) -> tuple[DataFrame, Tallies]:
        """Returns the rows of a listing whose block is not in use (kept), and their tallies.

        The join compares hashes of 8 bytes, which is faster than whole keys. Two keys with one hash would only keep a
        block that is not in use. Then the result is compared with all references by whole keys: if one of its blocks
        is in use, the join was wrong.

        Args:
            rows: `LISTED`.
            references: `KEYS`.
            about: number of rows of both.

        Raises:
            TarnError: INTERNAL if the two comparisons disagree.
        """
        self._join_in(about // _JOINED_ROWS)
        in_use = references.select(hash_of_key().alias("hash")).hint(_BY_HASH_TABLE)
        hashed = rows.withColumn("hash", hash_of_key())
        found = self.kept(hashed.join(in_use, "hash", "left_anti").drop("hash"))
        tallies = await self._actions.run("compare", lambda: tallies_of(found))
        if any(tally.count for tally in tallies.values()):
            keys = found.select("kind", "key").hint(_BY_HASH_TABLE)
            wrong = references.join(keys, ["kind", "key"], "left_semi").limit(1)
            if await self._actions.run("compare again by whole keys", wrong.count):
                text = (
                    f"a comparison of {self.namespace} in Spark found blocks unreferenced that are in use; nothing "
                    "was deleted; this is a defect of Tarn or of Spark: report it, and use tarn gc run"
                )
                raise TarnError(Kind.INTERNAL, Reason.INTERNAL, text)
        return found, tallies


def hash_of_key() -> Column:
    """Returns the hash by which a block is looked up."""
    return f.xxhash64("kind", "key")


def _is(kind: BlockKind) -> Column:
    return f.col("kind") == kind_number(kind)


def numbers_of(frame: DataFrame) -> dict[int, int]:
    """Returns the number of rows by the number of their kind. Blocks."""
    return {row["kind"]: row["count"] for row in frame.groupBy("kind").count().collect()}


def counts_of(frame: DataFrame) -> dict[BlockKind, int]:
    """Returns the number of rows of each kind. Blocks."""
    return _counts(numbers_of(frame))


def _counts(numbers: Mapping[int, int]) -> dict[BlockKind, int]:
    return {kind: numbers.get(kind_number(kind), 0) for kind in KINDS}


def tallies_of(frame: DataFrame) -> Tallies:
    """Returns the number of blocks of each kind, and their bytes. Blocks."""
    rows = frame.groupBy("kind").agg(f.count("*").alias("count"), f.sum("size").alias("size"))
    tallies = {kind: Tally() for kind in KINDS}
    for row in rows.collect():
        tallies[KINDS[row["kind"]]].add(row["count"], row["size"])
    return tallies


def _shown(counts: dict[BlockKind, int]) -> str:
    return ", ".join(f"{count} {kind.value}" for kind, count in counts.items())
