"""Finished backups of a target: lists them, opens them, and checks their files."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tarn.aio.parallel import for_each
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import Row
from tarn.snapshot.files.chunks import FILE_BYTES_MAX, chunk_file, corrupt_error, unpack_chunk
from tarn.snapshot.files.manifest import (
    BACKUP_ID,
    INDEX_BYTES_MAX,
    MANIFEST_BYTES_MAX,
    Manifest,
    decode_index,
    manifest_file,
)
from tarn.snapshot.files.ranges import Range
from tarn.snapshot.files.target import Target
from tarn.snapshot.files.work import Report
from tarn.snapshot.store import TransferProgress

__all__ = ["StoredBackup", "backup_ids", "check_files", "open_backup"]


@dataclass(frozen=True, slots=True)
class StoredBackup:
    """A finished backup, whose manifest and index are intact.

    Attributes:
        target: where it is.
        manifest: its manifest.
        lines: its index.
    """

    target: Target
    manifest: Manifest
    lines: tuple[Range, ...]

    async def rows(self, line: Range) -> list[Row]:
        """Returns the rows of a chunk, by key.

        Raises:
            TarnError: CORRUPT: the chunk is missing or damaged. Also the target's errors.
        """
        name = chunk_file(line.digest)
        try:
            data = await self.target.read(name, FILE_BYTES_MAX)
        except TarnError as error:
            if error.kind is not Kind.NOT_FOUND:
                raise
            raise corrupt_error(f"chunk {name} is missing in {self.target.about}") from error
        return await asyncio.to_thread(unpack_chunk, data, line)


async def backup_ids(target: Target) -> list[str]:
    """The ids of all finished backups, oldest first."""
    found = []
    async for name in target.files("backups"):
        folder, _, last = name.rpartition("/")
        backup_id = folder.removeprefix("backups/")
        if last == "manifest.json" and BACKUP_ID.fullmatch(backup_id):
            found.append(backup_id)
    return sorted(found)


async def read_manifest(target: Target, backup_id: str) -> Manifest:
    """Reads the manifest of a backup.

    Raises:
        TarnError: NOT_FOUND: there is no finished backup of this id. CORRUPT. FAILED_PRECONDITION: it has another
            format version. Also the target's errors.
    """
    try:
        text = await target.read(manifest_file(backup_id), MANIFEST_BYTES_MAX)
    except TarnError as error:
        if error.kind is not Kind.NOT_FOUND:
            raise
        about = f"there is no finished backup {backup_id} in {target.about}; `tarn backup list` shows all"
        raise TarnError(Kind.NOT_FOUND, Reason.INVALID_ARGUMENT, about) from error
    manifest = Manifest.decode(text)
    if manifest.backup_id != backup_id:
        raise corrupt_error(f"{manifest_file(backup_id)} belongs to backup {manifest.backup_id}")
    return manifest


async def manifests(target: Target) -> AsyncIterator[Manifest]:
    """Yields the manifests of all finished backups, oldest first."""
    for backup_id in await backup_ids(target):
        yield await read_manifest(target, backup_id)


async def open_backup(target: Target, backup_id: str = "") -> StoredBackup:
    """Opens a backup; checks its index now, and each chunk when it is read.

    Args:
        target: where it is.
        backup_id: empty: the newest one.

    Raises:
        TarnError: NOT_FOUND: there is no such backup. CORRUPT: it is damaged. FAILED_PRECONDITION: it has another
            format version. Also the target's errors.
    """
    if not backup_id:
        known = await backup_ids(target)
        if not known:
            text = f"there is no finished backup in {target.about}; `tarn backup create` makes one"
            raise TarnError(Kind.NOT_FOUND, Reason.INVALID_ARGUMENT, text)
        backup_id = known[-1]
    manifest = await read_manifest(target, backup_id)
    lines: list[Range] = []
    for file in manifest.index:
        try:
            data = await target.read(file.name, INDEX_BYTES_MAX)
        except TarnError as error:
            if error.kind is not Kind.NOT_FOUND:
                raise
            raise corrupt_error(f"{file.name} is missing in {target.about}") from error
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise corrupt_error(f"{file.name} was changed after the backup; use another backup")
        lines += await asyncio.to_thread(decode_index, data, file.name)
        if len(lines) > manifest.chunks:
            break  # reported below
    if len(lines) != manifest.chunks or sum(line.rows for line in lines) != manifest.rows:
        raise corrupt_error(
            f"the index of backup {backup_id} does not agree with its manifest; use another backup"
        )
    return StoredBackup(target, manifest, tuple(lines))


async def check_files(
    backup: StoredBackup, concurrency: int, report: Report = lambda _progress: None
) -> list[str]:
    """Reads all chunks of a backup and checks them; returns a line for each damaged chunk.

    Raises:
        TarnError: the target does not answer.
    """
    progress = TransferProgress("files", units_total=len(backup.lines))
    damaged: list[str] = []

    async def check(line: Range) -> None:
        try:
            await backup.rows(line)
        except TarnError as error:
            if error.kind is not Kind.CORRUPT:
                raise
            damaged.append(error.message)
        progress.units += 1
        progress.add(line.rows, line.size_bytes, changed=False)
        report(progress)

    await for_each(backup.lines, check, concurrency)
    return sorted(damaged)
