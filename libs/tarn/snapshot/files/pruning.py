"""Removes old backups, and the chunks that no backup needs any more."""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.clock import Clock, IdSource
from tarn.snapshot.files.chunks import chunk_file
from tarn.snapshot.files.manifest import manifest_file
from tarn.snapshot.files.marks import begin_prune, check_time, end_prune
from tarn.snapshot.files.stored import backup_ids, open_backup
from tarn.snapshot.files.target import Target

__all__ = ["Pruned", "prune"]

_BATCH = 500


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of a prune.

    Attributes:
        kept: ids of the backups that are left, oldest first.
        removed: ids of the backups that were removed, oldest first.
        chunks: number of chunks that were removed.
    """

    kept: tuple[str, ...]
    removed: tuple[str, ...]
    chunks: int


async def prune(target: Target, keep: int, clock: Clock, ids: IdSource) -> Pruned:
    """Removes all backups but the newest ones, then all chunks that these do not need.

    A backup loses its manifest first, so an interrupted prune leaves no half of a backup; the next one goes on.

    Args:
        target: where the backups are.
        keep: number of backups to keep, at least 1.
        clock: tells the time.
        ids: makes the name of the mark.

    Raises:
        TarnError: CONFLICT: a backup is being made. CORRUPT: a backup that would be kept is damaged, so the chunks that
            it needs are not known: nothing was removed. DEADLINE. Also the target's errors.
    """
    begin_us = clock.now_us()
    mark = await begin_prune(target, ids.uuid7().hex(), begin_us)
    try:
        known = await backup_ids(target)
        kept, old = known[-keep:], known[:-keep]
        needed: set[str] = set()
        for backup_id in kept:
            needed |= {line.digest for line in (await open_backup(target, backup_id)).lines}
        check_time(begin_us, clock.now_us(), "the prune")
        await target.delete([manifest_file(backup_id) for backup_id in old])
        folders = {f"backups/{backup_id}" for backup_id in kept}
        left = [
            name async for name in target.files("backups") if name.rpartition("/")[0] not in folders
        ]
        await target.delete(left)
        files = {chunk_file(digest) for digest in needed}
        unused = [name async for name in target.files("chunks") if name not in files]
        for at in range(0, len(unused), _BATCH):
            check_time(begin_us, clock.now_us(), "the prune")
            await target.delete(unused[at : at + _BATCH])
    finally:
        await end_prune(target, mark)
    return Pruned(tuple(kept), tuple(old), len(unused))
