"""The epoch that a rebuild reads, and its state (`tarn.journal.replay`)."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tarn.block.port import BlockKey, ReadBlocks, read_whole
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import HeadChange
from tarn.journal.accounts import Accounts, Report
from tarn.journal.epochs import Epoch, EpochCause, decode_epoch, newest_epoch
from tarn.journal.events import BRANCHES
from tarn.journal.names import base_path, epoch_path
from tarn.journal.reading import EpochReader
from tarn.journal.replay import Record, Replay, StagedRows
from tarn.kv.records import decode_branch

__all__ = ["Replayed", "replayed", "source_epoch"]

_EPOCH_BYTES_MAX: Final = 16 << 20
_CHAIN_MAX: Final = 1_000
"""Rebuilds in a row that died, at most."""

TakeEntries = Callable[[str, tuple[HeadChange, ...]], None]


@dataclass(frozen=True, slots=True)
class Replayed:
    """An epoch.

    Attributes:
        epoch: which one.
        report: what was read and what is missing.
        results: as `Replay.results` yields them.
    """

    epoch: Epoch
    report: Report
    results: Iterator[Record | StagedRows]


async def source_epoch(blocks: ReadBlocks, namespace: str) -> Epoch:
    """Returns the epoch that a rebuild reads: the newest one.

    If a rebuild began the newest one and nothing was drained in it, its parent is read, of which it was made: so an
    attempt after one that died, which may have begun epochs, finds the same as that one, and tells the same.

    Raises:
        TarnError: NOT_FOUND: there never was a journal. CORRUPT: the newest epoch cannot be read.
    """
    epoch = await newest_epoch(blocks, namespace)
    for _ in range(_CHAIN_MAX):
        if epoch is None or epoch.cause is not EpochCause.REBUILD or not epoch.parent:
            break
        if await EpochReader(blocks, namespace, epoch, Accounts(epoch.number, 0)).names():
            break
        parent = await _parent(blocks, namespace, epoch.parent)
        if parent is None:
            break
        epoch = parent
    if epoch is None:
        text = (
            f"{namespace} has no journal: journal.enabled was off, or the namespace is another one; "
            "`tarn repo recover` brings back commits (docs/operate/disaster.md)"
        )
        raise TarnError(Kind.NOT_FOUND, Reason.BLOCK_NOT_FOUND, text, namespace=namespace)
    return epoch


async def _parent(blocks: ReadBlocks, namespace: str, number: int) -> Epoch | None:
    """Returns an epoch whose files are still there; None: it was removed because of its age, or is damaged."""
    try:
        body = await read_whole(blocks, BlockKey(namespace, epoch_path(number)), _EPOCH_BYTES_MAX)
        epoch = decode_epoch(number, body)
    except TarnError as error:
        if error.kind not in {Kind.NOT_FOUND, Kind.CORRUPT}:
            raise
        return None
    for file in epoch.base:
        path = base_path(epoch.folder, file.number)
        if not await blocks.list_page(namespace, path, "", 1):
            return None
    return epoch


@asynccontextmanager
async def replayed(
    blocks: ReadBlocks, namespace: str, take: TakeEntries | None = None
) -> AsyncIterator[Replayed]:
    """Reads the source of a rebuild; its results may be used within the block.

    Args:
        blocks: the store.
        namespace: of the journal.
        take: gets the name of a branch and entries of its reflog, some several times; None: nobody wants them.

    Raises:
        TarnError: as `source_epoch`; CORRUPT: the base is damaged; EXHAUSTED: the temporary folder is full.
    """
    epoch = await source_epoch(blocks, namespace)
    accounts = Accounts(epoch.number, epoch.begin_time_us)
    reader = EpochReader(blocks, namespace, epoch, accounts)
    with (
        tempfile.TemporaryDirectory(prefix="tarn-rebuild-") as name,
        closing(Replay(Path(name))) as replay,
    ):
        for tables in (reader.base(), reader.passes()):
            async for table in tables:
                for batch in table.to_batches():
                    replay.add(batch)
                    if take is not None:
                        _take(batch, take)
        yield Replayed(epoch, accounts.report(), replay.results())


def _take(batch: pa.RecordBatch, take: TakeEntries) -> None:
    """Hands on the entries of reflogs that the records of branches hold; a branch that is pending may never be."""
    is_branch = pc.and_(
        pc.equal(batch.column("token"), ""), pc.starts_with(batch.column("key"), BRANCHES)
    )
    found = batch.filter(is_branch)
    rows = zip(found.column("key").to_pylist(), found.column("payload").to_pylist(), strict=True)
    for key, payload in rows:
        if payload and not (branch := decode_branch(payload)).is_deleted and branch.outbox:
            take(key.removeprefix(BRANCHES), branch.outbox)
