"""Sorting in external memory: rows go to disk in sorted runs, which are merged in one pass over them.

Memory is bounded by a few runs' worth of rows and one batch of each run; the disk takes the rows twice at most. Equal
keys may be reduced in each run already, so rows that are written again and again take no room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["RUN_BYTES", "SortedRuns"]

RUN_BYTES: Final = 64 << 20
_BATCH_BYTES: Final = 1 << 20
_FAN_IN: Final = 64
"""Runs that are merged at once; more are merged in turns."""
_WORKERS: Final = 2

Batches = Iterable[pa.RecordBatch]


class SortedRuns:
    """Rows on their way into the order of a key. For one thread; it sorts in threads of its own.

    Args:
        folder: receives the runs; made when it is needed, and removed by the caller.
        reduced: returns the rows of a table that count, ascending by the key. It may leave out what never counts,
            whatever other rows there are.
        key: name of the key's column, a binary.
        run_bytes: rows in memory that begin a run.
    """

    def __init__(
        self,
        folder: Path,
        reduced: Callable[[pa.Table], pa.Table],
        key: str,
        *,
        run_bytes: int = RUN_BYTES,
    ) -> None:
        self._folder = folder
        self._reduced = reduced
        self._key = key
        self._run_bytes = run_bytes
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._runs: list[Path] = []
        self._count = 0
        self._pool = ThreadPoolExecutor(_WORKERS, "journal-sort")
        self._writing: list[Future[Path]] = []

    def close(self) -> None:
        """Ends the threads. Runs stay in the folder."""
        self._pool.shutdown(cancel_futures=True)

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows, in any order. Blocks while a run is written.

        Raises:
            TarnError: EXHAUSTED: the disk is full, or cannot be written.
        """
        if not len(batch):
            return
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= self._run_bytes:
            self._flush()

    def merged(self, keep: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yields all rows, in tables that follow each other in the order of the key: all rows of one key are in one.

        Rows inside a table are in no order. Call it once, after the last `add`.

        Args:
            keep: returns the rows of a batch that are wanted, in their order.

        Raises:
            TarnError: EXHAUSTED, as `add`.
        """
        if self._held and (self._runs or self._writing):
            self._flush()
        self._collect(0)
        while len(self._runs) > _FAN_IN:
            self._runs = self._merged_runs()
        with ExitStack() as stack:
            sources = [_Source(map(keep, _batches(each, stack)), self._key) for each in self._runs]
            if self._held:
                table = self._reduced(pa.Table.from_batches(self._held))
                self._held = []
                few = _batch_rows(table)
                sources = [_Source(map(keep, table.to_batches(max_chunksize=few)), self._key)]
            yield from _merge(sources, is_whole=True)

    def _flush(self) -> None:
        table = pa.Table.from_batches(self._held)
        self._held, self._held_bytes = [], 0
        self._count += 1
        path = self._folder / f"{self._count:06d}"
        self._writing.append(self._pool.submit(self._write, table, path))
        self._collect(_WORKERS)

    def _collect(self, most: int) -> None:
        """Waits until at most so many runs are being written."""
        while len(self._writing) > most:
            self._runs.append(self._writing.pop(0).result())

    def _write(self, table: pa.Table, path: Path) -> Path:
        table = self._reduced(table)
        return self._written(table.to_batches(max_chunksize=_batch_rows(table)), path, table.schema)

    def _written(self, batches: Batches, path: Path, schema: pa.Schema) -> Path:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("xb") as file, pa.ipc.new_stream(file, schema) as stream:
                for batch in batches:
                    stream.write_batch(batch)
        except OSError as error:
            text = (
                f"the rebuild cannot write its temporary files to {self._folder}: {error.strerror}; "
                "free space there, or choose another folder"
            )
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text) from error
        return path

    def _merged_runs(self) -> list[Path]:
        """Merges each `_FAN_IN` runs into one; returns these."""
        found = []
        for start in range(0, len(self._runs), _FAN_IN):
            some = self._runs[start : start + _FAN_IN]
            self._count += 1
            path = self._folder / f"{self._count:06d}"
            with ExitStack() as stack:
                sources = [_Source(_batches(each, stack), self._key) for each in some]
                with pa.OSFile(str(some[0])) as file, pa.ipc.open_stream(file) as first:
                    schema = first.schema
                tables = map(self._reduced, _merge(sources, is_whole=False))
                batches = (b for t in tables for b in t.to_batches(max_chunksize=_batch_rows(t)))
                found.append(self._written(batches, path, schema))
            for each in some:
                each.unlink()
        return found


class _Source:
    """A run that is being merged: its next rows, in memory."""

    def __init__(self, batches: Iterable[pa.RecordBatch], key: str) -> None:
        self._batches = (batch for batch in batches if len(batch))
        self._key = key
        self._rows = next(self._batches, None)
        self._next = next(self._batches, None)

    @property
    def has_rows(self) -> bool:
        """Whether it has not ended."""
        return self._rows is not None

    @property
    def last(self) -> bytes:
        """The key of the last row in memory."""
        assert self._rows is not None
        found: bytes = self._rows.column(self._key)[-1].as_py()
        return found

    def grow(self, end: bytes) -> None:
        """Reads more rows while these go on with a key."""
        while self._next is not None and self._next.column(self._key)[0].as_py() == end:
            self._rows = pa.concat_batches([self._rows, self._next])
            self._next = next(self._batches, None)

    def cut(self, end: bytes) -> pa.RecordBatch:
        """Takes the rows up to a key, which is included."""
        assert self._rows is not None
        keys = self._rows.column(self._key)
        at = pc.search_sorted(keys, pa.scalar(end, keys.type), side="right").as_py()
        found, self._rows = self._rows.slice(0, at), self._rows.slice(at)
        if not len(self._rows):
            self._rows, self._next = self._next, next(self._batches, None)
        return found


def _merge(sources: list[_Source], *, is_whole: bool) -> Iterator[pa.Table]:
    """Yields the rows of sorted sources, in steps.

    Args:
        sources: each ascending.
        is_whole: all rows of one key are in one step, which may need several batches of a source.
    """
    while sources := [each for each in sources if each.has_rows]:
        end = min(each.last for each in sources)
        for each in sources if is_whole else ():
            each.grow(end)
        yield pa.Table.from_batches([each.cut(end) for each in sources])


def _batches(path: Path, stack: ExitStack) -> Iterator[pa.RecordBatch]:
    file = stack.enter_context(pa.OSFile(str(path)))
    return iter(pa.ipc.open_stream(file))


def _batch_rows(table: pa.Table) -> int:
    return max(1, len(table) * _BATCH_BYTES // max(1, int(table.nbytes)))
