"""Makes a backup: marks it as begun, holds collections, reads the installation, writes index and manifest.

An interrupted backup has no manifest. It is made again from the beginning; the chunks that it wrote are found and not
written again.
"""

from __future__ import annotations

from tarn.core.clock import IdSource
from tarn.kv.fence import read_level
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.port import ListingKv
from tarn.kv.records import Repository, decode_bucket
from tarn.snapshot.files.manifest import Manifest, Scope, new_snapshot_id
from tarn.snapshot.files.marks import begin_snapshot, check_time, end_snapshot
from tarn.snapshot.files.target import Target
from tarn.snapshot.files.work import TransferOptions
from tarn.snapshot.files.writing import KvWriter, finish
from tarn.snapshot.installation.holding import holding
from tarn.snapshot.installation.installation import save_installation, served_repositories

__all__ = ["create"]


async def create(
    kv: ListingKv, installation_id: str, target: Target, ids: IdSource, options: TransferOptions
) -> Manifest:
    """Makes a backup of an installation, which may be in use.

    Raises:
        TarnError: CONFLICT: old backups are being pruned. UNIMPLEMENTED: the installation has data of a kind that this
            version does not know. UNAVAILABLE: a branch changes faster than it can be read. DEADLINE: it took longer
            than a day. CORRUPT: a record cannot be read. Also the errors of the store and of the target.
        OSError: the target cannot be written.
    """
    clock = options.clock
    begin_us = clock.now_us()
    backup_id = new_snapshot_id(begin_us, ids)
    await begin_snapshot(target, Scope.INSTALLATION, backup_id, begin_us)
    try:
        writer = KvWriter(kv, target, options)
        async with holding(kv, await _repositories(kv, installation_id), clock):
            saved = await save_installation(writer, kv, installation_id, begin_us)
        # Read last: the level only rises, so no saved row was written at a higher one.
        level = await read_level(kv, installation_id)
        end_us = clock.now_us()
        check_time(begin_us, end_us, "the backup")
        return await finish(
            writer,
            Scope.INSTALLATION,
            backup_id,
            saved.lines,
            installation_id=installation_id,
            begin_time_us=begin_us,
            end_time_us=end_us,
            level=level.level,
            encryption_key_ids=saved.encryption_key_ids,
            repositories=tuple(saved.repositories),
        )
    finally:
        await end_snapshot(target, Scope.INSTALLATION, backup_id)


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
