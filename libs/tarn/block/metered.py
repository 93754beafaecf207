"""Metrics of a block store: how long each operation takes, how often it fails, and how many bytes it moves.

`open_blocks` wraps every driver in `MeteredBlocks`. It has the metrics `block.duration`, `block.failed`,
`block.in_flight`, `block.read` and `block.written` (`tarn.telemetry.metric_table`). Of a streamed read, each chunk is a
call. Of a streamed write, each piece, or each turn of a thread, is a call `write`, and its end is a call
`finish`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, nullcontext
from typing import BinaryIO, Protocol, Self, TypeVar, cast, runtime_checkable

from tarn.block.port import (
    Append,
    BlockInfo,
    BlockKey,
    BlockStore,
    BlockUploads,
    BlockWriter,
    FileBacked,
    Joined,
    PartWriter,
    PresignedWrite,
    PresignsParts,
    PresignsReads,
    PresignsWrites,
    ThreadWriter,
)
from tarn.core.clock import Clock
from tarn.telemetry.calls import CallMeter
from tarn.telemetry.meters import Counter, Meters
from tarn.telemetry.tracing import TRACEPARENT, child_span

__all__ = ["MeasuresPuts", "MeasuresReads", "MeteredBlocks", "metered"]

T = TypeVar("T")


@runtime_checkable
class MeasuresReads(Protocol):
    """A driver that measures its `read` by itself, which saves a coroutine for each read."""

    def measure_reads(self, meter: CallMeter, read_bytes: Counter) -> None:
        """Measures each `read` from now on, as `with meter.call():` would, and counts its bytes."""


@runtime_checkable
class MeasuresPuts(Protocol):
    """A driver that measures its `put` by itself, which saves a coroutine for each."""

    def measure_puts(self, meter: CallMeter, written_bytes: Counter) -> None:
        """Measures each `put` from now on, as `with meter.call():` would, and counts its bytes."""


def metered(blocks: BlockStore, clock: Clock, meters: Meters) -> BlockStore:
    """Returns a store that measures each operation and forwards it.

    It is `FileBacked`, or `PresignsWrites`, or that with `PresignsReads` and `PresignsParts`, if the driver is.
    """
    if isinstance(blocks, FileBacked):
        return MeteredFiles(blocks, clock, meters)
    if isinstance(blocks, PresignsReads) and isinstance(blocks, PresignsParts):
        return MeteredLinks(blocks, clock, meters)
    if isinstance(blocks, PresignsWrites):
        return MeteredBuckets(blocks, clock, meters)
    return MeteredBlocks(blocks, clock, meters)


class _Calls:
    """The meters of a store."""

    def __init__(self, clock: Clock, meters: Meters) -> None:
        def meter(operation: str) -> CallMeter:
            return CallMeter("block", operation, meters, clock)

        self.put = meter("put")
        self.open_write = meter("open_write")
        self.write = meter("write")
        self.finish = meter("finish")
        self.read = meter("read")
        self.stream = meter("stream")
        self.open_file = meter("open_file")
        self.stat = meter("stat")
        self.list_page = meter("list_page")
        self.delete_many = meter("delete_many")
        self.upload = meter("upload")
        self.read_bytes = meters.counter("block.read")
        self.written_bytes = meters.counter("block.written")


class _Writer:
    """A `BlockWriter` or `PartWriter` that is measured."""

    __slots__ = ("_calls", "_writer")

    def __init__(self, writer: BlockWriter, calls: _Calls) -> None:
        self._writer = writer
        self._calls = calls

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `BlockWriter.write`."""
        with self._calls.write.call():
            await self._writer.write(data)
        self._calls.written_bytes.value += len(data)

    async def finish(self) -> None:
        """See `BlockWriter.finish`."""
        with self._calls.finish.call():
            await self._writer.finish()

    async def abort(self) -> None:
        """See `BlockWriter.abort`."""
        await self._writer.abort()

    @property
    def receipt(self) -> str:
        """See `PartWriter.receipt`."""
        return cast("PartWriter", self._writer).receipt

    async def __aenter__(self) -> Self:
        await self._writer.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._writer.__aexit__(*exc)


class _ThreadWriter(_Writer):
    """The same for one that is a `ThreadWriter`."""

    __slots__ = ()

    async def write_by_thread(self, work: Callable[[Append, int], T]) -> T:
        """See `ThreadWriter.write_by_thread`. The time of a call is without that of the work between its writes."""
        meter = self._calls.write
        writing = work_s = 0.0
        written = 0

        def measured(append: Append, most: int) -> T:
            def one(data: memoryview) -> None:
                nonlocal writing, written
                begun = meter.now()
                append(data)
                writing += meter.now() - begun
                written += len(data)

            nonlocal work_s
            entered = meter.now()
            try:
                return work(one, most)
            finally:
                work_s = meter.now() - entered

        began = meter.now()
        meter.begun += 1
        try:
            with child_span("block write") if TRACEPARENT.get() else nullcontext():
                return await cast("ThreadWriter", self._writer).write_by_thread(measured)
        except BaseException as error:
            meter.fail(error)
            raise
        finally:
            meter.end(began + work_s - writing)
            self._calls.written_bytes.value += written


def _writer(writer: BlockWriter, calls: _Calls) -> _Writer:
    return (_ThreadWriter if isinstance(writer, ThreadWriter) else _Writer)(writer, calls)


class _Uploads:
    """`BlockUploads` that are measured; all calls count as `upload`."""

    def __init__(self, uploads: BlockUploads, calls: _Calls) -> None:
        self._uploads = uploads
        self._calls = calls

    async def begin(self, key: BlockKey, upload: str) -> None:
        """See `BlockUploads.begin`."""
        with self._calls.upload.call():
            await self._uploads.begin(key, upload)

    async def open_part(self, key: BlockKey, upload: str, part: int, attempt: str) -> PartWriter:
        """See `BlockUploads.open_part`."""
        with self._calls.upload.call():
            writer = await self._uploads.open_part(key, upload, part, attempt)
        return _writer(writer, self._calls)

    async def complete(
        self, key: BlockKey, upload: str, parts: Sequence[tuple[int, str]]
    ) -> Joined:
        """See `BlockUploads.complete`."""
        with self._calls.upload.call():
            return await self._uploads.complete(key, upload, parts)

    async def discard(self, key: BlockKey, upload: str) -> None:
        """See `BlockUploads.discard`."""
        with self._calls.upload.call():
            await self._uploads.discard(key, upload)

    async def discard_all(self, namespace: str) -> None:
        """See `BlockUploads.discard_all`."""
        with self._calls.upload.call():
            await self._uploads.discard_all(namespace)


class MeteredBlocks:
    """`BlockStore` that measures each operation and forwards it; see `metered`."""

    def __init__(self, blocks: BlockStore, clock: Clock, meters: Meters) -> None:
        self._blocks = blocks
        self._calls = _Calls(clock, meters)
        self._uploads = _Uploads(blocks.uploads, self._calls)
        if isinstance(blocks, MeasuresReads):
            blocks.measure_reads(self._calls.read, self._calls.read_bytes)
            self.read = blocks.read  # type: ignore[method-assign]
        if isinstance(blocks, MeasuresPuts):
            blocks.measure_puts(self._calls.put, self._calls.written_bytes)
            self.put = blocks.put  # type: ignore[method-assign]

    @property
    def uploads(self) -> BlockUploads:
        """See `BlockStore.uploads`."""
        return self._uploads

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        """See `BlockStore.put`."""
        meter = self._calls.put
        if TRACEPARENT.get():
            with meter.call():
                await self._blocks.put(key, body)
        else:
            meter.begun += 1
            began = meter.now()
            try:
                await self._blocks.put(key, body)
            except BaseException as error:
                meter.end_failed(began, error)
                raise
            meter.end(began)
        self._calls.written_bytes.value += len(body)

    async def open_write(self, key: BlockKey) -> BlockWriter:
        """See `BlockStore.open_write`."""
        with self._calls.open_write.call():
            writer = await self._blocks.open_write(key)
        return _writer(writer, self._calls)

    async def open_replace(self, key: BlockKey) -> BlockWriter:
        """See `BlockStore.open_replace`."""
        with self._calls.open_write.call():
            writer = await self._blocks.open_replace(key)
        return _writer(writer, self._calls)

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        """See `BlockStore.read`."""
        with self._calls.read.call():
            found = await self._blocks.read(key, start, length)
        self._calls.read_bytes.value += len(found)
        return found

    async def stream(
        self, key: BlockKey, start: int, length: int
    ) -> AsyncIterator[bytes | memoryview]:
        """See `BlockStore.stream`."""
        chunks = cast(
            "AsyncGenerator[bytes | memoryview, None]", self._blocks.stream(key, start, length)
        )
        async with aclosing(chunks):
            while True:
                try:
                    with self._calls.stream.call():
                        chunk = await anext(chunks)
                except StopAsyncIteration:
                    return
                self._calls.read_bytes.value += len(chunk)
                yield chunk

    async def stat(self, key: BlockKey) -> BlockInfo:
        """See `BlockStore.stat`."""
        with self._calls.stat.call():
            return await self._blocks.stat(key)

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        """See `BlockStore.list_page`."""
        with self._calls.list_page.call():
            return await self._blocks.list_page(namespace, prefix, after, limit)

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        """See `BlockStore.delete_many`."""
        with self._calls.delete_many.call():
            await self._blocks.delete_many(namespace, paths)

    async def close(self) -> None:
        """See `BlockStore.close`."""
        await self._blocks.close()


class MeteredFiles(MeteredBlocks):
    """The same for a driver that is `FileBacked`."""

    async def open_file(self, key: BlockKey) -> BinaryIO | None:
        """See `FileBacked.open_file`."""
        with self._calls.open_file.call():
            return await cast("FileBacked", self._blocks).open_file(key)


class MeteredBuckets(MeteredBlocks):
    """The same for a driver that is `PresignsWrites`; counts as `upload`."""

    @property
    def binds_writes(self) -> bool:
        """See `PresignsWrites.binds_writes`."""
        return cast("PresignsWrites", self._blocks).binds_writes

    async def copy_written(self, source: BlockKey, target: BlockKey, size: int, etag: str) -> None:
        """See `PresignsWrites.copy_written`."""
        with self._calls.upload.call():
            await cast("PresignsWrites", self._blocks).copy_written(source, target, size, etag)

    async def presign_write(
        self, key: BlockKey, seconds: int, part_count: int, *, once: bool = True
    ) -> PresignedWrite:
        """See `PresignsWrites.presign_write`."""
        with self._calls.upload.call():
            blocks = cast("PresignsWrites", self._blocks)
            return await blocks.presign_write(key, seconds, part_count, once=once)

    async def abort_writes(self, key: BlockKey) -> int:
        """See `PresignsWrites.abort_writes`."""
        with self._calls.upload.call():
            return await cast("PresignsWrites", self._blocks).abort_writes(key)


class MeteredLinks(MeteredBuckets):
    """The same for a driver that is also `PresignsReads` and `PresignsParts`; counts as `upload`."""

    async def presign_read(
        self,
        key: BlockKey,
        seconds: int,
        *,
        content_type: str = "",
        content_disposition: str = "",
    ) -> str:
        """See `PresignsReads.presign_read`."""
        blocks = cast("PresignsReads", self._blocks)
        with self._calls.upload.call():
            return await blocks.presign_read(
                key, seconds, content_type=content_type, content_disposition=content_disposition
            )

    async def presign_parts(
        self, key: BlockKey, upload_id: str, numbers: Sequence[int], seconds: int
    ) -> tuple[str, ...]:
        """See `PresignsParts.presign_parts`."""
        blocks = cast("PresignsParts", self._blocks)
        with self._calls.upload.call():
            return await blocks.presign_parts(key, upload_id, numbers, seconds)

    async def complete_parts(
        self, key: BlockKey, upload_id: str, parts: Sequence[tuple[int, str]]
    ) -> BlockInfo:
        """See `PresignsParts.complete_parts`."""
        with self._calls.upload.call():
            return await cast("PresignsParts", self._blocks).complete_parts(key, upload_id, parts)

    async def copy_part(
        self,
        source: BlockKey,
        key: BlockKey,
        upload_id: str,
        number: int,
        span: tuple[int, int] | None = None,
    ) -> str:
        """See `PresignsParts.copy_part`."""
        with self._calls.upload.call():
            blocks = cast("PresignsParts", self._blocks)
            return await blocks.copy_part(source, key, upload_id, number, span)
