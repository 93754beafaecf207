"""Reads the files of a journal in executors: what each tells of itself and of records, and then the rows of tokens that
records name, for the task of each span.

Most files are read in place: a task reads the row groups that may have rows of its span. Files of which each task would
need a little are read once instead, and their rows are exchanged. An item of Spark is then a piece of rows as Arrow's
bytes: neither Java nor Python sees a single row. Files are not changed after they were judged: whoever reads again
compares what it reads with the SHA-256 of then.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.aio.first_error import collapse_error_groups
from tarn.block.port import BlockKey, BlockNotFoundError, BlockStore
from tarn.core.listing.breaks import BreakRule
from tarn.journal.epochs import Epoch
from tarn.journal.events import REPLAYED
from tarn.journal.groups import FileGroups, RowGroup, changed_error, read_some
from tarn.journal.reading import path_of
from tarn.journal.replay import RANKED_SCHEMA, newest, numbered, record_layers, with_ranks
from tarn.journal.source import entries_in
from tarn.kv.records import encode_head_change
from tarn_spark.journal.dividing import Sample, samples_of
from tarn_spark.journal.sources import named_by, outline_row, read_row, sha256_in

__all__ = [
    "FileTold",
    "InPlace",
    "JudgeFiles",
    "RecordsTold",
    "SpreadFiles",
    "TakeTold",
    "records_in",
    "spread",
    "taken",
]

_PIECE_ROWS: Final = 1024
"""Most rows of a piece: Spark holds up to a thousand before it sends them on."""
_SPREAD_ROWS: Final = 1 << 15
_SPREAD_ROWS_OF_SPAN: Final = 64
"""Rows that are spread together: few enough for caches, and so many that pieces are not tiny."""
_READS: Final = 4
"""Files that a task reads at once."""


class RecordsTold(NamedTuple):
    """What files tell of records.

    Attributes:
        newest: of each key the newest (order, payload).
        entries: of reflogs, each once: name of the branch, entry.
        unreadable: how many records of each branch cannot be read.
    """

    newest: dict[str, tuple[int, bytes]]
    entries: set[tuple[str, bytes]]
    unreadable: Counter[str]

    def add(self, other: RecordsTold) -> None:
        """Adds what other files tell."""
        for key, found in other.newest.items():
            self.newest[key] = max(found, self.newest.get(key, found))
        self.entries.update(other.entries)
        self.unreadable.update(other.unreadable)


class FileTold(NamedTuple):
    """What one file tells.

    Attributes:
        at: its position among all.
        facts: for `tarn_spark.journal.sources.judged`.
        records: None: the file is damaged or has gone.
        groups: None: it is damaged, or can be read whole only.
        samples: of its rows of tokens.
    """

    at: int
    facts: bytes
    records: RecordsTold | None
    groups: FileGroups | None
    samples: list[Sample]


@dataclass(frozen=True, slots=True)
class JudgeFiles:
    """Reads files; takes their positions and sources, yields a `FileTold` of each, for the partition 0.

    Attributes:
        namespace: of the journal.
        epoch: of the files.
        rule: where listings are cut.
    """

    namespace: str
    epoch: Epoch
    rule: BreakRule

    async def __call__(
        self, blocks: BlockStore, items: Iterable[tuple[int, bytes]]
    ) -> AsyncIterator[tuple[int, FileTold]]:
        """See `PartitionWork`."""
        for at, source in items:
            facts, outline = await outline_row(blocks, self.namespace, self.epoch, source)
            if outline is None:
                yield 0, FileTold(at, facts, None, None, [])
                continue
            samples = []
            if outline.groups is not None:
                samples = samples_of(at, outline.body, outline.groups, self.rule)
            yield 0, FileTold(at, facts, records_in(outline.records), outline.groups, samples)


@dataclass(frozen=True, slots=True)
class TakeTold:
    """Takes the `FileTold` of all files; yields those of them that have the facts, without records, and after them one
    `RecordsTold`.

    Attributes:
        left_out: positions of the files that do not count.
    """

    left_out: frozenset[int] = frozenset()

    def __call__(self, items: Iterable[tuple[int, FileTold]]) -> Iterator[FileTold | RecordsTold]:
        """See `RDD.mapPartitions`."""
        told = RecordsTold({}, set(), Counter())
        for _, file in items:
            yield file._replace(records=None)
            if file.records is not None and file.at not in self.left_out:
                told.add(file.records)
        yield told


class InPlace(NamedTuple):
    """A file that the task of a span reads in place.

    Attributes:
        source: the file, as `tarn_spark.journal.sources.as_bytes` returns it.
        groups: that the span needs.
    """

    source: bytes
    groups: FileGroups

    async def rows(
        self,
        blocks: BlockStore,
        reading: SpreadFiles,
        after: bytes,
        last: bytes | None,
    ) -> list[pa.Table]:
        """Returns the rows of a span, tables of `RANKED_SCHEMA`.

        Args:
            blocks: the store.
            reading: of which journal, with the ranks of layers.
            after: the place before the span.
            last: the last place of the span; None: it has no end.

        Raises:
            TarnError: CORRUPT: the file is another one than when it was judged, or has gone.
        """
        is_mixed = any(each.branch is None or each.token is None for each in self.groups.groups)
        columns = REPLAYED if is_mixed else ("order", "key", "payload")
        key = BlockKey(reading.namespace, path_of(reading.epoch, named_by(self.source)))
        try:
            table = await read_some(blocks, key, self.groups, columns)
        except BlockNotFoundError as error:
            raise changed_error() from error
        return await asyncio.to_thread(self._ranked, table, reading.ranks, after, last)

    def _ranked(
        self, table: pa.Table, ranks: Mapping[bytes, int], after: bytes, last: bytes | None
    ) -> list[pa.Table]:
        found, start = [], 0
        for group in self.groups.groups:
            rows = table.slice(start, group.rows)
            start += group.rows
            rows = _ranked_of(group, rows, ranks)
            if group.first <= after or (last is not None and group.last > last):
                rows = _between(rows, after, last)
            found.append(rows)
        return found


def _ranked_of(group: RowGroup, table: pa.Table, ranks: Mapping[bytes, int]) -> pa.Table:
    """Returns the rows of a row group whose layers have a rank, as `RANKED_SCHEMA`."""
    if group.branch is None or group.token is None:
        return _ranked_rows(table, ranks)
    branch = pa.scalar(group.branch.encode(), pa.binary())
    rank = ranks[f"{group.branch}\0{group.token}".encode()]
    columns = [
        pc.binary_join_element_wise(branch, table.column("key").cast(pa.binary()), b"\0"),
        pa.repeat(pa.scalar(rank, pa.int64()), len(table)),
        table.column("order"),
        table.column("payload"),
    ]
    return pa.Table.from_arrays(columns, schema=RANKED_SCHEMA)


def _ranked_rows(table: pa.Table, ranks: Mapping[bytes, int]) -> pa.Table:
    names, rows = numbered(table)
    return with_ranks(rows, np.array([ranks.get(each, -1) for each in names], np.int64))


def _between(table: pa.Table, after: bytes, last: bytes | None) -> pa.Table:
    places = table.column("place")
    mask = pc.greater(places, pa.scalar(after, pa.binary()))
    if last is not None:
        mask = pc.and_(mask, pc.less_equal(places, pa.scalar(last, pa.binary())))
    at = np.flatnonzero(mask.to_numpy())
    if len(at) and at[-1] - at[0] + 1 == len(at):  # rows are sorted
        return table.slice(at[0], len(at))
    return table.filter(mask)


@dataclass(frozen=True, slots=True)
class SpreadFiles:
    """Reads files whose rows are exchanged; takes their sources, each with its SHA-256 when it was judged, yields
    spans with pieces: batches of `RANKED_SCHEMA` as Arrow's bytes.

    Attributes:
        namespace: of the journal.
        epoch: of the files.
        ends: the last place of each span but the last one, ascending.
        ranks: of the layers that records name.
    """

    namespace: str
    epoch: Epoch
    ends: Sequence[bytes]
    ranks: Mapping[bytes, int]

    async def __call__(
        self, blocks: BlockStore, items: Iterable[tuple[bytes, str]]
    ) -> AsyncIterator[tuple[int, bytes]]:
        """See `PartitionWork`."""
        most = max(_SPREAD_ROWS, _SPREAD_ROWS_OF_SPAN * (len(self.ends) + 1))
        held: list[pa.Table] = []
        count = 0
        for source, sha256 in items:
            facts, table = await read_row(blocks, self.namespace, self.epoch, source, REPLAYED)
            if table is None or sha256_in(facts) != sha256:
                raise changed_error()
            for start in range(0, len(table), most):
                rows = _ranked_rows(table.slice(start, most), self.ranks)
                held.append(rows)
                count += len(rows)
                if count >= most:
                    for found in spread(held, self.ends):
                        yield found
                    held, count = [], 0
        for found in spread(held, self.ends):
            yield found


def spread(held: Sequence[pa.Table], ends: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields rows in pieces, with the span of each.

    Args:
        held: tables of `RANKED_SCHEMA`.
        ends: of spans, as in `SpreadFiles`.
    """
    rows = pa.concat_tables([RANKED_SCHEMA.empty_table(), *held]).combine_chunks()
    if not len(rows):
        return
    places = rows.column("place").combine_chunks()
    found = pc.search_sorted(pa.array(ends, pa.binary()), places, side="left")
    span = found.to_numpy().astype(np.int64)
    if np.any(span[1:] < span[:-1]):  # rows of a compaction have the order of their places
        by_span = np.argsort(span, kind="stable")
        span = span[by_span]
        rows = rows.take(by_span).combine_chunks()
    starts = np.flatnonzero(np.diff(span, prepend=-1))
    (batch,) = rows.to_batches()
    for start, end in zip(starts, [*starts[1:], len(span)], strict=True):
        for at in range(start, end, _PIECE_ROWS):
            piece = batch.slice(at, min(_PIECE_ROWS, end - at))
            yield int(span[start]), piece.serialize().to_pybytes()


async def taken(
    blocks: BlockStore,
    items: Iterable[InPlace | bytes],
    reading: SpreadFiles,
    span: int,
) -> pa.Table:
    """Returns all rows of a span whose layers have a rank, a table of `RANKED_SCHEMA` in no order.

    Args:
        blocks: the store.
        items: what the task of the span got: files that it reads in place, and pieces.
        reading: of which journal, with ends and ranks.
        span: its number.

    Raises:
        TarnError: as `InPlace.rows`.
    """
    tables = [RANKED_SCHEMA.empty_table()]
    files = []
    for item in items:
        if isinstance(item, InPlace):
            files.append(item)
        else:
            batch = pa.ipc.read_record_batch(pa.py_buffer(item), RANKED_SCHEMA)
            tables.append(pa.Table.from_batches([batch]))
    ends = reading.ends
    after = ends[span - 1] if span else b""
    last = ends[span] if span < len(ends) else None
    for start in range(0, len(files), _READS):
        with collapse_error_groups():
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(each.rows(blocks, reading, after, last))
                    for each in files[start : start + _READS]
                ]
        for task in tasks:
            tables += task.result()
    return pa.concat_tables(tables)


def records_in(records: pa.Table) -> RecordsTold:
    """Returns what events tell of records.

    Args:
        records: the columns `REPLAYED` of events without a token.
    """
    told = RecordsTold({}, set(), Counter())
    for batch in records.to_batches():
        for branch, entries in entries_in(batch):
            if entries is None:
                told.unreadable[branch] += 1
            else:
                told.entries.update((branch, encode_head_change(each)) for each in entries)
    if len(records):
        layers = pa.Table.from_batches([record_layers(each) for each in records.to_batches()])
        found = newest(layers)
        columns = [found.column(name).to_pylist() for name in ("place", "order", "payload")]
        for place, order, payload in zip(*columns, strict=True):
            told.newest[place[1:].decode()] = order, payload
    return told
