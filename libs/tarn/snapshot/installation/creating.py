"""Makes a backup: marks it as begun, holds collections, reads the installation, writes index and manifest.

An interrupted backup has no manifest. It is made again from the beginning; the chunks that it wrote are found and not
written again.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from tarn.core.clock import Clock, IdSource
from tarn.core.levels import LEVEL_FIRST
from tarn.kv.fence import read_level
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.port import ListingKv
from tarn.kv.records import Repository, decode_bucket
from tarn.snapshot.files.manifest import (
    INDEX_LINES_MAX,
    IndexFile,
    Manifest,
    encode_index,
    index_file,
    manifest_file,
)
from tarn.snapshot.files.marks import begin_backup, check_time, end_backup
from tarn.snapshot.files.target import Target
from tarn.snapshot.files.writing import BackupProgress, ChunkWriter, Report
from tarn.snapshot.installation.holding import holding
from tarn.snapshot.installation.installation import (
    SavedInstallation,
    save_installation,
    served_repositories,
)

__all__ = ["create"]


async def create(
    kv: ListingKv,
    installation_id: str,
    target: Target,
    clock: Clock,
    ids: IdSource,
    report: Report = lambda _progress: None,
) -> Manifest:
    """Makes a backup of an installation, which may be in use.

    Raises:
        TarnError: CONFLICT: old backups are being pruned. UNIMPLEMENTED: the installation has data of a kind that this
            version does not know. UNAVAILABLE: a branch changes faster than it can be read. DEADLINE: it took longer
            than a day. CORRUPT: a record cannot be read. Also the errors of the store and of the target.
        OSError: the target cannot be written.
    """
    begin_us = clock.now_us()
    backup_id = _id_of(begin_us, ids)
    await begin_backup(target, backup_id, begin_us)
    try:
        progress = BackupProgress()
        writer = ChunkWriter(kv, target, progress, report)
        async with holding(kv, await _repositories(kv, installation_id), clock):
            saved = await save_installation(writer, kv, installation_id, begin_us)
        # Read last: the level only rises, so no saved row was written at a higher one.
        level = await read_level(kv, installation_id)
        index = await _write_index(target, backup_id, saved)
        end_us = clock.now_us()
        check_time(begin_us, end_us, "the backup")
        manifest = Manifest(
            backup_id,
            installation_id,
            begin_us,
            end_us,
            saved.encryption_key_ids,
            tuple(saved.repositories),
            chunks=len(saved.lines),
            new_chunks=progress.new_chunks,
            rows=sum(line.rows for line in saved.lines),
            size_bytes=sum(line.size_bytes for line in saved.lines),
            new_bytes=progress.new_bytes,
            index=tuple(index),
            level=None if level.level == LEVEL_FIRST else level.level,
        )
        await target.put(manifest_file(backup_id), manifest.encode())
    finally:
        await end_backup(target, backup_id)
    return manifest


def _id_of(begin_us: int, ids: IdSource) -> str:
    time = datetime.fromtimestamp(begin_us // 1_000_000, UTC)
    return f"{time:%Y%m%dT%H%M%SZ}-{begin_us % 1_000_000:06d}{ids.uuid7().hex()[-4:]}"


async def _repositories(kv: ListingKv, installation_id: str) -> list[RepositoryKeys]:
    keys = InstallationKeys(installation_id)
    names = await served_repositories(kv, keys)
    found = await kv.get_many(keys.graveler, [keys.repository(name) for name in names])
    records = [decode_bucket(each.value) for each in found if each is not None]
    return [
        keys.of_repository(each.repository_id, each.instance_uid)
        for each in records
        if isinstance(each, Repository)
    ]


async def _write_index(target: Target, backup_id: str, saved: SavedInstallation) -> list[IndexFile]:
    files: list[IndexFile] = []
    for at in range(0, len(saved.lines), INDEX_LINES_MAX):
        data = encode_index(saved.lines[at : at + INDEX_LINES_MAX])
        name = index_file(backup_id, len(files) + 1)
        await target.put(name, data)
        files.append(IndexFile(name, hashlib.sha256(data).hexdigest()))
    return files
