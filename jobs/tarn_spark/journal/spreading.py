"""Reads the files of a journal in executors, once each: what they tell of themselves and of records goes to one
partition, and the rows of tokens go to the partitions of their spans.

An item of Spark is a piece of rows as Arrow's bytes, with the names of their layers: neither Java nor Python sees a
single row. Files are not judged yet, and which layers count is not known. So each piece says of which reading of which
file its rows are, and who takes it leaves out what does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.block.port import BlockStore
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.epochs import Epoch
from tarn.journal.replay import RANKED_SCHEMA, REPLAYED, newest, numbered, record_layers, with_ranks
from tarn.journal.source import entries_in
from tarn.kv.records import encode_head_change
from tarn_spark.journal.sources import read_row, sha256_in

__all__ = [
    "TOLD",
    "FileTold",
    "Held",
    "Layer",
    "Piece",
    "ReadFiles",
    "RecordsTold",
    "TakeTold",
    "Taken",
    "changed_error",
    "records_in",
    "spread",
    "taken",
]

TOLD: Final = 0
"""The partition of what files tell. Span `n` has the partition `n + 1`."""
_PIECE_ROWS: Final = 1024
"""Most rows of a piece: Spark holds up to a thousand before it sends them on."""
_FEW_LAYERS: Final = 16
_SPREAD_ROWS: Final = 1 << 15
_SPREAD_ROWS_OF_SPAN: Final = 64
"""Rows that are spread together: few enough for caches, and so many that pieces are not tiny."""


class Layer(NamedTuple):
    """A layer in a file.

    Attributes:
        at: position of the file among all.
        sha256: of the file, as it was read.
        name: branch, NUL, token.
    """

    at: int
    sha256: str
    name: bytes


class Piece(NamedTuple):
    """Rows of one span.

    Attributes:
        layers: of its rows.
        rows: a batch of `RANKED_SCHEMA` as Arrow's bytes; in the place of each rank is the number of its layer.
    """

    layers: tuple[Layer, ...]
    rows: bytes


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
    """

    at: int
    facts: bytes
    records: RecordsTold | None


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Reads files; takes their positions and sources, yields partitions with a `FileTold` or a `Piece`.

    Attributes:
        namespace: of the journal.
        epoch: of the files.
        ends: the last place of each span but the last one, ascending.
    """

    namespace: str
    epoch: Epoch
    ends: Sequence[bytes]

    async def __call__(
        self, blocks: BlockStore, items: Iterable[tuple[int, bytes]]
    ) -> AsyncIterator[tuple[int, FileTold | Piece]]:
        """See `PartitionWork`."""
        most = max(_SPREAD_ROWS, _SPREAD_ROWS_OF_SPAN * (len(self.ends) + 1))
        held = Held()
        for at, source in items:
            facts, table = await read_row(blocks, self.namespace, self.epoch, source, REPLAYED)
            yield TOLD, FileTold(at, facts, None if table is None else records_in(table))
            if table is None:
                continue
            sha256 = sha256_in(facts)
            for start in range(0, len(table), most):
                held.add(at, sha256, table.slice(start, most))
                if held.rows >= most:
                    for found in spread(held, self.ends):
                        yield found
                    held = Held()
        for found in spread(held, self.ends):
            yield found


@dataclass(slots=True)
class Held:
    """Rows of tokens that are spread together.

    Attributes:
        layers: of all rows.
        tables: of `RANKED_SCHEMA`, with numbers of layers.
        rows: how many.
    """

    layers: list[Layer] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0

    def add(self, at: int, sha256: str, table: pa.Table) -> None:
        """Adds events of a file."""
        names, found = numbered(table)
        numbers = np.arange(len(self.layers), len(self.layers) + len(names))
        self.layers += [Layer(at, sha256, each) for each in names]
        self.tables.append(with_ranks(found, numbers))
        self.rows += len(found)


def spread(held: Held, ends: Sequence[bytes]) -> Iterator[tuple[int, Piece]]:
    """Yields rows in pieces, with the partition of each.

    Args:
        held: the rows.
        ends: of spans, as in `ReadFiles`.
    """
    rows = pa.concat_tables([RANKED_SCHEMA.empty_table(), *held.tables]).combine_chunks()
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
            yield int(span[start]) + 1, _piece(held.layers, piece)


def _piece(layers: Sequence[Layer], batch: pa.RecordBatch) -> Piece:
    """Returns rows with their layers, and maybe a few others."""
    if len(layers) > _FEW_LAYERS:
        numbers, which = np.unique(batch.column("rank").to_numpy(), return_inverse=True)
        layers = [layers[each] for each in numbers.tolist()]
        at = RANKED_SCHEMA.get_field_index("rank")
        rank = pa.array(which.astype(np.int64, copy=False))
        batch = batch.set_column(at, RANKED_SCHEMA.field(at), rank)
    return Piece(tuple(layers), batch.serialize().to_pybytes())


class Taken(NamedTuple):
    """Rows that count.

    Attributes:
        table: of `RANKED_SCHEMA`.
        rows: of the files that count, those of layers included that no record names.
    """

    table: pa.Table
    rows: int


def taken(pieces: Iterable[Piece], digests: Mapping[int, str], ranks: Mapping[bytes, int]) -> Taken:
    """Returns the rows of the files that count, and of layers that records name.

    Args:
        pieces: of one span.
        digests: the SHA-256 of each file that counts, by its position.
        ranks: of the layers that records name.

    Raises:
        TarnError: CORRUPT: a file is another one than when it was judged.
    """
    tables, count = [], 0
    for layers, body in pieces:
        rows = pa.ipc.read_record_batch(pa.py_buffer(body), RANKED_SCHEMA)
        own = np.array([ranks.get(each.name, -1) for each in layers], np.int64)
        counts = np.array([_counts(each, digests) for each in layers], np.bool_)
        if not counts.all():
            own[~counts] = -1
            count -= int((~counts)[rows.column("rank").to_numpy()].sum())
        count += len(rows)
        if (own >= 0).any():
            tables.append(with_ranks(pa.Table.from_batches([rows]), own))
    return Taken(pa.concat_tables([RANKED_SCHEMA.empty_table(), *tables]), count)


def _counts(layer: Layer, digests: Mapping[int, str]) -> bool:
    digest = digests.get(layer.at)
    if digest is None:
        return False
    if digest != layer.sha256:
        raise changed_error()
    return True


def changed_error() -> TarnError:
    """Returns the error that a file has changed."""
    text = "a file of the journal has changed or gone while the journal was read; run the job again"
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)


def records_in(table: pa.Table) -> RecordsTold:
    """Returns what events tell of records.

    Args:
        table: the columns `REPLAYED` of events.
    """
    told = RecordsTold({}, set(), Counter())
    records = table.filter(pc.equal(table.column("token"), ""))
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


@dataclass(frozen=True, slots=True)
class TakeTold:
    """Takes the `FileTold` of all files; yields the position and facts of each, and after them one `RecordsTold`.

    Attributes:
        left_out: positions of the files that do not count.
    """

    left_out: frozenset[int] = frozenset()

    def __call__(
        self, items: Iterable[tuple[int, FileTold]]
    ) -> Iterator[tuple[int, bytes] | RecordsTold]:
        """See `RDD.mapPartitions`."""
        told = RecordsTold({}, set(), Counter())
        for _, file in items:
            yield file.at, file.facts
            if file.records is not None and file.at not in self.left_out:
                told.add(file.records)
        yield told
