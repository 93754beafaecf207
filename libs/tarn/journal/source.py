"""What a rebuild reads of a journal, in one process and in Spark: which epoch, and of which files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tarn.block.port import ReadBlocks
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import HeadChange
from tarn.journal.accounts import Accounts
from tarn.journal.compactions import Compaction
from tarn.journal.epochs import Epoch, EpochCause, newest_epoch, read_epoch
from tarn.journal.events import BRANCHES
from tarn.journal.names import PassName, base_path
from tarn.journal.reading import EpochReader
from tarn.kv.records import decode_branch

__all__ = ["JournalSource", "entries_in", "files_digest", "find_source", "require_unchanged"]

_CHAIN_MAX: Final = 1_000
"""Rebuilds in a row that died, at most."""


@dataclass(frozen=True, slots=True)
class JournalSource:
    """What a rebuild reads, and what must still be so when its own epoch has begun.

    Attributes:
        epoch: that is read.
        newest: the newest one; another one than `epoch` if a rebuild that died began it.
        files_sha256: `files_digest` of the newest one, of a moment before anything was read.
    """

    epoch: Epoch
    newest: Epoch
    files_sha256: str


async def find_source(blocks: ReadBlocks, namespace: str) -> JournalSource:
    """Returns what a rebuild reads: the newest epoch.

    If a rebuild began the newest one and nothing was drained in it, the one before is read, of which it was made: so an
    attempt after one that died, which may have begun epochs, finds the same as that one, and tells the same.

    Raises:
        TarnError: NOT_FOUND: there never was a journal. CORRUPT: the newest epoch cannot be read. EXHAUSTED: it has too
            many files.
    """
    newest = await newest_epoch(blocks, namespace)
    if newest is None:
        text = (
            f"{namespace} has no journal: journal.enabled was off, or the namespace is another one; "
            "`tarn repo recover` brings back commits (docs/operate/disaster.md)"
        )
        raise TarnError(Kind.NOT_FOUND, Reason.BLOCK_NOT_FOUND, text, namespace=namespace)
    epoch = newest
    is_drained, files = await _files(blocks, namespace, newest)
    for _ in range(_CHAIN_MAX):
        if is_drained or epoch.cause is not EpochCause.REBUILD or not epoch.parent:
            break
        before = await _before(blocks, namespace, epoch)
        if before is None:
            break
        epoch = before
        is_drained, _digest = await _files(blocks, namespace, epoch)
    return JournalSource(epoch, newest, files)


async def require_unchanged(blocks: ReadBlocks, namespace: str, source: JournalSource) -> None:
    """Does nothing if the newest epoch of a rebuild has no other files than before the rebuild read them.

    It is asked after the rebuild's own epoch has begun. What is written later is of no use to its writer.

    Raises:
        TarnError: FAILED_PRECONDITION: it has.
    """
    _, files = await _files(blocks, namespace, source.newest)
    if files != source.files_sha256:
        text = (
            f"the journal of {namespace} got other files in epoch {source.newest.number} since the rebuild began: a "
            "process of the lost store still runs, and may have deleted objects. Stop it, and rebuild again into an "
            "empty store (docs/operate/disaster.md)"
        )
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text)


async def _files(blocks: ReadBlocks, namespace: str, epoch: Epoch) -> tuple[bool, str]:
    """Returns whether anything was drained in an epoch, and the digest of its files."""
    reader = EpochReader(blocks, namespace, epoch, Accounts(epoch.number, 0))
    names = await reader.names()
    compaction = reader.selector.compaction  # which may have replaced all of them
    return bool(names or compaction), files_digest(epoch, compaction, names)


async def _before(blocks: ReadBlocks, namespace: str, epoch: Epoch) -> Epoch | None:
    """Returns the epoch before one that a rebuild began: its parent, or a later one that another rebuild began, whose
    store may have been used. None: it was removed because of its age, or is damaged."""
    for number in range(epoch.number - 1, epoch.parent - 1, -1):
        if (found := await _intact(blocks, namespace, number)) is not None:
            return found
    return None


async def _intact(blocks: ReadBlocks, namespace: str, number: int) -> Epoch | None:
    """Returns an epoch whose files are still there; None: there is none, or it is damaged."""
    try:
        epoch = await read_epoch(blocks, namespace, number)
    except TarnError as error:
        if error.kind not in {Kind.NOT_FOUND, Kind.CORRUPT}:
            raise
        return None
    for file in epoch.base:
        path = base_path(epoch.folder, file.number)
        if not await blocks.list_page(namespace, path, "", 1):
            return None
    return epoch


def files_digest(epoch: Epoch, compaction: Compaction | None, names: Sequence[PassName]) -> str:
    """Returns a SHA-256 in hex that changes with the files of an epoch that a rebuild reads.

    Args:
        epoch: the epoch.
        compaction: its newest one.
        names: as `EpochReader.names` returns them.
    """
    hashed = hashlib.sha256(epoch.folder.encode())
    hashed.update(str(compaction.number if compaction is not None else 0).encode())
    for name in names:
        hashed.update(b"\n" + name.path(epoch.folder).encode())
    return hashed.hexdigest()


def entries_in(batch: pa.RecordBatch) -> Iterator[tuple[str, tuple[HeadChange, ...] | None]]:
    """Yields the names of branches, and the entries of their reflogs that the records in a batch of events hold; None
    for a record that cannot be read. A branch that is pending has none: it may never be."""
    is_branch = pc.and_(
        pc.equal(batch.column("token"), ""), pc.starts_with(batch.column("key"), BRANCHES)
    )
    found = batch.filter(is_branch)
    rows = zip(found.column("key").to_pylist(), found.column("payload").to_pylist(), strict=True)
    for key, payload in rows:
        name = key.removeprefix(BRANCHES)
        try:
            branch = decode_branch(payload) if payload else None
        except TarnError as error:
            if error.kind is not Kind.CORRUPT:
                raise
            yield name, None
            continue
        if branch is not None and not branch.is_deleted and branch.outbox:
            yield name, branch.outbox
