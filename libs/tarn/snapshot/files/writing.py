"""Writes a snapshot: rows as chunks, each at most once, then the index and the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing

from tarn.kv.port import Kv, Partition, Row
from tarn.snapshot.files.chunks import Chunk, Chunker, Keep, cut
from tarn.snapshot.files.content import digest_of_text, write_content
from tarn.snapshot.files.manifest import (
    Manifest,
    SavedRepository,
    Scope,
    encode_index,
    manifest_file,
)
from tarn.snapshot.files.ranges import Range
from tarn.snapshot.files.target import Target
from tarn.snapshot.files.work import TransferOptions, TransferProgress

__all__ = ["ChunkWriter", "KvWriter", "Lines", "finish"]

Lines = list[Range]
"""Lines of an index."""


class ChunkWriter:
    """Writes chunks. Several tasks may use one writer.

    Attributes:
        progress: counts the rows and chunks; may be replaced.
        new_chunks: number of chunks that the target did not hold before.
        new_bytes: size of their files.

    Args:
        target: where chunks are kept.
        options: limits the reading, and shows the progress.
    """

    def __init__(self, target: Target, options: TransferOptions) -> None:
        self.target = target
        self.progress = TransferProgress("begin")
        self.new_chunks = 0
        self.new_bytes = 0
        self._options = options

    async def save(
        self,
        partition: Partition,
        rows: Iterable[Row],
        start: bytes = b"",
        end: bytes | None = None,
    ) -> Lines:
        """Saves rows that are in memory, as all that a region of a partition holds; returns their lines."""
        lines: Lines = []
        chunker = Chunker(partition, start, end)
        for key, value in sorted(rows):
            if (chunk := chunker.add(key, value)) is not None:
                lines += await self.write(chunk)
        return lines + await self.write(chunker.finish())

    async def write(self, chunk: Chunk) -> Lines:
        """Writes a chunk, if the target lacks it; returns its line, none for a chunk without rows."""
        found = chunk.range
        if not found.rows:
            return []
        written = await write_content(self.target, chunk.text, found.digest)
        self.new_chunks += written > 0
        self.new_bytes += written
        self.progress.add(found.rows, found.size_bytes, changed=written > 0)
        self._options.report(self.progress)
        await self._options.rate_limiter.take(found.rows)
        return [found]


class KvWriter(ChunkWriter):
    """Copies the rows of a store.

    Args:
        kv: the store that is read.
        target: see `ChunkWriter`.
        options: see `ChunkWriter`.
    """

    def __init__(self, kv: Kv, target: Target, options: TransferOptions) -> None:
        super().__init__(target, options)
        self.kv = kv

    async def copy(
        self,
        partition: Partition,
        start: bytes = b"",
        end: bytes | None = None,
        keep: Keep | None = None,
    ) -> Lines:
        """Saves a region of a partition as it is read now (`cut`); returns its lines."""
        lines: Lines = []
        async with aclosing(cut(self.kv, partition, start, end, keep)) as chunks:
            async for chunk in chunks:
                lines += await self.write(chunk)
        return lines


async def finish(
    writer: ChunkWriter,
    scope: Scope,
    snapshot_id: str,
    lines: Sequence[Range],
    *,
    installation_id: str,
    begin_time_us: int,
    end_time_us: int,
    level: int = 0,
    encryption_key_ids: tuple[str, ...] = (),
    repositories: tuple[SavedRepository, ...] = (),
) -> Manifest:
    """Writes the index, and then the manifest, which completes the snapshot; see `Manifest` for the arguments.

    Raises:
        TarnError: of the target. OSError: the target cannot be written.
    """
    index = []
    for text in encode_index(lines):
        index.append(digest_of_text(text))
        await write_content(writer.target, text, index[-1])
    manifest = Manifest(
        scope=scope,
        snapshot_id=snapshot_id,
        installation_id=installation_id,
        begin_time_us=begin_time_us,
        end_time_us=end_time_us,
        level=level,
        encryption_key_ids=encryption_key_ids,
        repositories=repositories,
        chunks=len(lines),
        new_chunks=writer.new_chunks,
        rows=sum(line.rows for line in lines),
        size_bytes=sum(line.size_bytes for line in lines),
        new_bytes=writer.new_bytes,
        index=tuple(index),
    )
    await writer.target.put(manifest_file(scope, snapshot_id), manifest.encode())
    return manifest
