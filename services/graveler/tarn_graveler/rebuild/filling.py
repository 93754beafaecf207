"""Fills a lost store: all is rebuilt into a temporary store first, and then copied, checked and opened.

So a rebuild that dies before the copy has written nothing but listings that no record names. From the copy on, the
target is closed (`tarn.kv.fence`) until all of it was compared and each journal has a new epoch in the bucket; the same
command again continues. An epoch that a dead attempt began is not read (`find_source`).
"""

from __future__ import annotations

from typing import Final

from tarn.core.clock import IdSource
from tarn.core.levels import LEVEL_MAX, StoreLevel
from tarn.kv.fence import read_fence
from tarn.kv.port import ListingKv
from tarn.snapshot.store import (
    OpenStore,
    StoreSource,
    TransferOptions,
    TransferProgress,
    check_empty,
    fill,
)
from tarn_graveler.journal.epochs import Epochs
from tarn_graveler.rebuild.installation import RebuiltStore, rebuild_installation
from tarn_graveler.rebuild.listings import require_listings
from tarn_graveler.rebuild.report import RebuildReport
from tarn_graveler.rebuild.repository import Rebuilder

__all__ = ["fill_installation"]

_TRANSFER: Final = "rebuild"
"""The id of every rebuild: it always makes the same, the state of the journals."""


async def fill_installation(
    tools: Rebuilder,
    made: ListingKv,
    target: OpenStore,
    ids: IdSource,
    options: TransferOptions,
    journal_namespace: str,
) -> RebuildReport:
    """Rebuilds an installation into an empty store, or continues an attempt that died.

    Args:
        tools: writes to `made`.
        made: an empty temporary store.
        target: the store; closed while it is filled.
        ids: makes the names of epochs.
        options: of the copy.
        journal_namespace: see `rebuild_installation`.

    Raises:
        TarnError: as `rebuild_installation`, before anything was written. As `tarn.snapshot.store.fill`.
            FAILED_PRECONDITION: another store continues the journal meanwhile, or has written files or deleted
            listings; the target stays closed.
    """
    fence, _ = await read_fence(target.kv, target.installation_id)
    if fence is None:  # before the work; `fill` looks again
        await check_empty(target)
    rebuilt: RebuiltStore = await rebuild_installation(tools, journal_namespace)

    async def begin_epochs(kv: ListingKv) -> None:
        epochs = Epochs(kv, tools.keys, tools.blocks, options.clock, ids)
        for place, source in rebuilt.places:
            await epochs.begin(place, source)
        await require_listings(tools.blocks, rebuilt.blocks, options.clock, show)

    def show(what: str, passed: int, total: int) -> None:
        options.report(TransferProgress(what, passed, total))

    done = await fill(
        StoreSource(made, target.installation_id),
        target,
        ids,
        options,
        transfer_id=_TRANSFER,
        about=f"rebuild from the journal in {journal_namespace}",
        level=StoreLevel(LEVEL_MAX, LEVEL_MAX),
        before_opening=begin_epochs,
    )
    rebuilt.report.rows = done.rows
    return rebuilt.report
