"""Deletes files of the journal that no reader needs: what a compaction replaced, and former epochs.

All ages are those of the block store. A file that a reader may have begun to read stays for a grace time, and so does
one that a run may be writing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tarn.block.paging import pages_below
from tarn.block.port import (
    BlockKey,
    BlockNotFoundError,
    BlockStore,
    ReadBlocks,
    read_whole,
)
from tarn.core.clock import DAY_US, Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.listing.run import addresses_of
from tarn.journal.compactions import Compaction, numbers_of, read_compaction
from tarn.journal.epochs import Epoch, newest_epoch
from tarn.journal.files import FILE_BYTES_MAX, decode_base
from tarn.journal.names import (
    EPOCHS,
    FOLDER,
    base_prefix,
    compacted_name,
    compacted_prefix,
    compaction_path,
    epoch_path,
    folder_number,
    pass_name,
)

__all__ = ["GRACE_US", "Named", "Retired", "named_blocks", "retire"]

GRACE_US: Final = 2 * DAY_US
"""How long replaced files stay: twice as long as a compaction may take, and longer than a rebuild or a copy of the
bucket."""
_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Retired:
    """What was deleted.

    Attributes:
        replaced: files whose rows a compaction has.
        former: files of former epochs.
    """

    replaced: int
    former: int


@dataclass(frozen=True, slots=True)
class Named:
    """Which blocks the files of a journal name.

    Attributes:
        addresses: those that an event of an object has.
        unreadable: files that cannot be read, so they may name any block.
    """

    addresses: frozenset[bytes]
    unreadable: Sequence[str]


async def retire(
    blocks: BlockStore, namespace: str, clock: Clock, *, keep_epochs_us: int
) -> Retired:
    """Deletes the files of a journal that no reader needs. May die at any moment, and be run again.

    Never deletes what a rebuild of the newest epoch needs: its last compaction that is older than the grace time, and
    all that came after it. The files in `epochs/` and the manifests of days stay.

    Args:
        blocks: the store.
        namespace: of the journal.
        clock: of this machine.
        keep_epochs_us: how long a former epoch stays after the newest one began, microseconds; at least the grace time
            counts.

    Raises:
        TarnError: CORRUPT: the newest epoch or a compaction is damaged; nothing was deleted. Any error of the store.
    """
    epoch = await newest_epoch(blocks, namespace)
    if epoch is None:
        return Retired(0, 0)
    now_us = clock.now_us()
    replaced = await _retire_replaced(blocks, namespace, epoch, now_us - GRACE_US)
    former = await _retire_former(blocks, namespace, epoch, now_us - max(GRACE_US, keep_epochs_us))
    return Retired(replaced, former)


async def _retire_replaced(blocks: BlockStore, namespace: str, epoch: Epoch, until_us: int) -> int:
    numbers = await numbers_of(blocks, namespace, epoch)
    settled = [number for number, mtime_us in numbers if mtime_us < until_us]
    if not settled:
        return 0
    later = [number for number, _ in numbers if number >= settled[-1]]
    kept = [await read_compaction(blocks, namespace, epoch, number) for number in later]
    named = {file.name for compaction in kept for file in compaction.files}
    found = 0
    prefix = f"{FOLDER}{epoch.folder}/"
    async for page in pages_below(blocks, namespace, prefix):
        goes = [
            info.path
            for info in page
            if info.mtime_us < until_us and _is_replaced(epoch, info.path, kept[0], named)
        ]
        await blocks.delete_many(namespace, goes)
        found += len(goes)
    # The files that publish go last: without theirs, a run that died would forget what a former one named.
    former = [compaction_path(epoch.folder, number) for number, _ in numbers if number < later[0]]
    for start in range(0, len(former), _PAGE):
        await blocks.delete_many(namespace, former[start : start + _PAGE])
    return found + len(former)


def _is_replaced(epoch: Epoch, path: str, settled: Compaction, named: Collection[str]) -> bool:
    if name := pass_name(epoch.folder, path):
        return settled.replaced.holds(name)
    if path.startswith(compacted_prefix(epoch.folder)):
        file = compacted_name(epoch.folder, path)
        return file is not None and file not in named
    return path.startswith(base_prefix(epoch.folder))


async def _retire_former(blocks: BlockStore, namespace: str, epoch: Epoch, until_us: int) -> int:
    """Deletes the files of former epochs, and of attempts to begin one, if the newest one began long ago."""
    begun = await blocks.list_page(namespace, epoch_path(epoch.number), "", 1)
    if not begun:
        text = f"epoch {epoch.number} of the journal of {namespace} has gone while it was read; run it again"
        raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)
    if begun[0].mtime_us >= until_us:
        return 0
    found = 0
    async for page in pages_below(blocks, namespace, FOLDER):
        goes = [
            info.path for info in page if info.mtime_us < until_us and _is_former(epoch, info.path)
        ]
        await blocks.delete_many(namespace, goes)
        found += len(goes)
    return found


def _is_former(epoch: Epoch, path: str) -> bool:
    number = folder_number(path)
    if number is None or path.startswith((EPOCHS, f"{FOLDER}{epoch.folder}/")):
        return False
    return number <= epoch.number


async def named_blocks(blocks: ReadBlocks, namespace: str, addresses: Collection[bytes]) -> Named:
    """Looks for some blocks in all files of a journal, of all epochs, also those that no reader needs any more.

    Raises:
        TarnError: any error of the store, but that a file has gone.
    """
    wanted = pa.array(list(addresses), pa.binary())
    found: set[bytes] = set()
    unreadable = []
    async for page in pages_below(blocks, namespace, FOLDER):
        for info in page:
            if info.path.endswith(".parquet"):
                try:
                    key = BlockKey(namespace, info.path)
                    body = await read_whole(blocks, key, FILE_BYTES_MAX)
                    table = await asyncio.to_thread(decode_base, info.path, body)
                except BlockNotFoundError:
                    continue
                except TarnError as error:
                    if error.kind is not Kind.CORRUPT:
                        raise
                    unreadable.append(info.path)
                    continue
                named = addresses_of(table.column("payload"))
                found.update(named.filter(pc.is_in(named, value_set=wanted)).to_pylist())
    return Named(frozenset(found), unreadable)
