"""What the files of a journal say, read from the bucket alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tarn.block.port import ReadBlocks
from tarn.core.branch import Branch
from tarn.core.entry import is_tombstone, unpack
from tarn.journal.accounts import Accounts, Report
from tarn.journal.epochs import newest_epoch
from tarn.journal.events import EventRow, rows_of
from tarn.journal.reading import EpochReader
from tarn.journal.replay import Record, replay

__all__ = ["Files", "read_files"]


@dataclass(frozen=True, slots=True)
class Files:
    """All that counts of the newest epoch of a namespace.

    Attributes:
        epoch: its number; 0: there is none.
        base: rows of its base.
        events: rows of its passes.
        report: what is missing.
        branches: records that a rebuild makes.
        staged: rows that a rebuild makes: for each branch the size of each path, None if it is deleted.
    """

    epoch: int
    base: list[EventRow]
    events: list[EventRow]
    report: Report | None
    branches: dict[str, Branch]
    staged: dict[str, dict[str, int | None]]

    @property
    def sizes(self) -> list[tuple[str, int | None]]:
        """Path and size of each event of an object, in the order of the store within each token."""
        rows = [row for row in self.events if row.token]
        rows.sort(key=lambda row: (row.token, row.order))
        return [(row.key, _size(row.payload)) for row in rows]


async def read_files(blocks: ReadBlocks, namespace: str, folder: Path) -> Files:
    """Reads a journal; `folder` is for temporary files."""
    epoch = await newest_epoch(blocks, namespace)
    if epoch is None:
        return Files(0, [], [], None, {}, {})
    accounts = Accounts(epoch.number, epoch.begin_time_us)
    reader = EpochReader(blocks, namespace, epoch, accounts)
    base = [table async for table in reader.base()]
    passes = [table async for table in reader.passes()]
    branches: dict[str, Branch] = {}
    staged: dict[str, dict[str, int | None]] = {}
    batches = [batch for table in (*base, *passes) for batch in table.to_batches()]
    for found in replay(batches, folder):
        if isinstance(found, Record):
            if found.branch is not None:
                branches[found.key] = found.branch
            continue
        rows = zip(found.paths.to_pylist(), found.payloads.to_pylist(), strict=True)
        staged.setdefault(found.branch_id, {}).update((path, _size(row)) for path, row in rows)
    return Files(epoch.number, _rows(base), _rows(passes), accounts.report(), branches, staged)


def _rows(tables: list[pa.Table]) -> list[EventRow]:
    return [row for table in tables for row in rows_of(table)]


def _size(payload: bytes) -> int | None:
    return None if is_tombstone(payload) else unpack(payload).size
