"""Writes rows as chunks, each at most once, and collects the lines of the index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from tarn.kv.port import Kv, Partition, Row
from tarn.snapshot.files.chunks import Chunk, Chunker, chunk_file, pack
from tarn.snapshot.files.ranges import Range
from tarn.snapshot.files.target import Target

__all__ = ["BackupProgress", "ChunkWriter", "Keep", "Lines", "Report"]

Lines = list[Range]
"""Lines of an index."""

Keep = Callable[[bytes, bytes], bool]
"""Whether a row, given by key and value, belongs into the backup."""

_ROWS_BETWEEN_PAUSES = 4096


@dataclass(slots=True)
class BackupProgress:
    """How far a backup is; updated while it is made.

    Attributes:
        phase: the present step, for people.
        done: number of finished repositories.
        total: number of repositories.
        rows: number of rows read.
        chunks: number of chunks.
        new_chunks: number of chunks that the target did not hold.
        new_bytes: size of their files.
    """

    phase: str = "begin"
    done: int = 0
    total: int = 0
    rows: int = 0
    chunks: int = 0
    new_chunks: int = 0
    new_bytes: int = 0


Report = Callable[[BackupProgress], None]
"""Called often; shows the progress."""


class ChunkWriter:
    """Writes chunks. Several tasks may use one writer.

    Args:
        kv: the store that is read.
        target: where chunks are kept.
        progress: counts the rows and chunks.
        report: see `Report`.
    """

    def __init__(self, kv: Kv, target: Target, progress: BackupProgress, report: Report) -> None:
        self.kv = kv
        self.progress = progress
        self._target = target
        self._report = report

    async def copy(
        self,
        partition: Partition,
        start: bytes = b"",
        end: bytes | None = None,
        keep: Keep | None = None,
    ) -> Lines:
        """Saves a region of a partition as it is read now; returns its lines.

        Args:
            partition: the partition.
            start: first key of the region.
            end: first key after it; None: it has no upper end.
            keep: chooses rows; None: all.
        """
        lines: Lines = []
        chunker = Chunker(partition, start, end)
        batches = cast(
            "AsyncGenerator[pa.RecordBatch, None]", self.kv.scan_arrow(partition, start, end)
        )
        async with aclosing(batches):
            async for batch in batches:
                for key, value in _rows(batch):
                    if keep is not None and not keep(key, value):
                        continue
                    if (chunk := chunker.add(key, value)) is not None:
                        lines.append(await self._write(chunk))
                await asyncio.sleep(0)
        if (last := chunker.finish()) is not None:
            lines.append(await self._write(last))
        return lines

    async def save(
        self,
        partition: Partition,
        rows: Iterable[Row],
        start: bytes = b"",
        end: bytes | None = None,
    ) -> Lines:
        """Saves rows that are in memory, as all that a region of a partition holds; see `copy`."""
        lines: Lines = []
        chunker = Chunker(partition, start, end)
        for number, (key, value) in enumerate(sorted(rows)):
            if (chunk := chunker.add(key, value)) is not None:
                lines.append(await self._write(chunk))
            if number % _ROWS_BETWEEN_PAUSES == 0:
                await asyncio.sleep(0)
        if (last := chunker.finish()) is not None:
            lines.append(await self._write(last))
        return lines

    async def _write(self, chunk: Chunk) -> Range:
        name = chunk_file(chunk.range.digest)
        self.progress.chunks += 1
        self.progress.rows += chunk.range.rows
        if not await self._target.has(name):
            data = await asyncio.to_thread(pack, chunk.text)
            await self._target.put(name, data)
            self.progress.new_chunks += 1
            self.progress.new_bytes += len(data)
        self._report(self.progress)
        return chunk.range


def _rows(batch: pa.RecordBatch) -> Iterable[Row]:
    keys, values = (column.to_pylist() for column in batch.columns)
    return zip(keys, values, strict=True)


async def all_rows(
    kv: Kv, partition: Partition, start: bytes = b"", end: bytes | None = None
) -> AsyncIterator[Row]:
    """Yields the rows of a region, by bulk reads."""
    batches = cast("AsyncGenerator[pa.RecordBatch, None]", kv.scan_arrow(partition, start, end))
    async with aclosing(batches):
        async for batch in batches:
            for row in _rows(batch):
                yield row
