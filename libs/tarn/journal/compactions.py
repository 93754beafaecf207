"""Compactions: files that take the place of the base and of the passes of past days (docs/formats/journal.md).

A compaction is published by one file, which is written last, and only if its number is free. So readers see the former
files or the new ones, and of two runs beside each other one finds its number taken. What it replaces stays for a grace
time after that (`tarn.journal.retention`), for readers that have begun.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from tarn.block.paging import blocks_below
from tarn.block.port import (
    WHOLE_BYTES_MAX,
    BlockExistsError,
    BlockKey,
    BlockStore,
    ReadBlocks,
    read_whole,
)
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.accounts import KeptAccounts
from tarn.journal.epochs import Epoch
from tarn.journal.names import (
    FILE_NUMBER_MAX,
    compaction_number,
    compaction_path,
    compactions_prefix,
    corrupt_error,
)

__all__ = [
    "CompactedFile",
    "Compaction",
    "decode_compaction",
    "newest_compaction",
    "numbers_of",
    "publish_compaction",
    "read_compaction",
]

_FORMAT: Final = "tarn journal compaction"

_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Number = Annotated[int, msgspec.Meta(ge=1, le=FILE_NUMBER_MAX)]


class CompactedFile(msgspec.Struct, frozen=True):
    """A file of a compaction: rows of `EVENT_SCHEMA`.

    Attributes:
        name: 32 hex digits, never used again.
        rows: how many.
        sha256: of its bytes.
        first: least branch of its rows; empty: records that are no branch's.
        last: the greatest one.
    """

    name: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    rows: _Count
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    first: str = ""
    last: str = ""


class Compaction(msgspec.Struct, frozen=True):
    """A compaction of an epoch.

    Attributes:
        number: one more than that of the compaction that it continues; the first one has 1.
        epoch: number of the epoch.
        compact_time_us: when it began; microseconds since the epoch of Unix.
        files: its files, in the order of their rows.
        replaced: accounts of the passes that it replaces, beside the base and former compactions.
        format: always "tarn journal compaction".
        version: of the format.
    """

    number: _Number
    epoch: _Number
    compact_time_us: _Count
    files: tuple[CompactedFile, ...] = ()
    replaced: KeptAccounts = KeptAccounts()
    format: Annotated[str, msgspec.Meta(pattern=f"^{_FORMAT}$")] = _FORMAT
    version: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1


async def numbers_of(blocks: ReadBlocks, namespace: str, epoch: Epoch) -> list[tuple[int, int]]:
    """Returns the compactions of an epoch, ascending: number, and when it was published, in microseconds."""
    prefix = compactions_prefix(epoch.folder)
    return [
        (number, info.mtime_us)
        async for info in blocks_below(blocks, namespace, prefix)
        if (number := compaction_number(epoch.folder, info.path))
    ]


async def newest_compaction(blocks: ReadBlocks, namespace: str, epoch: Epoch) -> Compaction | None:
    """Returns the newest compaction of an epoch; None: there is none.

    Raises:
        TarnError: CORRUPT: its file cannot be read. What a former one names may be gone, so it is no substitute.
    """
    found = await numbers_of(blocks, namespace, epoch)
    return await read_compaction(blocks, namespace, epoch, found[-1][0]) if found else None


async def read_compaction(
    blocks: ReadBlocks, namespace: str, epoch: Epoch, number: int
) -> Compaction:
    """Returns a compaction.

    Raises:
        TarnError: CORRUPT: it cannot be read. BLOCK_NOT_FOUND.
    """
    key = BlockKey(namespace, compaction_path(epoch.folder, number))
    return decode_compaction(epoch, number, await read_whole(blocks, key, WHOLE_BYTES_MAX))


def decode_compaction(epoch: Epoch, number: int, body: bytes) -> Compaction:
    """Returns the compaction that a file publishes.

    Raises:
        TarnError: CORRUPT: it cannot be read, or is another one.
    """
    path = compaction_path(epoch.folder, number)
    try:
        found = msgspec.json.decode(body, type=Compaction)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise corrupt_error(path, str(error)) from error
    if (found.epoch, found.number) != (epoch.number, number):
        raise corrupt_error(path, f"it is compaction {found.number} of epoch {found.epoch}")
    for holder, pairs in found.replaced.numbers.items():
        ends = [number for pair in pairs for number in pair]
        if not ends or ends != sorted(ends) or ends[0] < 1:
            raise corrupt_error(path, f"the numbers of holder {holder[:64]!a} are not in order")
    return found


async def publish_compaction(
    blocks: BlockStore, namespace: str, epoch: Epoch, compaction: Compaction
) -> None:
    """Publishes a compaction. All of its files must have been written. May be repeated if the answer was lost.

    Raises:
        TarnError: CONFLICT: another run has published one of this number. EXHAUSTED: it is too large.
    """
    body = msgspec.json.encode(compaction, order="deterministic")
    if len(body) > WHOLE_BYTES_MAX:
        text = (
            f"the compaction of the journal of {namespace} would tell {len(body)} bytes of tokens and files: too many; "
            "compact with a shorter time for superseded events"
        )
        raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
    try:
        await blocks.put(
            BlockKey(namespace, compaction_path(epoch.folder, compaction.number)), body
        )
    except BlockExistsError as error:
        text = (
            f"another run has compacted the journal of {namespace} meanwhile; this one has changed nothing: run it "
            "again"
        )
        raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, text) from error
