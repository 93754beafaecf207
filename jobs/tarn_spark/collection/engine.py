"""Mark and sweep with Spark: the same plan, the same files and the same guards as without (`tarn.collection`).

The order is a guard: first all roots, which the driver reads and writes as files; then the listing.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tarn.block.paging import pages_below
from tarn.collection.block_names import BlockKind, Listed, listed_of, paths_of
from tarn.collection.canary import Sample, share_of, taken
from tarn.collection.deleting import Deleter, Lease
from tarn.collection.limits import check_limits
from tarn.collection.marking import CollectionRun, Lake
from tarn.collection.outcomes import Outcome, OutcomeLog, Report, outcome_files, read_report
from tarn.collection.progress import CollectionProgress
from tarn.collection.quarantine import PART_ROWS, Manifest, Part, write_manifest
from tarn.collection.references import Roots
from tarn.collection.root_files import RootParts, delete_roots, write_roots
from tarn.collection.sweeping import SweepOptions, swept_report
from tarn.core.clock import Clock
from tarn.core.collection import BATCH_IDS_MAX
from tarn.core.errors import TarnError
from tarn.rpc.process.system import SystemClock
from tarn_spark.collection.actions import SparkActions
from tarn_spark.collection.columns import KEYS, ascending, by_kind, kind_number
from tarn_spark.collection.deletion import Rounds
from tarn_spark.collection.executor import StorePlace
from tarn_spark.collection.frames import Frames, Tallies, tallies_of
from tarn_spark.collection.slices import Slice, data_slices, metadata_slices
from tarn_spark.collection.tasks import (
    OUTCOME_TALLIES,
    PARTS,
    ReadNoted,
    WriteOutcomes,
    WriteQuarantine,
)

__all__ = ["SparkEngine", "write_quarantine"]

_FETCHED_ROWS: Final = 250_000
"""Blocks of data that come into this process at a time, 40 bytes each; at least one partition."""
_SAMPLE_MORE: Final = 4
"""A sample by share has this many times the rows that are wanted, because their number varies."""


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Implements `tarn.collection.engine.Engine`.

    Attributes:
        spark: runs the jobs; its settings stay as they are.
        place: opens the block store on executors: the same store as that of the lake.
        clock: that of this machine, which executors share but for the skew of their clocks.
    """

    spark: SparkSession
    place: StorePlace
    clock: Clock = field(default_factory=SystemClock)

    async def mark(
        self,
        lake: Lake,
        run: CollectionRun,
        roots: Roots,
        progress: CollectionProgress,
        *,
        dry_run: bool = False,
    ) -> Manifest:
        """See `tarn.collection.marking.mark`. A dry run writes the roots to the block store, and deletes them again."""
        async with self._work(lake, run, roots, progress) as work:
            references, counts, abandoned = await work.frames.references(work.roots, roots)
            listed, tallies = await work.frames.listed(await _slices_of(lake))
            old = listed.where(listed.mtime < run.cutoff_us)
            about = sum(counts.values()) + sum(tally.count for tally in tallies.values())
            candidates, found = await work.frames.unreferenced(old, references, about)
            count = sum(tally.count for tally in found.values())
            parts = await write_quarantine(
                work.frames, work.actions, candidates, count, run.run_id, dry_run=dry_run
            )
            manifest = Manifest(
                run.run_id,
                lake.repository,
                run.cutoff_us,
                lake.clock.now_us(),
                {kind.value: tally for kind, tally in tallies.items()},
                parts,
                abandoned,
            )
            if not dry_run:
                await write_manifest(lake.blocks, lake.namespace, manifest)
        return manifest

    async def sweep(
        self,
        lake: Lake,
        run: CollectionRun,
        manifest: Manifest,
        roots: Roots,
        lease: Lease,
        progress: CollectionProgress,
        rng: random.Random,
        options: SweepOptions,
    ) -> Report:
        """See `tarn.collection.sweeping.sweep`."""
        ended = await read_report(lake.blocks, lake.namespace, manifest.run_id)
        if ended is not None:  # the sweep ended, and only its last answer was lost
            return ended
        if not options.is_confirmed:
            check_limits(manifest, options.limits, options.last)
        log = OutcomeLog(lake.blocks, lake.namespace, manifest.run_id, run.attempt)
        async with self._work(lake, run, roots, progress) as work:
            left, noted = await work.not_yet_deleted(manifest, log)
            references, counts, _ = await work.frames.references(work.roots, roots)
            sample = await work.sampled(references, counts, options.sample, rng)
            about = sum(counts.values()) + sum(part.count for part in manifest.parts)
            doomed, found = await work.frames.unreferenced(left, references, about)
            await work.keep_referenced(left, doomed, noted, manifest.run_id, log)
            total = sum(tally.count for tally in found.values())
            progress.begin("delete", total)
            try:
                deleter = Deleter(lake.blocks, lake.namespace, log, lake.clock, rng)
                await work.delete_metadata(doomed, deleter, lease, options)
                rounds = Rounds(
                    work.actions,
                    self.spark.sparkContext,
                    self.place,
                    lake.namespace,
                    manifest.run_id,
                    options,
                    self.clock,
                    lease,
                    log,
                    progress,
                )
                await work.delete_data(doomed, found[BlockKind.DATA].count, rounds)
            finally:
                await log.flush()
        progress.begin("read live blocks again", len(sample))
        return await swept_report(lake, run, lease, manifest, log, sample)

    @asynccontextmanager
    async def _work(
        self, lake: Lake, run: CollectionRun, roots: Roots, progress: CollectionProgress
    ) -> AsyncIterator[_Work]:
        """Reads the roots into files, and yields the work on them; the files are deleted at the end."""
        actions = SparkActions(self.spark, progress)
        with ExitStack() as stack:
            spark = self.spark.newSession()
            frames = Frames(spark, actions, self.place, lake.namespace, stack)
            progress.begin("gather the roots")
            try:
                parts = await write_roots(
                    roots, lake.blocks, lake.namespace, run.run_id, run.attempt, progress
                )
                yield _Work(lake, run, parts, frames, actions, progress)
            finally:
                await _delete_roots(lake, run)


async def _delete_roots(lake: Lake, run: CollectionRun) -> None:
    """Deletes the files of the roots. A failure does not hide that of the run: after a year they go with it."""
    with suppress(TarnError):
        await delete_roots(lake.blocks, lake.namespace, run.run_id, run.attempt)


async def _slices_of(lake: Lake) -> list[Slice]:
    slices = [
        each for kind in (BlockKind.METARANGE, BlockKind.RANGE) for each in metadata_slices(kind)
    ]
    kind = BlockKind.DATA
    async for page in pages_below(lake.blocks, lake.namespace, kind.prefix):
        found = listed_of(kind, page)
        if len(found):
            first = paths_of(kind, np.ascontiguousarray(found["key"][:1]))[0].as_py()
            return slices + data_slices(first, lake.clock.now_us())
    return slices


@dataclass(frozen=True, slots=True)
class _Work:
    """The steps of one run after its roots have been read.

    Attributes:
        lake: the repository that is collected.
        run: the run.
        roots: files of the roots.
        frames: the tables.
        actions: runs jobs.
        progress: updated.
    """

    lake: Lake
    run: CollectionRun
    roots: RootParts
    frames: Frames
    actions: SparkActions
    progress: CollectionProgress

    async def not_yet_deleted(
        self, manifest: Manifest, log: OutcomeLog
    ) -> tuple[DataFrame, DataFrame | None]:
        """Returns the candidates that no earlier attempt deleted, and counts the others.

        Also returns the keys that an earlier attempt noted as in use; None if there was none.
        """
        candidates = await self.frames.parts("read the quarantine", manifest.parts, are_roots=False)
        lake = self.lake
        files = [path async for path in outcome_files(lake.blocks, lake.namespace, manifest.run_id)]
        if not files:
            return candidates, None
        done = self._noted(files, Outcome.DELETED)
        deleted = candidates.join(done, ["kind", "key"], "left_semi")
        told = await self.actions.run("read the deleted blocks", lambda: tallies_of(deleted))
        _count(log, told, Outcome.DELETED)
        left = candidates.join(done, ["kind", "key"], "left_anti")
        return left, self._noted(files, Outcome.REFERENCED)

    def _noted(self, files: Sequence[str], outcome: Outcome) -> DataFrame:
        """Returns the keys that had an outcome according to some files of outcomes."""
        paths = self.frames.scatter([(path,) for path in files], "path string")
        read = ReadNoted(self.lake.namespace, outcome)
        return self.frames.kept(self.frames.mapped(paths, read, KEYS))

    async def keep_referenced(
        self,
        left: DataFrame,
        doomed: DataFrame,
        noted: DataFrame | None,
        mark_run_id: str,
        log: OutcomeLog,
    ) -> None:
        """Writes down which candidates are in use now, but those only once that an earlier attempt noted."""
        kept = left.join(doomed.select("kind", "key"), ["kind", "key"], "left_anti")
        if noted is not None:
            again = kept.join(noted, ["kind", "key"], "left_semi")
            told = await self.actions.run("read the blocks in use", lambda: tallies_of(again))
            _count(log, told, Outcome.REFERENCED)
            kept = kept.join(noted, ["kind", "key"], "left_anti")
        work = WriteOutcomes(self.lake.namespace, mark_run_id, Outcome.REFERENCED)
        written = self.frames.mapped(
            kept.select("kind", "key", "size", "mtime"), work, OUTCOME_TALLIES
        )
        for row in await self.actions.run("note the blocks in use", written.collect):
            log.tallies[row["kind"]][Outcome.REFERENCED.value].add(row["count"], row["size_bytes"])

    async def sampled(
        self,
        references: DataFrame,
        counts: Mapping[BlockKind, int],
        count: int,
        rng: random.Random,
    ) -> Sample:
        """Reads some live blocks: `count` of data, and fewer ranges and metaranges."""
        paths: list[str] = []
        for kind in BlockKind:
            wanted = share_of(kind, count)
            if not counts[kind] or not wanted:
                continue
            share = min(1.0, _SAMPLE_MORE * wanted / counts[kind])
            keys = references.where(references.kind == kind_number(kind)).select("key")
            drawn = keys.sample(share, rng.getrandbits(31)).limit(wanted)
            rows = await self.actions.run("choose live blocks", drawn.collect)
            found = np.frombuffer(b"".join(sorted({bytes(row["key"]) for row in rows})), np.uint8)
            paths += paths_of(kind, found.reshape(-1, kind.key_bytes)).to_pylist()
        return await taken(self.lake.blocks, self.lake.namespace, paths)

    async def delete_metadata(
        self, doomed: DataFrame, deleter: Deleter, lease: Lease, options: SweepOptions
    ) -> None:
        """Deletes metaranges, then ranges. In this process, because only one batch may be open at a time."""
        own = doomed.where(doomed.kind != kind_number(BlockKind.DATA))
        table = await self.actions.run_silently("delete", own.toArrow)
        found: dict[BlockKind, list[Listed]] = {BlockKind.METARANGE: [], BlockKind.RANGE: []}
        for batch in table.to_batches():
            for kind, rows in by_kind(batch):
                found[kind].append(rows)
        clock = self.lake.clock
        for kind, pieces in found.items():
            rows = ascending(kind, np.concatenate([np.zeros(0, kind.listed_dtype), *pieces]))
            for start in range(0, len(rows), BATCH_IDS_MAX):
                began = clock.monotonic()
                batch = rows[start : start + BATCH_IDS_MAX]
                await deleter.delete_metadata(kind, batch, lease, self.run.cutoff_us)
                self.progress.done += len(batch)
                await deleter.log.flush(always=False)
                if options.deletes_per_second:
                    due = began + len(batch) / options.deletes_per_second
                    await clock.sleep(max(0.0, due - clock.monotonic()))

    async def delete_data(self, doomed: DataFrame, count: int, rounds: Rounds) -> None:
        """Deletes the blocks of data, in rounds. Some partitions of the table at a time are in this process."""
        kind = BlockKind.DATA
        packed = _packed(doomed.where(doomed.kind == kind_number(kind)))
        held: Listed = np.zeros(0, kind.listed_dtype)
        rdd = await self.actions.run_silently("delete", lambda: packed.rdd)
        # A job has a fixed cost, and hashes spread the blocks evenly: as many partitions at a time as have enough rows.
        partitions = range(rdd.getNumPartitions())
        step = max(1, len(partitions) * _FETCHED_ROWS // max(count, 1))
        for start in partitions[::step]:
            some = partitions[start : start + step]
            rows = await self.actions.run_silently("delete", partial(_rows_in, rdd, some))
            arrived = [np.frombuffer(row["rows"], kind.listed_dtype) for row in rows]
            held = np.concatenate([held, *arrived])
            while len(held) >= rounds.rows:
                held = await rounds.delete(held)
        while len(held):
            held = await rounds.delete(held)


async def write_quarantine(
    frames: Frames,
    actions: SparkActions,
    candidates: DataFrame,
    count: int,
    run_id: str,
    *,
    dry_run: bool,
) -> tuple[Part, ...]:
    """Writes candidates as files, each of one kind and sorted by path; returns the files.

    Args:
        frames: of the run.
        actions: runs jobs.
        candidates: `LISTED`.
        count: number of candidates.
        run_id: of the mark.
        dry_run: write nothing, and only count.
    """
    if not count:
        return ()
    pieces = -(-count // (PART_ROWS // 2))
    ordered = candidates.repartitionByRange(pieces, "kind", "key").sortWithinPartitions(
        "kind", "key"
    )
    work = WriteQuarantine(frames.namespace, run_id, dry_run)
    rows = await actions.run("write the quarantine", frames.mapped(ordered, work, PARTS).collect)
    return tuple(Part(**row.asDict()) for row in rows)


def _packed(data: DataFrame) -> DataFrame:
    """Returns the rows of blocks of data as the bytes of their records, many in each row."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _, rows in by_kind(batch):
                yield pa.RecordBatch.from_pydict({"rows": [rows.tobytes()]})

    return data.mapInArrow(pack, "rows binary")


def _rows_in(rdd: Any, partitions: Sequence[int]) -> list[Any]:  # noqa: ANN401 - Spark has no types
    """Returns the rows of some partitions. Blocks."""
    return list(rdd.context.runJob(rdd, list, list(partitions)))


def _count(log: OutcomeLog, tallies: Tallies, outcome: Outcome) -> None:
    for kind, tally in tallies.items():
        log.tallies[kind.value][outcome.value].add(tally.count, tally.size_bytes)
