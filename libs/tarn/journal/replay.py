"""What a rebuild makes of the events of one epoch (docs/design/journal.md, "Rebuild").

For each record, the one of the greatest order. For each branch, the rows of the tokens that its record names: in each
token, of each path the one of the greatest (order, payload); of these the one of the newest layer. No result depends on
the order in which events come, on repetitions, or on the files that they were in.

Memory is bounded by `tarn.journal.runs`, and by the names of the tokens that branches have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarn.core.branch import Branch
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.events import BRANCHES, REPLAYED
from tarn.journal.runs import RUN_BYTES, SortedRuns
from tarn.kv.records import decode_branch

__all__ = [
    "LAYER_SCHEMA",
    "RANKED_SCHEMA",
    "REPLAYED",
    "Record",
    "Replay",
    "StagedRows",
    "branch_of",
    "layers_of",
    "newest",
    "numbered",
    "ranks_of",
    "record_layers",
    "record_of",
    "replay",
    "staged_rows",
    "topmost",
    "with_ranks",
]

LAYER_SCHEMA: Final = pa.schema(
    [
        pa.field("place", pa.binary()),  # branch, NUL, path; of a record, NUL and its key
        pa.field("layer", pa.binary()),  # branch, NUL, token; of a record, NUL
        pa.field("order", pa.int64()),
        pa.field("payload", pa.binary()),
    ]
)
RANKED_SCHEMA: Final = pa.schema(
    [
        pa.field("place", pa.binary()),  # branch, NUL, path
        pa.field("rank", pa.int64()),  # of its layer: 0 for the newest one
        pa.field("order", pa.int64()),
        pa.field("payload", pa.binary()),
    ]
)
_NUL: Final = b"\0"
_KEY_BITS: Final = 63
"""Of a number by which rows are sorted."""

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was after its last drained change.

    Attributes:
        key: its key.
        payload: the record; never empty, as deleted records are left out.
        order: of that change.
        branch: the record as a branch that users see; None: it is of something else, or of a branch that is deleted or
            was not created yet, or cannot be read.
        problem: why the record of a branch cannot be read; empty: it can, or is of something else. No row of its tokens
            is in the results.
    """

    key: str
    payload: bytes
    order: int
    branch: Branch | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Uncommitted rows of a branch, which lie over its compacted listing, or over its commit.

    Attributes:
        branch_id: the branch.
        paths: ascending; the next rows of this branch follow them.
        payloads: packed entries, and tombstones for objects that are deleted.
    """

    branch_id: str
    paths: pa.StringArray
    payloads: pa.BinaryArray


class Replay:
    """Takes the events of one epoch, with its base, and gives the state. For one thread.

    Args:
        folder: for temporary files; made when it is needed, and removed by the caller.
        run_bytes: see `SortedRuns`.
    """

    def __init__(self, folder: Path, *, run_bytes: int = RUN_BYTES) -> None:
        self._record_runs = SortedRuns(folder / "records", newest, "place", run_bytes=run_bytes)
        self._runs = SortedRuns(folder / "rows", newest, "place", run_bytes=run_bytes)

    def close(self) -> None:
        """Ends its threads; the files stay."""
        self._record_runs.close()
        self._runs.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds events, a batch with the columns `REPLAYED` of `tarn.journal.events.EVENT_SCHEMA`.

        Raises:
            TarnError: EXHAUSTED: the folder is full.
        """
        of_record = pc.equal(batch.column("token"), "")
        if of_record.true_count:
            self._record_runs.add(record_layers(batch.filter(of_record)))
            batch = batch.filter(pc.invert(of_record))
        self._runs.add(layers_of(batch))

    def results(self) -> Iterator[Record | StagedRows]:
        """Yields all records that exist, ascending by key, and after them the uncommitted rows of the branches.

        Call it once, after the last `add`.

        Raises:
            TarnError: EXHAUSTED: the folder is full.
        """
        ranks: dict[bytes, int] = {}
        for table in self._record_runs.merged(lambda batch: batch):
            for record in _records(newest(table)):
                if record.branch is not None:
                    ranks |= ranks_of(record.key, record.branch)
                yield record
        for table in self._runs.merged(lambda batch: _of_layers(batch, ranks)):
            yield from staged_rows(_topmost(newest(table), ranks))


def replay(batches: Iterable[pa.RecordBatch], folder: Path) -> Iterator[Record | StagedRows]:
    """Yields the results of a `Replay` of some batches."""
    with closing(Replay(folder)) as replayed:
        for batch in batches:
            replayed.add(batch)
        yield from replayed.results()


def layers_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns rows of tokens as `LAYER_SCHEMA`."""
    branch = batch.column("branch").cast(pa.binary())
    place = pc.binary_join_element_wise(branch, batch.column("key").cast(pa.binary()), _NUL)
    layer = pc.binary_join_element_wise(branch, batch.column("token").cast(pa.binary()), _NUL)
    columns = [place, layer, batch.column("order"), batch.column("payload")]
    return pa.RecordBatch.from_arrays(columns, schema=LAYER_SCHEMA)


def record_layers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns rows of records as `LAYER_SCHEMA`."""
    place = pc.binary_join_element_wise(b"", batch.column("key").cast(pa.binary()), _NUL)
    layer = pa.repeat(pa.scalar(_NUL, pa.binary()), len(batch))
    columns = [place, layer, batch.column("order"), batch.column("payload")]
    return pa.RecordBatch.from_arrays(columns, schema=LAYER_SCHEMA)


def newest(table: pa.Table) -> pa.Table:
    """Returns the row of the greatest (order, payload) of each place in each layer, ascending by place."""
    table = table.combine_chunks()
    if not len(table):
        return table
    by_place = pc.sort_indices(table.column("place")).to_numpy()
    places = table.column("place").take(by_place).combine_chunks()
    begins = _begins(places)
    keep = begins & np.append(begins[1:], [True])
    if not keep.all():
        several = np.flatnonzero(~keep)
        rows = by_place[several]
        layers = table.column("layer").take(rows).combine_chunks().dictionary_encode()
        layer = layers.indices.to_numpy().astype(np.int64)
        order = table.column("order").to_numpy()[rows]
        group = np.cumsum(begins, dtype=np.int64)[several]
        keep[several[_greatest(group, layer, order, table.column("payload"), rows)]] = True
        places = places.filter(pa.array(keep))
        by_place = by_place[keep]
    rest = table.select(table.column_names[1:]).take(by_place)
    return pa.Table.from_arrays([places, *rest.columns], schema=table.schema)


def numbered(table: pa.Table) -> tuple[list[bytes], pa.Table]:
    """Returns the layers of events, and their rows of tokens as `RANKED_SCHEMA`, with the number of its layer in the
    place of each rank; records are left out.

    Args:
        table: the columns `REPLAYED` of events.
    """
    branch = _encoded(table.column("branch"))
    token = _encoded(table.column("token"))
    tokens = max(1, len(token.dictionary))
    pairs = branch.indices.to_numpy().astype(np.int64) * tokens + token.indices.to_numpy()
    found, which = np.unique(pairs, return_inverse=True)
    names, ids = branch.dictionary.to_pylist(), token.dictionary.to_pylist()
    layers = [f"{names[pair // tokens]}\0{ids[pair % tokens]}".encode() for pair in found.tolist()]
    if "" in ids:
        is_row = np.array([bool(ids[pair % tokens]) for pair in found.tolist()], np.bool_)[which]
        table, which = table.filter(pa.array(is_row)), which[is_row]
    place = pc.binary_join_element_wise(
        table.column("branch").cast(pa.binary()), table.column("key").cast(pa.binary()), _NUL
    )
    numbers = pa.array(which.astype(np.int64, copy=False))
    columns = [place, numbers, table.column("order"), table.column("payload")]
    return layers, pa.Table.from_arrays(columns, schema=RANKED_SCHEMA)


def with_ranks(table: pa.Table, ranks: _Ints) -> pa.Table:
    """Returns rows with the ranks of their layers.

    Args:
        table: rows with numbers of layers, as `numbered` returns them.
        ranks: of each layer; -1: no record names it, and its rows are left out.
    """
    rank = ranks[table.column("rank").to_numpy()]
    if len(rank) and rank.min() < 0:
        is_named = rank >= 0
        table, rank = table.filter(pa.array(is_named)), rank[is_named]
    at = RANKED_SCHEMA.get_field_index("rank")
    return table.set_column(at, RANKED_SCHEMA.field(at), pa.array(rank, pa.int64()))


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return column.unify_dictionaries().combine_chunks()


def topmost(table: pa.Table) -> pa.Table:
    """Returns the row that counts of each place, in no order: without sorting, for rows that fit into memory.

    It is what `newest` and the layers make of the same rows.

    Args:
        table: rows of `RANKED_SCHEMA`: all rows of each of their places.
    """
    if not len(table):
        return table
    table = table.combine_chunks()
    rank: _Ints = table.column("rank").to_numpy()
    places = table.column("place").combine_chunks().dictionary_encode()
    group = places.indices.to_numpy().astype(np.int64)
    order: _Ints = table.column("order").to_numpy()
    payload = table.column("payload")
    is_there = pc.not_equal(payload, b"").to_numpy(zero_copy_only=False)
    keep = np.bincount(group)[group] == 1
    several = np.flatnonzero(~keep)
    keep &= is_there
    if len(several):
        first, is_clear = _first(group[several], rank[several], order[several])
        is_clear &= is_there[several[first]]
        keep[several[first[is_clear]]] = True
        unclear = np.zeros(len(places.dictionary), np.bool_)
        unclear[group[several[first[~is_clear]]]] = True
        rest = several[unclear[group[several]]]
        if len(rest):
            best = rest[_greatest(group[rest], rank[rest], order[rest], payload, rest)]
            best = best[is_there[best]]
            by_rank = best[np.lexsort((rank[best], group[best]))]
            keep[by_rank[np.diff(group[by_rank], prepend=-1) != 0]] = True
    return table.filter(pa.array(keep))


def _first(group: _Ints, rank: _Ints, order: _Ints) -> tuple[_Ints, npt.NDArray[np.bool_]]:
    """Returns the position of a row of the least rank of each group, and of these of the greatest order; and whether
    no other row has the same rank and order."""
    before = order.max() - order
    sizes = [int(each.max()).bit_length() for each in (group, rank, before)]
    if sum(sizes) < _KEY_BITS:  # one sort instead of three
        key = (group << (sizes[1] + sizes[2])) | (rank << sizes[2]) | before
        by_key = np.argsort(key)
        is_other = np.diff(key[by_key]) != 0
    else:
        by_key = np.lexsort((before, rank, group))
        is_other = np.zeros(len(group) - 1, np.bool_)
        for each in (before, rank, group):
            is_other |= np.diff(each[by_key]) != 0
    begins = np.flatnonzero(np.diff(group[by_key], prepend=-1))
    return by_key[begins], np.append(is_other, [True])[begins]


def _begins(sorted_keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns where sorted keys differ from the one before; the first one does."""
    differs = pc.not_equal(sorted_keys[1:], sorted_keys[:-1]).to_numpy(zero_copy_only=False)
    return np.append([True], differs)


def _greatest(
    group: _Ints, layer: _Ints, order: _Ints, payload: pa.ChunkedArray, rows: _Ints
) -> _Ints:
    """Returns positions: for each (group, layer) one of the greatest order; of equal orders, of the greatest payload.

    Args:
        group: of each position.
        layer: likewise.
        order: likewise.
        payload: of all rows.
        rows: the row of each position.
    """
    by_order = np.lexsort((order, layer, group))
    cell = _cells(group[by_order], layer[by_order])
    ends = np.append(np.flatnonzero(np.diff(cell)), len(cell) - 1)
    is_best = order[by_order] == order[by_order][ends][cell]
    best: _Ints = by_order[is_best]
    cell = cell[is_best]
    ties = np.bincount(cell)[cell] > 1
    if not ties.any():
        return best
    tied = best[ties]
    value = pc.rank(payload.take(rows[tied]).combine_chunks(), tiebreaker="dense").to_numpy()
    by_value = np.lexsort((value, cell[ties]))
    last = np.append(np.flatnonzero(np.diff(cell[ties][by_value])), len(by_value) - 1)
    return np.concatenate((best[~ties], tied[by_value[last]]))


def _cells(group: _Ints, layer: _Ints) -> _Ints:
    """Numbers pairs that are sorted: equal ones have the same number."""
    differs = (np.diff(group) != 0) | (np.diff(layer) != 0)
    return np.concatenate(([0], np.cumsum(differs, dtype=np.int64)))


def _records(table: pa.Table) -> Iterator[Record]:
    for batch in table.to_batches():
        places, payloads = batch.column("place").to_pylist(), batch.column("payload").to_pylist()
        orders = batch.column("order").to_pylist()
        for place, payload, order in zip(places, payloads, orders, strict=True):
            if payload:
                key = place[1:].decode()
                yield record_of(key, payload, order)


def record_of(key: str, payload: bytes, order: int) -> Record:
    """Returns a record of the results."""
    try:
        return Record(key, payload, order, branch_of(key, payload))
    except TarnError as error:
        return Record(key, payload, order, problem=error.message)


def branch_of(key: str, payload: bytes) -> Branch | None:
    """Returns the branch that a record is; None: it is none that users see.

    Raises:
        TarnError: CORRUPT: it cannot be read.
    """
    if not key.startswith(BRANCHES):
        return None
    try:
        branch = decode_branch(payload)
    except TarnError as error:
        text = f"the journal's record {key!r} cannot be read: {error.message}"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, key=key) from error
    return None if branch.is_deleted else branch


def ranks_of(key: str, branch: Branch) -> dict[bytes, int]:
    """Numbers the layers of a branch, the newest with 0."""
    name = key.removeprefix(BRANCHES).encode()
    return {name + _NUL + token.token_id.encode(): rank for rank, token in enumerate(branch.tokens)}


def _of_layers(batch: pa.RecordBatch, ranks: dict[bytes, int]) -> pa.RecordBatch:
    """Returns the rows of layers that the records name."""
    return batch.filter(pa.array(_rank(batch.column("layer"), ranks) >= 0))


def _rank(layers: pa.Array, ranks: Mapping[bytes, int]) -> _Ints:
    """The rank of each layer; -1: no record names it."""
    encoded = layers if pa.types.is_dictionary(layers.type) else layers.dictionary_encode()
    known = [ranks.get(each, -1) for each in encoded.dictionary.to_pylist()]
    found: _Ints = np.array(known, np.int64)[encoded.indices.to_numpy()]
    return found


def _topmost(table: pa.Table, ranks: dict[bytes, int]) -> pa.Table:
    """Returns the row of the newest layer of each place. A row that was deleted from a layer is none of it."""
    table = table.filter(pc.not_equal(table.column("payload"), b"")).combine_chunks()
    if not len(table):
        return table
    group = np.cumsum(_begins(table.column("place").combine_chunks()))
    rank = _rank(table.column("layer").combine_chunks(), ranks)
    by_rank = np.lexsort((rank, group))
    first = np.append(0, np.flatnonzero(np.diff(group[by_rank])) + 1)
    return table.take(by_rank[first])


def staged_rows(table: pa.Table) -> Iterator[StagedRows]:
    """Yields the rows of a table, whose places ascend, branch by branch."""
    if not len(table):
        return
    table = table.combine_chunks()
    places = table.column("place").combine_chunks()
    payloads = table.column("payload").combine_chunks()
    for name, start, end in _branches(places):
        paths = pc.binary_replace_slice(places[start:end], 0, len(name) + 1, b"").cast(pa.string())
        yield StagedRows(name.decode(), paths, payloads[start:end])


def _branches(places: pa.BinaryArray) -> Iterator[tuple[bytes, int, int]]:
    """Yields each branch of sorted places, and where its rows begin and end."""
    start = 0
    while start < len(places):
        name = places[start].as_py().partition(_NUL)[0]
        after = pa.scalar(name + b"\1", pa.binary())
        end = pc.search_sorted(places, after).as_py()
        yield name, start, end
        start = end
