"""Whether a backup can be restored to an installation without lost or inconsistent data: it is tried."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tarn.block.port import ReadBlocks
from tarn.core.clock import Clock, IdSource
from tarn.fsck.check import check
from tarn.fsck.finding import Code, Finding, Severity
from tarn.fsck.progress import CheckProgress
from tarn.fsck.session import FsckOptions
from tarn.fsck.state import open_state
from tarn.kv.embedded import open_embedded
from tarn.snapshot.files.stored import StoredSnapshot
from tarn.snapshot.installation.restoring import restore
from tarn.snapshot.store import OpenStore, TransferOptions

__all__ = ["check_backup"]


async def check_backup(
    backup: StoredSnapshot,
    blocks: ReadBlocks,
    ids: IdSource,
    clock: Clock,
    transfer: TransferOptions,
    progress: CheckProgress,
) -> list[Finding]:
    """Restores a backup into a temporary store, and checks that store beside the blocks as `tarn fsck` does.

    Args:
        backup: what to restore.
        blocks: the block store of its installation.
        ids: makes ids.
        clock: time.
        transfer: options of the restore.
        progress: of the check; updated.

    Returns:
        The findings of lost or inconsistent data. Orphans, and notes of commits that are not there, do not count:
        the bucket holds data that is newer than the backup.

    Raises:
        TarnError: the backup cannot be read, or the blocks cannot.
    """
    installation_id = backup.manifest.installation_id
    with tempfile.TemporaryDirectory(prefix="tarn-backup-") as name:
        folder = Path(name)
        kv = await open_embedded(folder / "tarn.db", durability="os", alone=True)
        try:
            place = OpenStore(kv, installation_id, f"embedded://{folder}", is_shared=False)
            await restore(backup, place, ids, transfer)
            state = open_state(folder / "fsck", "backup", clock.now_us())
            try:
                with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="fsck") as executor:
                    await check(
                        installation_id=installation_id,
                        kv=kv,
                        blocks=blocks,
                        state=state,
                        options=FsckOptions(),
                        clock=clock,
                        progress=progress,
                        executor=executor,
                    )
                return [
                    each
                    for each in state.findings()
                    if each.code.severity is not Severity.ORPHAN
                    and each.code is not Code.NOTE_INVALID
                ]
            finally:
                state.close()
        finally:
            await kv.close()
