"""The feed of changes: each event once, by its id.

One event may be in several rows: a drain repeats what it has not removed yet, two holders of a lease read the same, and
a write that met a seal left a row in two tokens. All of them have one id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.journal.events import BASE_ID, EVENT_SCHEMA
from tarn.journal.runs import RUN_BYTES, SortedRuns

__all__ = ["feed"]

_SCHEMA: Final = pa.schema(
    [pa.field("id", pa.binary()), pa.field("is_new", pa.bool_()), *list(EVENT_SCHEMA)[1:]]
)
_CHOICE: Final = [("id", "ascending"), ("is_new", "ascending")] + [
    (name, "ascending") for name in ("branch", "token", "order", "key", "payload")
]


def feed(
    new: Iterable[pa.RecordBatch],
    told: Iterable[pa.Array],
    folder: Path,
    *,
    run_bytes: int = RUN_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yields the events that were not told yet, each once, ascending by id: by the time of their requests.

    Of several rows of one id the least by branch, token, order, key and payload stands for it, so the result does not
    depend on the order in which they come.

    Args:
        new: batches of `EVENT_SCHEMA`. Rows of a base are left out.
        told: ids of events that were told before, as arrays of 16 bytes each: those of the files that a consumer has
            read, from the oldest id of `new` on. Ids of files begin with a time.
        folder: for temporary files; made when it is needed, and removed by the caller.
        run_bytes: see `SortedRuns`.

    Raises:
        TarnError: EXHAUSTED: the folder is full.
    """
    with closing(SortedRuns(folder, _once, "id", run_bytes=run_bytes)) as runs:
        for ids in told:
            runs.add(_told(ids))
        for batch in new:
            runs.add(_new(batch))
        for table in runs.merged(lambda batch: batch):
            found = _once(table)
            found = found.filter(found.column("is_new")).drop_columns(["is_new"]).combine_chunks()
            ids = found.column("id").cast(EVENT_SCHEMA.field("event_id").type)
            columns = [ids, *found.columns[1:]]
            yield from pa.Table.from_arrays(columns, schema=EVENT_SCHEMA).to_batches()


def _new(batch: pa.RecordBatch) -> pa.RecordBatch:
    ids = batch.column("event_id").cast(pa.binary())
    is_new = pa.repeat(pa.scalar(True), len(batch))
    columns = [ids, is_new, *batch.columns[1:]]
    found = pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
    return found.filter(pc.not_equal(ids, BASE_ID))


def _told(ids: pa.Array) -> pa.RecordBatch:
    nothing = {pa.int64(): 0, pa.string(): "", pa.binary(): b""}
    rest = [pa.repeat(pa.scalar(nothing[f.type], f.type), len(ids)) for f in list(_SCHEMA)[2:]]
    is_new = pa.repeat(pa.scalar(False), len(ids))
    return pa.RecordBatch.from_arrays([ids.cast(pa.binary()), is_new, *rest], schema=_SCHEMA)


def _once(table: pa.Table) -> pa.Table:
    """Returns one row of each id, ascending; one that was told counts before all others."""
    table = table.combine_chunks()
    if not len(table):
        return table
    by_id = pc.sort_indices(table.column("id")).to_numpy()
    ids = table.column("id").take(by_id).combine_chunks()
    differs = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    if not differs.all():
        by_id = pc.sort_indices(table, sort_keys=_CHOICE).to_numpy()
    return table.take(by_id[np.append(True, differs)])
