"""Mark: finds the old blocks of a namespace that no root refers to, and puts them in quarantine.

Cost: one listing of the namespace, and one read of every metarange and range. Memory does not grow with either
(`spill.py`).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from tarn.block.keys import LIST_LIMIT_MAX
from tarn.block.paging import pages_below
from tarn.block.port import BlockStore
from tarn.collection.block_names import BlockKind, listed_of
from tarn.collection.joining import split
from tarn.collection.progress import CollectionProgress
from tarn.collection.quarantine import Manifest, QuarantineWriter, Tally
from tarn.collection.references import Roots, collect_references
from tarn.collection.spill import PARTITIONS, Spill
from tarn.core.clock import Clock

__all__ = ["Lake", "CollectionRun", "mark"]


@dataclass(frozen=True, slots=True)
class Lake:
    """The repository that is collected, and the resources for it.

    Attributes:
        repository: its name.
        namespace: its namespace.
        blocks: the block store.
        clock: for times of reports.
        folder: where temporary files may be written; they need some 100 bytes for each block.
    """

    repository: str
    namespace: str
    blocks: BlockStore
    clock: Clock
    folder: Path


@dataclass(frozen=True, slots=True)
class CollectionRun:
    """A run of a collection.

    Attributes:
        run_id: 32 hex digits.
        attempt: 32 hex digits, new for each process that works on the run.
        cutoff_us: only blocks that became visible before it are collected, microseconds since the epoch.
    """

    run_id: str
    attempt: str
    cutoff_us: int


async def mark(
    lake: Lake,
    run: CollectionRun,
    roots: Roots,
    progress: CollectionProgress,
    *,
    dry_run: bool = False,
) -> Manifest:
    """Finds candidates and writes them to quarantine; returns the manifest.

    Args:
        lake: the repository that is collected.
        run: new, or one whose mark was interrupted; it is done again from the start.
        roots: read once, before the listing.
        progress: updated.
        dry_run: write nothing to the block store.

    Raises:
        BlockExistsError: another process marked this run.
        TarnError: CORRUPT if a listing is missing or damaged; any error of the roots or the store.
    """
    with tempfile.TemporaryDirectory(prefix="tarn-gc-", dir=lake.folder) as name:
        folder = Path(name)
        progress.begin("read the roots")
        references = await collect_references(
            roots, lake.blocks, lake.namespace, folder / "references", progress
        )
        old: dict[BlockKind, Spill] = {}
        listed: dict[str, Tally] = {}
        for kind in BlockKind:
            progress.begin(f"list {kind.value} blocks")
            old[kind] = Spill(folder / f"old-{kind.value}", kind.listed_dtype)
            listed[kind.value] = await _list_old(lake, kind, run.cutoff_us, old[kind], progress)
        progress.begin("compare", sum(spill.count for spill in old.values()))
        blocks = None if dry_run else lake.blocks
        writer = QuarantineWriter(blocks, lake.namespace, run.run_id, run.attempt)
        for kind in BlockKind:
            for number in range(PARTITIONS):
                rows = old[kind].partition(number)
                candidates, _ = split(kind, rows, references.partition(kind, number))
                await writer.add(kind, candidates)
            await writer.flush(kind)
            progress.done += old[kind].count
        now_us = lake.clock.now_us()
        return await writer.finish(
            lake.repository, run.cutoff_us, now_us, listed, references.abandoned
        )


async def _list_old(
    lake: Lake, kind: BlockKind, cutoff_us: int, old: Spill, progress: CollectionProgress
) -> Tally:
    """Adds the blocks of a kind from before the cutoff to `old`; returns the tally of all."""
    tally = Tally()
    async for page in pages_below(lake.blocks, lake.namespace, kind.prefix, LIST_LIMIT_MAX):
        rows = listed_of(kind, page)
        tally.add(len(rows), int(rows["size"].sum()))
        old.add(rows[rows["mtime"] < cutoff_us])
        progress.done += len(page)
    return tally
