"""The local block store: implements the block port over rows of a sqlite file and plain files."""

from __future__ import annotations

import asyncio
import heapq
import io
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from typing import Final

from tarn.aio.close_guard import CloseGuard
from tarn.aio.thread_work import Threads, finish_work, settle_work
from tarn.block.keys import (
    METADATA_PREFIX,
    check_listing,
    check_path,
    check_replaced,
    check_span,
)
from tarn.block.local.faults import Faults, from_sqlite
from tarn.block.local.group_writer import GroupWriter
from tarn.block.local.intake import Intake, LocalWriter
from tarn.block.local.namespaces import LocalNamespace, Namespaces
from tarn.block.local.open_files import OpenFiles
from tarn.block.local.small import SmallReader
from tarn.block.local.tree import Tree
from tarn.block.local.uploads import LocalUploads
from tarn.block.port import (
    CHUNK_BYTES,
    BlockExistsError,
    BlockInfo,
    BlockKey,
    BlockNotFoundError,
)
from tarn.core.errors import Kind, Reason, TarnError
from tarn.telemetry.calls import COUNTED_TOGETHER, CallMeter
from tarn.telemetry.meters import Counter
from tarn.telemetry.tracing import TRACEPARENT

__all__ = ["BlockFile", "LocalBlockStore"]

_INLINE_BYTES: Final = 256 << 10
"""Reads up to this size run on the loop's thread; longer ones could block it on a slow disk."""
_DELETE_BATCH: Final = 500


class BlockFile(io.FileIO):
    """An open block file, counted until it is closed."""

    def __init__(self, fd: int, files: OpenFiles) -> None:
        super().__init__(fd, "rb")
        self._files: OpenFiles | None = files

    def close(self) -> None:
        """Closes the descriptor. Idempotent; call it on the loop's thread."""
        super().close()
        files, self._files = self._files, None
        if files is not None:
            files.give()


class LocalBlockStore:
    """Blocks under one root directory; opened by `open_local`. Implements `BlockStore` and `FileBacked`.

    Several processes may use one root. Each opens its own store, on the event loop that uses it.
    A block up to `small_bytes_max` is a row of `<root>/.tarn/small.sqlite`; a larger one is the file
    `<root>/<namespace>/<path>`; a block under `_tarn/` is always a file. A read looks for the row first:
    rows are the common case, and a miss (5 us) is cheap compared to reading more than 64 KiB.
    """

    def __init__(
        self,
        tree: Tree,
        reader: SmallReader,
        group_writer: GroupWriter,
        intake: Intake,
        threads: Threads,
    ) -> None:
        self._tree = tree
        self._reader = reader
        self._group_writer = group_writer
        self._intake = intake
        self._threads = threads  # of readers; fsyncs have others, so that no read waits behind them
        self._guard: CloseGuard = intake.guard
        self._files: OpenFiles = intake.files
        self._namespaces = Namespaces(tree, reader, group_writer)
        self._uploads = LocalUploads(self._namespaces, intake)
        self._closing: asyncio.Event | None = None
        self._reads: CallMeter | None = None
        self._read_bytes = Counter()
        self._puts: CallMeter | None = None
        self._written_bytes = Counter()

    @property
    def uploads(self) -> LocalUploads:
        """Returns the store's multipart uploads."""
        return self._uploads

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        """See `BlockStore.put`."""
        meter, path = self._puts, key.path
        size = body.nbytes if isinstance(body, memoryview) else len(body)
        if meter is None:
            await self._put(key, body, size)
            return
        ns = self._namespaces.known(key.namespace)
        if (
            ns is None
            or type(body) is not bytes
            or not self._intake.is_small(path, size)
            or TRACEPARENT.get()
        ):
            with meter.call():
                await self._put(key, body, size)
        else:
            # Every small object comes here: as `_put`, without coroutines and blocks of its own.
            meter.begun += 1
            began = meter.now()
            try:
                check_path(path)
                with self._guard:
                    if not await self._intake.begin_keep(ns, key, body):
                        raise BlockExistsError(key)
            except BaseException as error:
                meter.end_failed(began, error)
                raise
            meter.ended.append(meter.now() - began)
            if len(meter.ended) >= COUNTED_TOGETHER:
                meter.duration.count_waiting()
        self._written_bytes.value += size

    async def _put(self, key: BlockKey, body: bytes | bytearray | memoryview, size: int) -> None:
        """Writes without measuring."""
        check_path(key.path)
        with self._guard:
            ns = self._namespaces.known(key.namespace)
            if ns is None:
                with Faults(f"enter namespace {key.namespace}"):
                    ns = await self._namespaces.enter(key.namespace)
            if self._intake.is_small(key.path, size):
                await self._intake.keep(ns, key, bytes(body))
            else:
                await self._intake.begin(ns, key).finish_with(body)

    async def open_write(self, key: BlockKey) -> LocalWriter:
        """See `BlockStore.open_write`."""
        check_path(key.path)
        with self._guard, Faults(f"enter namespace {key.namespace}"):
            return self._intake.begin(await self._namespaces.enter(key.namespace), key)

    async def open_replace(self, key: BlockKey) -> LocalWriter:
        """See `BlockStore.open_replace`."""
        check_replaced(key.path)
        with self._guard, Faults(f"enter namespace {key.namespace}"):
            ns = await self._namespaces.enter(key.namespace)
            return self._intake.begin_replacement(ns, key)

    def measure_reads(self, meter: CallMeter, read_bytes: Counter) -> None:
        """See `tarn.block.metered.MeasuresReads`."""
        self._reads = meter
        self._read_bytes = read_bytes

    def measure_puts(self, meter: CallMeter, written_bytes: Counter) -> None:
        """See `tarn.block.metered.MeasuresPuts`."""
        self._puts = meter
        self._written_bytes = written_bytes

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        """See `BlockStore.read`."""
        meter = self._reads
        if meter is not None and TRACEPARENT.get():
            with meter.call():
                body = await self._read(key, start, length)
            self._read_bytes.value += len(body)
            return body
        # The hottest read: measured here, and a small block is read without a coroutine of its own.
        began = 0.0
        if meter is not None:
            meter.begun += 1
            began = meter.now()
        try:
            check_path(key.path)
            check_span(start, length)
            with self._guard:
                ns, small = self._small(key, start, length)
                body = await self._read_file(ns, key, start, length) if small is None else small
        except BaseException as error:
            if meter is not None:
                meter.end_failed(began, error)
            raise
        if meter is not None:
            meter.ended.append(meter.now() - began)
            if len(meter.ended) >= COUNTED_TOGETHER:
                meter.duration.count_waiting()
            self._read_bytes.value += len(body)
        return body

    async def _read(self, key: BlockKey, start: int, length: int | None) -> bytes:
        """Reads without measuring."""
        check_path(key.path)
        check_span(start, length)
        with self._guard:
            ns, small = self._small(key, start, length)
            return await self._read_file(ns, key, start, length) if small is None else small

    async def _read_file(
        self, ns: LocalNamespace, key: BlockKey, start: int, length: int | None
    ) -> bytes:
        with Faults(f"read block {key.path} in {key.namespace}"):
            fd = self._open(ns, key)
            try:
                rest = max(os.fstat(fd).st_size - start, 0)
                count = rest if length is None else min(rest, length)
                if count <= _INLINE_BYTES:
                    return _pread(fd, start, count)
                return await self._threads.run(lambda: _pread(fd, start, count))
            finally:
                self._close(fd)

    async def stream(self, key: BlockKey, start: int, length: int) -> AsyncIterator[bytes]:
        """See `BlockStore.stream`. A block that is too short raises CORRUPT with the first chunk; one that
        shrinks during the read, later. One chunk is read ahead."""
        check_path(key.path)
        check_span(start, length)
        with self._guard:
            ns, body = self._small(key, start, length)
        if body is not None:
            if len(body) < length:
                raise _truncated(key, start, length)
            if body:
                yield body
            return
        faults = Faults(f"read block {key.path} in {key.namespace}")
        ahead: asyncio.Future[bytes] | None = None
        with self._guard, faults:
            fd = self._open(ns, key)
        try:
            with faults:
                if os.fstat(fd).st_size < start + length:
                    raise _truncated(key, start, length)
                os.posix_fadvise(fd, start, length, os.POSIX_FADV_SEQUENTIAL)
            at, end = start, start + length
            while at < end:
                with self._guard, faults:
                    if length <= _INLINE_BYTES:
                        chunk = _pread(fd, at, end - at)
                    else:
                        chunk = await finish_work(ahead or self._fetch(fd, at, end))
                        ahead = None
                    at += len(chunk)
                    if not chunk:
                        raise _truncated(key, start, length)
                    if at < end and length > _INLINE_BYTES:
                        ahead = self._fetch(fd, at, end)
                yield chunk
        finally:
            try:
                if ahead is not None:
                    await settle_work(ahead)  # its thread uses the descriptor
            finally:
                self._close(fd)

    def _fetch(self, fd: int, at: int, end: int) -> asyncio.Future[bytes]:
        return self._threads.start(lambda: _pread(fd, at, min(CHUNK_BYTES, end - at)))

    async def open_file(self, key: BlockKey) -> BlockFile | None:
        """See `FileBacked.open_file`."""
        check_path(key.path)
        with self._guard, Faults(f"open block {key.path} in {key.namespace}"):
            ns = self._namespaces.look(key.namespace)
            if self._namespaces.is_row(ns, key.path):
                return None
            return BlockFile(self._open(ns, key), self._files)

    async def stat(self, key: BlockKey) -> BlockInfo:
        """See `BlockStore.stat`."""
        check_path(key.path)
        with self._guard, Faults(f"stat block {key.path} in {key.namespace}"):
            return self._namespaces.stat(self._namespaces.look(key.namespace), key)

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        """See `BlockStore.list_page`; `limit` is at most `keys.LIST_LIMIT_MAX`."""
        possible = check_listing(prefix, after, limit)
        with self._guard, Faults(f"list {namespace}"):
            ns = self._namespaces.look(namespace)
            if not possible:
                return []
            rows: list[BlockInfo] = []
            if ns.number >= 0:
                rows = self._reader.list(ns.number, prefix, after, limit)
            files = await self._threads.run(
                lambda: self._tree.list_files(ns.names, prefix, after, limit)
            )
            return list(heapq.merge(rows, files, key=lambda info: info.path))[:limit]

    async def kept_versions(self, namespace: str) -> str:
        """See `KeepsVersions`: files and rows have no versions. Snapshots of the file system are another matter."""
        with self._guard:
            self._namespaces.look(namespace)
        return ""

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        """See `BlockStore.delete_many`. Rows are durably removed on return; the removal of files is not
        synced, and a power failure may restore some."""
        for path in paths:
            check_path(path)
        with self._guard, Faults(f"delete blocks in {namespace}"):
            ns = self._namespaces.look(namespace)
            for start in range(0, len(paths), _DELETE_BATCH):
                group = paths[start : start + _DELETE_BATCH]
                # Files first: on a full disk they free the space that deleting rows needs in the WAL.
                await self._threads.run(lambda group=group: self._remove(ns, group))  # type: ignore[misc]
                if ns.number >= 0:
                    await self._group_writer.delete(ns.number, group)

    def _remove(self, ns: LocalNamespace, paths: Sequence[str]) -> None:
        for path in paths:
            self._tree.remove(ns.file(path), keep=len(ns.names))

    async def close(self) -> None:
        """See `BlockStore.close`: calls in progress end, open writers are aborted, streams are interrupted."""
        if self._closing is not None:
            await self._closing.wait()
            return
        self._closing = asyncio.Event()
        try:
            await self._guard.close()
            for writer in list(self._intake.writers):
                await writer.abort()
            await self._group_writer.close()
            await asyncio.to_thread(self._threads.close)
            await asyncio.to_thread(self._intake.threads.close)
            self._reader.close()
            self._tree.close()
        finally:
            self._closing.set()

    def _small(
        self, key: BlockKey, start: int, length: int | None
    ) -> tuple[LocalNamespace, bytes | None]:
        try:
            ns = self._namespaces.look(key.namespace)
            if ns.number < 0 or key.path.startswith(METADATA_PREFIX):
                return ns, None
            return ns, self._reader.read(ns.number, key.path, start, length)
        except sqlite3.Error as error:
            raise from_sqlite(error, f"cannot read block {key.path} in {key.namespace}") from error

    def _open(self, ns: LocalNamespace, key: BlockKey) -> int:
        """Returns a counted descriptor of a large block; `_close` releases it."""
        self._files.take()
        try:
            return self._tree.open_read(ns.file(key.path))
        except (FileNotFoundError, NotADirectoryError):
            self._files.give()
            raise BlockNotFoundError(key) from None
        except BaseException:
            self._files.give()
            raise

    def _close(self, fd: int) -> None:
        os.close(fd)
        self._files.give()


def _pread(fd: int, at: int, count: int) -> bytes:
    """Returns up to `count` bytes; fewer only at the end of the file."""
    chunk = os.pread(fd, count, at)
    if len(chunk) == count or not chunk:
        return chunk
    chunks = [chunk]
    size = len(chunk)
    while size < count and (chunk := os.pread(fd, count - size, at + size)):
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks)


def _truncated(key: BlockKey, start: int, length: int) -> TarnError:
    text = f"block {key.path} in {key.namespace} ends before byte {start + length}"
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=key.path)
