"""Manifests of past days: the files of a day with their SHA-256. They show files that were lost at the end."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from tarn.block.paging import blocks_below
from tarn.block.port import BlockExistsError, BlockKey, BlockStore, ReadBlocks, read_whole
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.names import FOLDER, corrupt_error, manifest_path, pass_name

__all__ = ["DayFile", "DayManifest", "decode_manifest", "read_manifest", "write_manifest"]

_FORMAT: Final = "tarn journal day"
_BYTES_MAX: Final = 16 << 20


class DayFile(msgspec.Struct, frozen=True):
    """A file of a day."""

    holder: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    number: Annotated[int, msgspec.Meta(ge=1, le=9_999_999_999)]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class DayManifest(msgspec.Struct, frozen=True):
    """The files of a day, sorted by holder and number. A file that came later is not in it, and counts nevertheless."""

    day: Annotated[str, msgspec.Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    files: tuple[DayFile, ...] = ()
    format: Annotated[str, msgspec.Meta(pattern=f"^{_FORMAT}$")] = _FORMAT
    version: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1


async def write_manifest(blocks: BlockStore, namespace: str, folder: str, day: str) -> DayManifest:
    """Writes the manifest of a past day, and returns it; if there is one already, returns that.

    Args:
        blocks: the store.
        namespace: of the journal.
        folder: of the epoch.
        day: `yyyy-mm-dd`, which has ended.

    Raises:
        TarnError: EXHAUSTED: the day has too many files.
    """
    found = [
        DayFile(name.holder, name.number, name.sha256)
        async for info in blocks_below(blocks, namespace, f"{FOLDER}{folder}/{day}/")
        if (name := pass_name(folder, info.path))
    ]
    manifest = DayManifest(day, tuple(sorted(found, key=lambda each: (each.holder, each.number))))
    text = msgspec.json.encode(manifest, order="deterministic")
    if len(text) > _BYTES_MAX:
        message = f"day {day} of the journal of {namespace} has {len(found)} files: too many for a manifest"
        raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, message)
    try:
        await blocks.put(BlockKey(namespace, manifest_path(folder, day)), text)
    except BlockExistsError:
        return await read_manifest(blocks, namespace, folder, day)
    return manifest


async def read_manifest(blocks: ReadBlocks, namespace: str, folder: str, day: str) -> DayManifest:
    """Returns the manifest of a day.

    Raises:
        TarnError: CORRUPT: it cannot be read. BLOCK_NOT_FOUND: there is none.
    """
    key = BlockKey(namespace, manifest_path(folder, day))
    return decode_manifest(folder, day, await read_whole(blocks, key, _BYTES_MAX))


def decode_manifest(folder: str, day: str, body: bytes) -> DayManifest:
    """Returns the manifest that a file holds.

    Raises:
        TarnError: CORRUPT: it cannot be read, or is of another day.
    """
    path = manifest_path(folder, day)
    try:
        manifest = msgspec.json.decode(body, type=DayManifest)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise corrupt_error(path, str(error)) from error
    if manifest.day != day:
        raise corrupt_error(path, f"it is of {manifest.day}")
    return manifest
