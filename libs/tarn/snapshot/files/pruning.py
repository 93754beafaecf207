"""Removes old backups, and the chunks that no snapshot needs any more."""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.clock import Clock, IdSource
from tarn.snapshot.files.content import CONTENT, content_file
from tarn.snapshot.files.manifest import Scope, manifest_file, snapshot_folder
from tarn.snapshot.files.marks import begin_prune, check_time, end_prune
from tarn.snapshot.files.stored import open_snapshot, snapshot_ids
from tarn.snapshot.files.target import Target

__all__ = ["Pruned", "prune"]

_BATCH = 500


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of a prune.

    Attributes:
        kept: ids of the backups that are left, oldest first.
        removed: ids of the backups that were removed, oldest first.
        chunks: number of files of chunks and indexes that were removed.
    """

    kept: tuple[str, ...]
    removed: tuple[str, ...]
    chunks: int


async def prune(target: Target, keep: int, clock: Clock, ids: IdSource) -> Pruned:
    """Removes all backups but the newest ones, then all chunks that neither these nor a dump needs.

    A backup loses its manifest first, so an interrupted prune leaves no half of a backup; the next one goes on.

    Args:
        target: where the backups are.
        keep: number of backups to keep, at least 1.
        clock: tells the time.
        ids: makes the name of the mark.

    Raises:
        TarnError: CONFLICT: a snapshot is being made. CORRUPT: one that would be kept is damaged, so the chunks that
            it needs are not known: nothing was removed. DEADLINE. Also the target's errors.
    """
    begin_us = clock.now_us()
    mark = await begin_prune(target, ids.uuid7().hex(), begin_us)
    try:
        known = await snapshot_ids(target, Scope.INSTALLATION)
        kept, old = known[-keep:], known[:-keep]
        needed: set[str] = set()
        for scope in Scope:
            chosen = kept if scope is Scope.INSTALLATION else await snapshot_ids(target, scope)
            for snapshot_id in chosen:
                found = await open_snapshot(target, scope, snapshot_id)
                needed.update(found.manifest.index, (line.digest for line in found.lines))
        check_time(begin_us, clock.now_us(), "the prune")
        await target.delete([manifest_file(Scope.INSTALLATION, each) for each in old])
        folders = {snapshot_folder(Scope.INSTALLATION, each) for each in kept}
        files = [name async for name in target.files(Scope.INSTALLATION.value)]
        await target.delete([name for name in files if name.rpartition("/")[0] not in folders])
        used = {content_file(digest) for digest in needed}
        unused = [name async for name in target.files(CONTENT) if name not in used]
        for at in range(0, len(unused), _BATCH):
            check_time(begin_us, clock.now_us(), "the prune")
            await target.delete(unused[at : at + _BATCH])
    finally:
        await end_prune(target, mark)
    return Pruned(tuple(kept), tuple(old), len(unused))
