"""Ranges on the local disk, decoded and memory-mapped, so that a lookup takes microseconds.

A cached range is an uncompressed Arrow IPC file of its packed rows, named by the range's id. It is immutable
and content-addressed, so processes share one directory without coordination: each process writes a
temporary file and renames it, any process may evict, and a file that was unlinked stays readable for
processes that map it. Eviction starts with the least recently opened files (opening a file sets its
modification time). A file torn by a power failure fails its checksum and is fetched again.

Prior art: lakeFS pyramid. Unlike there, files are memory-mapped, not read through a block cache.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
import zlib
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import pyarrow as pa

from tarn.aio.lru_cache import LruCache
from tarn.aio.single_flight import SingleFlight
from tarn.core.ids import RangeId
from tarn.core.listing.run import RUN_SCHEMA, Run, data_of, offsets_of

__all__ = ["CachedRange", "RangeCache"]

_SUFFIX = ".arrow"
_CHECKSUM = b"tarn.crc32"
_MARKS_MAX = 256
"""Paths of a mapped range that are kept as objects: some 25 KiB."""
_EVICT_TO = 0.9
"""An eviction frees a tenth of the bound, so that not every new file causes one."""


class CachedRange:
    """A range that can be searched without waiting. Never empty."""

    __slots__ = ("_data", "_marks", "_offsets", "_step", "_value_data", "_value_offsets", "run")

    def __init__(self, run: Run) -> None:
        assert len(run), "a range holds a row"
        self.run = run
        self._offsets = offsets_of(run.paths).data
        self._data = data_of(run.paths).data
        self._value_offsets = offsets_of(run.values).data
        self._value_data = data_of(run.values).data
        # The path of each `_step`th row, which `bisect` searches; the rows between two of them are searched here.
        self._step = step = -(-len(run) // _MARKS_MAX)
        starts = range(0, len(run), step)
        self._marks = [self._path_at(row) for row in starts]

    def __len__(self) -> int:
        return len(self.run)

    def find(self, path: str) -> int:
        """Returns the index of the first row whose path is not smaller. Compares bytes, not Arrow scalars
        (docs/design/metadata.md, "Ranges")."""
        return self._find(path.encode())

    def _path_at(self, row: int) -> bytes:
        offsets = self._offsets
        return self._data[offsets[row] : offsets[row + 1]].tobytes()

    def _find(self, key: bytes) -> int:
        offsets, data, step = self._offsets, self._data, self._step
        high = bisect_left(self._marks, key) * step
        # The mark before is smaller.
        low, high = max(high - step + 1, 0), min(high, len(offsets) - 1)
        while low < high:
            middle = (low + high) >> 1
            if data[offsets[middle] : offsets[middle + 1]].tobytes() < key:
                low = middle + 1
            else:
                high = middle
        return low

    def get(self, path: str) -> bytes | None:
        """Returns the packed entry of a path; None if the range does not contain it."""
        key = path.encode()
        row = self._find(key)
        if row == len(self._offsets) - 1 or self._path_at(row) != key:
            return None
        ends = self._value_offsets
        return self._value_data[ends[row] : ends[row + 1]].tobytes()

    def rows(self, start: int, stop: int) -> tuple[list[str], list[bytes]]:
        """Returns paths and packed entries of rows `[start, stop)`; meant for pages, not for bulk work."""
        piece = self.run.slice(start, stop)
        return piece.paths.to_pylist(), piece.values.to_pylist()


class RangeCache:
    """Decoded ranges, shared by the processes of a machine. An instance belongs to one event loop.

    Args:
        directory: on a local disk, used for nothing else; created if absent.
        bytes_max: bound on the bytes of all files. Each process may exceed it briefly by one range.
        open_max: maximum number of ranges that stay mapped.
        executor: runs file I/O; None: the loop's default executor.

    Attributes:
        hits: look-ups that found the range mapped; `loads`: ranges that were mapped from the disk; `fetches`: ranges
            that were fetched from the block store. For metrics.
    """

    def __init__(
        self,
        directory: Path,
        *,
        bytes_max: int = 4 << 30,
        open_max: int = 512,
        executor: Executor | None = None,
    ) -> None:
        assert open_max > 0, "the range that is being read stays open"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # paths of objects are in it
        self._directory = directory
        self._bytes_max = bytes_max
        self._executor = executor
        self._opened: LruCache[RangeId, CachedRange] = LruCache(open_max)
        self._fetching = SingleFlight[RangeId, CachedRange]()
        self._adding: dict[RangeId, asyncio.Future[None]] = {}
        self.hits = self.loads = self.fetches = 0
        self._disk = threading.Lock()  # one eviction at a time; guards the two numbers below
        self._written_bytes = 0  # since the directory was last measured
        self._measured_bytes: int | None = None

    def opened(self, range_id: RangeId) -> CachedRange | None:
        """Returns the range if it is mapped already. Never waits."""
        found = self._opened.get(range_id)
        if found is not None:
            self.hits += 1
        return found

    async def get(self, range_id: RangeId, fetch: Callable[[], Awaitable[Run]]) -> CachedRange:
        """Returns the range; calls `fetch` for its rows if this machine does not have them.

        Concurrent callers of one range share one fetch. If it fails, or its caller is cancelled, the next caller
        fetches. Raises what `fetch` raises.
        """
        found = self.opened(range_id)
        if found is not None:
            return found
        return await self._fetching.run(range_id, partial(self._bring, range_id, fetch))

    def add(self, range_id: RangeId, run: Run) -> asyncio.Future[None]:
        """Begins to cache a range that was just built; it is done when the result is. A full or broken disk is not an
        error.

        Nobody needs to wait for it: `get` does, and the executor at its end.
        """
        loop = asyncio.get_running_loop()
        adding = loop.run_in_executor(self._executor, self._store, range_id, run)
        self._adding[range_id] = adding
        adding.add_done_callback(partial(self._added, range_id))
        return adding

    def _added(self, range_id: RangeId, adding: asyncio.Future[None]) -> None:
        if self._adding.get(range_id) is adding:
            del self._adding[range_id]

    def close(self) -> None:
        """Releases the mappings; the files stay for the next process."""
        self._opened.clear()

    async def _bring(self, range_id: RangeId, fetch: Callable[[], Awaitable[Run]]) -> CachedRange:
        loop = asyncio.get_running_loop()
        adding = self._adding.get(range_id)
        if adding is not None:
            await asyncio.wait([adding])
        run = await loop.run_in_executor(self._executor, self._load, range_id)
        if run is not None:
            self.loads += 1
        else:
            self.fetches += 1
            fetched = await fetch()
            run = await loop.run_in_executor(self._executor, self._keep, range_id, fetched)
        found = CachedRange(run)
        self._opened.put(range_id, found)
        return found

    def _path(self, range_id: RangeId) -> Path:
        return self._directory / f"{range_id}{_SUFFIX}"

    def _load(self, range_id: RangeId) -> Run | None:
        """Maps a file; returns None if it is absent or torn. A torn file is removed."""
        path = self._path(range_id)
        try:
            run = _map(path)
            os.utime(path)  # opened just now: evicted late
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError, ValueError):
            path.unlink(missing_ok=True)
            return None
        return run

    def _keep(self, range_id: RangeId, run: Run) -> Run:
        """Stores rows and maps them; if the disk refuses them, returns the rows in memory."""
        self._store(range_id, run)
        return self._load(range_id) or run

    def _store(self, range_id: RangeId, run: Run) -> None:
        """Writes a file. Errors of the disk are ignored."""
        path = self._path(range_id)
        # A random name: processes of several containers share a directory, and may have one process id.
        beside = path.with_name(f"{range_id}.{secrets.token_hex(8)}.tmp")
        try:
            _write(beside, run)
            size = beside.stat().st_size
            beside.replace(path)
            self._make_room(size)
        except (pa.ArrowException, OSError):
            beside.unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        with self._disk:
            self._written_bytes += size
            # Other processes write too, so the directory is measured again long before the bound can be far off.
            if (
                self._measured_bytes is not None
                and self._written_bytes <= self._bytes_max // 16
                and self._measured_bytes + self._written_bytes <= self._bytes_max
            ):
                return
            self._measured_bytes = self._evict()
            self._written_bytes = 0

    def _evict(self) -> int:
        """Removes the least recently opened files if there are too many; returns the remaining bytes."""
        files: list[tuple[int, int, str]] = []
        with os.scandir(self._directory) as listing:
            for item in listing:
                try:
                    info = item.stat()
                except FileNotFoundError:
                    continue
                files.append((info.st_mtime_ns, info.st_size, item.path))
        total = sum(size for _, size, _ in files)
        if total <= self._bytes_max:
            return total
        for _, size, name in sorted(files):
            if total <= self._bytes_max * _EVICT_TO:
                break
            Path(name).unlink(missing_ok=True)
            total -= size
        return total


def _checksum(run: Run) -> bytes:
    crc = 0
    for array in (run.paths, run.values):
        ends = offsets_of(array)
        crc = zlib.crc32((ends - ends[0]).data, crc)
        crc = zlib.crc32(data_of(array)[ends[0] : ends[-1]].data, crc)
    return b"%08x" % crc


def _write(path: Path, run: Run) -> None:
    schema = RUN_SCHEMA.with_metadata({_CHECKSUM: _checksum(run)})
    batch = pa.RecordBatch.from_arrays([run.paths, run.values], schema=schema)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(batch)


def _map(path: Path) -> Run:
    """Maps a file and returns its rows, which keep the mapping alive.

    Raises:
        ValueError: the file is not a range, or is damaged.
    """
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        if reader.num_record_batches != 1 or not reader.schema.equals(RUN_SCHEMA):
            raise ValueError(f"{path} is not a range file")
        batch = reader.get_batch(0)
    batch.validate()
    run = Run(batch.column("path"), batch.column("value"))
    if not len(run) or (reader.schema.metadata or {}).get(_CHECKSUM) != _checksum(run):
        raise ValueError(f"{path} is damaged")
    return run
