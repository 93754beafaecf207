"""Epochs: each begins with all that its store then held, and only the newest one is read.

The file that begins an epoch is written after its base, and once: the block store writes a name only if it is free
(`If-None-Match: *`). Its number is the next one after that of the epoch which its store may follow, and no attempt ever
raises it. So of two stores that continue one epoch the second finds the file of the first. Its bytes name a folder, and
half of the digits of that are of the store: the replicas of one store know each other's attempts by them.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final

import msgspec

from tarn.block.paging import blocks_below
from tarn.block.port import BlockExistsError, BlockKey, BlockStore, ReadBlocks, read_whole
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.names import (
    EPOCHS,
    NUMBER_MAX,
    corrupt_error,
    epoch_folder,
    epoch_number,
    epoch_path,
    epoch_store,
)

__all__ = [
    "BaseFile",
    "Epoch",
    "EpochCause",
    "begin_epoch",
    "decode_epoch",
    "newest_epoch",
    "next_epoch",
    "read_epoch",
    "require_newest",
]

_FORMAT: Final = "tarn journal epoch"
_EPOCH_BYTES_MAX: Final = 16 << 20
"""Some 120 bytes for each file of the base, which has up to 524,288 rows."""

_Number = Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class EpochCause(enum.Enum):
    """How an epoch began."""

    ENABLED = "enabled"
    RESTORE = "restore"
    LOAD = "load"
    REBUILD = "rebuild"


class BaseFile(msgspec.Struct, frozen=True):
    """A file of a base, by its number (`tarn.journal.names.base_path`)."""

    number: _Number
    rows: _Count
    sha256: _Sha256


class Epoch(msgspec.Struct, frozen=True):
    """An epoch.

    Attributes:
        number: one more than that of the newest epoch before it.
        parent: the epoch that the store continues; 0: none.
        folder: name of its folder, `<number>-<32 random hex digits>`; half of these are of the store.
        cause: how it began.
        begin_time_us: when; for people. Microseconds since the epoch of Unix.
        base: files of its base.
        format: always "tarn journal epoch".
        version: of the format.
    """

    number: _Number
    parent: Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
    folder: Annotated[str, msgspec.Meta(pattern="^[0-9]{10}-[0-9a-f]{32}$")]
    cause: EpochCause
    begin_time_us: _Count
    base: tuple[BaseFile, ...] = ()
    format: Annotated[str, msgspec.Meta(pattern=f"^{_FORMAT}$")] = _FORMAT
    version: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1


def next_epoch(
    parent: Epoch | None, random_hex: str, cause: EpochCause, now_us: int, *, newest: int = 0
) -> Epoch:
    """Returns the epoch that follows, without its base. It has not begun before `begin_epoch`.

    Args:
        parent: the epoch that the store continues; None: the store had no journal.
        random_hex: see `tarn.journal.names.epoch_folder`.
        cause: how it begins.
        now_us: the time.
        newest: number of the newest epoch of the bucket, if it is not the parent: a restore goes back behind it.
    """
    number = max(parent.number if parent else 0, newest) + 1
    folder = epoch_folder(number, random_hex)
    return Epoch(number, parent.number if parent else 0, folder, cause, now_us)


async def begin_epoch(blocks: BlockStore, namespace: str, epoch: Epoch) -> Epoch:
    """Begins an epoch. All files of its base must have been written. May be repeated if the answer was lost.

    Returns:
        What has begun: this one, or that of another attempt of the same store, which came before.

    Raises:
        TarnError: FAILED_PRECONDITION, PRECONDITION_FAILED: another store has begun an epoch of this number.
            EXHAUSTED: the base has too many files.
    """
    body = msgspec.json.encode(epoch, order="deterministic")
    if len(body) > _EPOCH_BYTES_MAX:
        text = f"epoch {epoch.number} of the journal of {namespace} has {len(epoch.base)} base files: too many"
        raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
    key = BlockKey(namespace, epoch_path(epoch.number))
    try:
        await blocks.put(key, body)
    except BlockExistsError as error:
        other = await read_epoch(blocks, namespace, epoch.number)
        if epoch_store(other.folder) != epoch_store(epoch.folder):
            raise _taken(namespace, epoch, other) from error
        return other
    return epoch


async def newest_epoch(blocks: ReadBlocks, namespace: str) -> Epoch | None:
    """Returns the newest epoch of a namespace; None: the journal was never on there.

    Raises:
        TarnError: CORRUPT: its file cannot be read. An older epoch is no substitute.
    """
    newest = 0
    async for info in blocks_below(blocks, namespace, EPOCHS):
        newest = max(newest, epoch_number(info.path) or 0)
    return await read_epoch(blocks, namespace, newest) if newest else None


async def require_newest(blocks: ReadBlocks, namespace: str, epoch: Epoch) -> None:
    """Does nothing if an epoch is the newest one.

    Raises:
        TarnError: FAILED_PRECONDITION, PRECONDITION_FAILED: another one is, or it has not begun.
    """
    newest = await newest_epoch(blocks, namespace)
    if newest is None or (newest.number, newest.folder) != (epoch.number, epoch.folder):
        raise _taken(namespace, epoch, newest)


async def read_epoch(blocks: ReadBlocks, namespace: str, number: int) -> Epoch:
    """Returns the epoch of a number.

    Raises:
        TarnError: NOT_FOUND: there is none. CORRUPT: its file cannot be read, or is not of this number.
    """
    key = BlockKey(namespace, epoch_path(number))
    return decode_epoch(number, await read_whole(blocks, key, _EPOCH_BYTES_MAX))


def decode_epoch(number: int, body: bytes) -> Epoch:
    """Returns the epoch that a file begins.

    Raises:
        TarnError: CORRUPT: it cannot be read, or is not of this number.
    """
    path = epoch_path(number)
    try:
        epoch = msgspec.json.decode(body, type=Epoch)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise corrupt_error(path, str(error)) from error
    if epoch.number != number or not epoch.folder.startswith(f"{number:010d}-"):
        raise corrupt_error(path, f"it is of epoch {epoch.number}, in folder {epoch.folder}")
    if epoch.parent >= number:
        raise corrupt_error(path, f"its parent is epoch {epoch.parent}")
    return epoch


def _taken(namespace: str, ours: Epoch, newest: Epoch | None) -> TarnError:
    found = "none" if newest is None else f"{newest.folder}, begun by {newest.cause.value}"
    text = (
        f"the journal of {namespace} has the newest epoch {found}, and this store has {ours.folder}: another store "
        "continues this bucket. Stop one of them (docs/operate/disaster.md); then repeat a rebuild that was refused so"
    )
    return TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text, path=EPOCHS)
