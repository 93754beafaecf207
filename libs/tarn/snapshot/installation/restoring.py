"""Fills an empty store from a backup.

The store is closed from before the first row until the end (`tarn.kv.fence`), so no Tarn starts on half of an
installation. An interrupted restore is started again and skips the rows that have arrived. Rows are written as new
ones, so every later write wins over them whatever the clocks say (docs/design/timestamps.md).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from tarn.core.clock import IdSource
from tarn.core.ids import RepositoryId
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import ListingKv
from tarn.snapshot.files.stored import StoredSnapshot
from tarn.snapshot.files.work import TransferOptions
from tarn.snapshot.installation.holding import hold_until
from tarn.snapshot.store import OpenStore, Transferred, load

__all__ = ["restore"]

_HOLD_US: Final = 7 * 86_400_000_000


async def restore(
    backup: StoredSnapshot,
    target: OpenStore,
    ids: IdSource,
    options: TransferOptions,
    *,
    before_opening: Callable[[ListingKv], Awaitable[None]] | None = None,
) -> Transferred:
    """Fills an empty store, compares all of it by digests, holds collections for seven days, and opens it.

    Args:
        backup: the rows.
        target: the store.
        ids: makes the id of the attempt.
        options: see `TransferOptions`.
        before_opening: as in `tarn.snapshot.store.load`; called last.

    Raises:
        TarnError: see `tarn.snapshot.store.load`.
    """
    manifest = backup.manifest
    keys = InstallationKeys(manifest.installation_id)

    async def hold(kv: ListingKv) -> None:
        until_us = options.clock.now_us() + _HOLD_US
        for each in manifest.repositories:
            of_repository = keys.of_repository(RepositoryId(each.repository_id), each.instance_uid)
            await hold_until(kv, of_repository, until_us)
        if before_opening is not None:
            await before_opening(kv)

    return await load(backup, target, ids, options, before_opening=hold)
