"""Fills an empty store from a backup.

The store is closed from before the first row until the end (`tarn.kv.fence`), so no Tarn starts on half of an
installation. An interrupted restore is started again and skips the rows that have arrived. Rows are written as new
ones, so every later write wins over them whatever the clocks say (docs/design/timestamps.md).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import pyarrow as pa

from tarn.core.clock import IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RepositoryId
from tarn.core.levels import StoreLevel, unsupported
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import ListingKv, Partition, row_batch
from tarn.snapshot.files.ranges import Chunk, Range
from tarn.snapshot.files.stored import StoredBackup
from tarn.snapshot.installation.holding import hold_until
from tarn.snapshot.store import OpenStore, TransferOptions, Transferred, Unit, fill

__all__ = ["BackupSource", "restore"]

_HOLD_US: Final = 7 * 86_400_000_000
_UNIT_CHUNKS: Final = 64


class BackupSource:
    """A backup as the source of a transfer (`tarn.snapshot.store.Source`)."""

    def __init__(self, backup: StoredBackup) -> None:
        self._backup = backup

    async def look(self, concurrency: int) -> tuple[dict[str, Partition], Sequence[Unit]]:
        """See `Source`."""
        del concurrency
        lines = self._backup.lines
        partitions = {line.partition.name: line.partition for line in lines}
        units = [
            _BackupUnit(self._backup, lines[at : at + _UNIT_CHUNKS])
            for at in range(0, len(lines), _UNIT_CHUNKS)
        ]
        return partitions, units


class _BackupUnit:
    def __init__(self, backup: StoredBackup, lines: Sequence[Range]) -> None:
        self._backup = backup
        self._lines = lines

    async def chunks(self) -> AsyncIterator[Chunk]:
        for line in self._lines:
            yield Chunk(line, lambda line=line: self._load(line))  # type: ignore[misc]  # bound at once

    async def _load(self, line: Range) -> Sequence[pa.RecordBatch]:
        rows = await self._backup.rows(line)
        return [row_batch([key for key, _ in rows], [value for _, value in rows])]


async def restore(
    backup: StoredBackup, target: OpenStore, ids: IdSource, options: TransferOptions
) -> Transferred:
    """Fills an empty store, compares all of it by digests, holds collections for seven days, and opens it.

    Raises:
        TarnError: FAILED_PRECONDITION: the backup is of another installation, or of a feature level that this release
            does not support (FEATURE_LEVEL), or another transfer has closed the target. CONFLICT: the target is not
            empty, or does not keep the rows that are written. CORRUPT: the backup is damaged. Also the errors of the
            store and of the target of backups. After an error in between the store stays closed.
    """
    manifest = backup.manifest
    if manifest.installation_id != target.installation_id:
        text = (
            f"the backup is of installation {manifest.installation_id!r}, not {target.installation_id!r}: set "
            "installation.id in the configuration"
        )
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)
    level = None if manifest.level is None else StoreLevel(manifest.level, manifest.level)
    if level is not None and (text := unsupported(level, manifest.installation_id)):
        text = f"the backup {manifest.backup_id} cannot be restored by this release: {text}"
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.FEATURE_LEVEL, text)
    keys = InstallationKeys(manifest.installation_id)

    async def hold(kv: ListingKv) -> None:
        until_us = options.clock.now_us() + _HOLD_US
        for each in manifest.repositories:
            of_repository = keys.of_repository(RepositoryId(each.repository_id), each.instance_uid)
            await hold_until(kv, of_repository, until_us)

    return await fill(
        target,
        BackupSource(backup),
        manifest.backup_id,
        f"backup {manifest.backup_id}",
        ids,
        options,
        before_opening=hold,
        level=level,
    )
