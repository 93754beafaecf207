"""Bucket views in backups: they are saved and restored, and a name has one holder in a backup, too."""

from __future__ import annotations

from backup_lab import BackupLab
from lake import create_repository

from tarn.core.ids import RepositoryId
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import Partition

SALES, POND = RepositoryId("sales"), RepositoryId("pond")
GRAVELER = InstallationKeys("test").graveler


async def test_a_view_comes_back(lab: BackupLab) -> None:
    view = await lab.lake.graveler.bucket_views.create(SALES, lab.lake.repository, "main")
    await lab.back_up()
    kv = await lab.restored()
    assert await lab.fsck(kv) == []
    async with lab.served(kv) as lake:
        assert await lake.graveler.bucket_views.get(SALES) == view
        listed = [each async for each, _ in lake.graveler.iterators.repositories()]
        assert listed == ["lake"]


async def test_a_name_that_becomes_a_view_beside_a_backup_is_saved_once(lab: BackupLab) -> None:
    graveler = lab.lake.graveler
    pond = await create_repository(graveler, "pond")
    is_done = False

    async def taken(partition: Partition, start: bytes) -> None:
        """After the records of repositories were copied, and before the rest of their partition is."""
        nonlocal is_done
        if partition == GRAVELER and start == b"" and not is_done:
            is_done = True
            await graveler.repositories.mark_deleted(pond)
            await graveler.repositories.remove(pond)
            await graveler.bucket_views.create(POND, lab.lake.repository, "main")

    await lab.back_up(taken)
    assert is_done
    kv = await lab.restored()
    async with lab.served(kv, "pond") as lake:
        assert lake.repository == pond
