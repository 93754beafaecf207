"""Whole transfers: the order in which stores are closed and opened, so that no acknowledged write is left
behind and no incomplete installation is ever used. `docs/operate/migrate.md` has the argument.

    dump     source held → files → source open again (or closed for good)
    load     target empty → loading → rows → open
    migrate  target empty → loading, source held → rows → source moved → target open

Each can be interrupted at any point and started again: the fences record which transfer it was, and it skips the ranges
that have been copied already.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import StoreLevel
from tarn.kv.agreement import forget_settings, read_settings
from tarn.kv.fence import (
    QUIET_SECONDS,
    Fence,
    FencedKv,
    FenceState,
    closed_by,
    read_fence,
    read_level,
    write_fence,
)
from tarn.kv.journal_records import epoch_rows, note_epochs
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import ListingKv
from tarn.snapshot.files.manifest import Manifest, Scope, new_snapshot_id
from tarn.snapshot.files.marks import begin_snapshot, check_time, end_snapshot, unfinished
from tarn.snapshot.files.stored import StoredSnapshot, require_same
from tarn.snapshot.files.target import Target
from tarn.snapshot.files.work import TransferOptions
from tarn.snapshot.files.writing import KvWriter, finish
from tarn.snapshot.store.copying import copy_into
from tarn.snapshot.store.dumping import dump_store
from tarn.snapshot.store.layout import is_empty
from tarn.snapshot.store.renaming import NewNames, RenamedSource
from tarn.snapshot.store.sources import SnapshotSource, Source, StoreSource

__all__ = [
    "OpenStore",
    "Transferred",
    "check_empty",
    "closed",
    "dump",
    "fill",
    "forget_agreed",
    "load",
    "migrate",
    "reopen",
]


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store that a transfer has open.

    Attributes:
        kv: the store.
        installation_id: the installation to transfer.
        about: the store's location, for people; without secrets.
        is_shared: other processes, which this one cannot see, may have the store open and answer on leases.
    """

    kv: ListingKv
    installation_id: str
    about: str
    is_shared: bool


@dataclass(frozen=True, slots=True)
class Transferred:
    """The result of a transfer.

    Attributes:
        transfer_id: id of the transfer.
        ranges: number of ranges copied.
        rows: number of rows in them.
        size_bytes: size of these rows.
        changed: number of ranges that changed at the source during the transfer and were read again.
        strays: partitions that no record refers to; they are copied too.
    """

    transfer_id: str
    ranges: int
    rows: int
    size_bytes: int
    changed: int
    strays: tuple[str, ...] = ()


async def dump(
    source: OpenStore,
    target: Target,
    ids: IdSource,
    options: TransferOptions,
    *,
    keep_closed: bool = False,
) -> tuple[Manifest, Transferred]:
    """Dumps a store, or continues an interrupted dump: the chunks that it wrote are found and not written again.

    Args:
        source: the store to dump.
        target: where the dump is kept.
        ids: makes the id of the dump.
        options: see `TransferOptions`.
        keep_closed: leave the source closed, because the dump will be loaded into another store.

    Raises:
        TarnError: FAILED_PRECONDITION: another transfer uses the source. CONFLICT: the source keeps changing, another
            attempt took over, or backups in the target are being pruned. DEADLINE: it took longer than a day. Also the
            errors of the store and of the target. After each of these errors the source is open again.
        OSError: the target cannot be written.
    """
    clock, installation_id = options.clock, source.installation_id
    begin_us = clock.now_us()
    about = {"installation_id": installation_id}
    dump_id = await unfinished(target, Scope.STORE, about) or new_snapshot_id(begin_us, ids)
    await begin_snapshot(target, Scope.STORE, dump_id, begin_us, about)
    held = Fence(
        FenceState.HELD, dump_id, ids.uuid7().hex(), f"dump to {target.about}", clock.now_us()
    )
    level = await read_level(source.kv, installation_id)
    async with _held(source, held, options):
        behind = _behind(source, held, clock)
        writer = KvWriter(behind, target, options)
        lines, inventory, changed = await dump_store(behind, installation_id, writer, options)
        end_us = clock.now_us()
        check_time(begin_us, end_us, "the dump")
        manifest = await finish(
            writer,
            Scope.STORE,
            dump_id,
            lines,
            installation_id=installation_id,
            begin_time_us=begin_us,
            end_time_us=end_us,
            level=level.level,
        )
        if keep_closed:
            await _change(source, held, replace(held, state=FenceState.MOVED))
    # Not after an error: another attempt may have taken over, and its mark is the same file.
    await end_snapshot(target, Scope.STORE, dump_id)
    rows, size_bytes = manifest.rows, manifest.size_bytes
    return manifest, Transferred(dump_id, len(lines), rows, size_bytes, changed, inventory.strays)


async def load(
    snapshot: StoredSnapshot,
    target: OpenStore,
    ids: IdSource,
    options: TransferOptions,
    *,
    before_opening: Callable[[ListingKv], Awaitable[None]] | None = None,
) -> Transferred:
    """Fills an empty store from a snapshot of the scope STORE or INSTALLATION, or continues an interrupted attempt.

    Args:
        snapshot: the rows.
        target: the store.
        ids: makes the id of the attempt.
        options: see `TransferOptions`.
        before_opening: called with the store when all rows are there; may be called again after an interruption.

    Raises:
        TarnError: FAILED_PRECONDITION: the snapshot is of another installation, or of a feature level that this release
            does not support (FEATURE_LEVEL), or another transfer has closed the target. CONFLICT: the target is not
            empty, or does not keep the rows that are written. CORRUPT: the snapshot is damaged. Also the errors of the
            store and of the snapshot's target. After an error in between the store stays closed.
    """
    level = require_same(snapshot, target.installation_id)
    manifest = snapshot.manifest
    return await fill(
        SnapshotSource(snapshot),
        target,
        ids,
        options,
        transfer_id=manifest.snapshot_id,
        about=snapshot.about,
        level=level,
        before_opening=before_opening,
        gives_names=True,
    )


async def fill(
    source: Source,
    target: OpenStore,
    ids: IdSource,
    options: TransferOptions,
    *,
    transfer_id: str,
    about: str,
    level: StoreLevel,
    before_opening: Callable[[ListingKv], Awaitable[None]] | None = None,
    gives_names: bool = False,
) -> Transferred:
    """Fills an empty store with all rows of a source, or continues an interrupted attempt.

    Args:
        source: the rows.
        target: the store.
        ids: makes the id of the attempt.
        options: see `TransferOptions`.
        transfer_id: equal in all attempts; an unfinished transfer with another id is not continued.
        about: where the rows come from, for people.
        level: the feature level that the store gets.
        before_opening: as in `load`.
        gives_names: staging tokens get new names, because the rows are of a former state (`RenamedSource`).

    Raises:
        TarnError: as `load`, but for what concerns the snapshot.
    """
    now_us = options.clock.now_us()
    loading = Fence(FenceState.LOADING, transfer_id, ids.uuid7().hex(), about, now_us)
    loading = await _begin_loading(target, loading, options)
    if gives_names:
        source = RenamedSource(source, NewNames(loading.first_run_id))
    behind = _behind(target, loading, options.clock)
    progress, changed = await copy_into(behind, target.installation_id, source, options)
    if before_opening is not None:
        await before_opening(behind)
    await _change(target, loading, None, level)
    return Transferred(transfer_id, progress.ranges, progress.rows, progress.size_bytes, changed)


async def migrate(
    source: OpenStore, target: OpenStore, ids: IdSource, options: TransferOptions
) -> Transferred:
    """Copies an installation from one store to another and switches to it, or continues doing so.

    Raises:
        TarnError: FAILED_PRECONDITION: another transfer has closed one of the stores, or the source has
            moved already. CONFLICT: the target is not empty, or the source keeps changing. Also the stores'
            errors. Once anything was written, both stores stay closed after an error.
    """
    if source.installation_id != target.installation_id:
        text = f"{source.installation_id!r} cannot become {target.installation_id!r}: set installation.id"
        raise _refused(text)
    before, _ = await read_fence(source.kv, source.installation_id)
    there, _ = await read_fence(target.kv, target.installation_id)
    level = await read_level(source.kv, source.installation_id)
    transfer_id = _transfer_of(source, before, target, there) or ids.uuid7().hex()
    run_id, now_us = ids.uuid7().hex(), options.clock.now_us()
    about = f"migration from {source.about} to {target.about}"
    loading = Fence(FenceState.LOADING, transfer_id, run_id, about, now_us)
    held = replace(loading, state=FenceState.HELD)
    moved = replace(loading, state=FenceState.MOVED)
    loading = await _begin_loading(target, loading, options)
    if before is not None and before.state is FenceState.MOVED:
        # Interrupted after the last step of the source, which stays closed.
        held = moved = before
    else:
        await _hold(source, held, options)
    read = StoreSource(_behind(source, held, options.clock), source.installation_id)
    behind = _behind(target, loading, options.clock)
    progress, changed = await copy_into(behind, target.installation_id, read, options)
    # The target goes on where the source is: its journals follow the epochs of that, and no later ones.
    keys = InstallationKeys(source.installation_id)
    await note_epochs(behind, keys, await epoch_rows(_behind(source, held, options.clock), keys))
    # In this order: at no moment may both stores be used.
    await _change(source, held, moved)
    await _change(target, loading, None, level)
    return Transferred(
        transfer_id,
        progress.ranges,
        progress.rows,
        progress.size_bytes,
        changed,
        read.inventory.strays,
    )


async def reopen(place: OpenStore, *, force: bool = False) -> Fence | None:
    """Removes the fence of a store; returns the fence that it had.

    Args:
        place: the store.
        force: also open a store that is incomplete, or whose data has moved elsewhere.

    Raises:
        TarnError: FAILED_PRECONDITION: opening the store needs `force`. Also the store's errors.
    """
    fence, predicate = await read_fence(place.kv, place.installation_id)
    if fence is None:
        return None
    if fence.state is not FenceState.HELD and not force:
        what = (
            "its data is incomplete: continue the transfer, or empty the store"
            if fence.state is FenceState.LOADING
            else "its data has moved elsewhere, and writes to both stores cannot be merged"
        )
        raise _refused(f"{place.about} stays closed ({fence.about}): {what}; --force opens it")
    await write_fence(place.kv, place.installation_id, None, predicate)
    return fence


async def forget_agreed(
    place: OpenStore, ids: IdSource, options: TransferOptions
) -> dict[str, str]:
    """Removes the record of the settings that replicas must agree on, while the store is closed; returns the
    recorded settings. The first process that starts afterwards records its own.

    Raises:
        TarnError: FAILED_PRECONDITION: a transfer has closed the store. CORRUPT: the record cannot be read.
            Also the store's errors.
    """
    async with closed(place, "its settings are being forgotten", ids, options):
        settings = await read_settings(place.kv, place.installation_id)
        await forget_settings(place.kv, place.installation_id)
    return settings


@asynccontextmanager
async def closed(
    place: OpenStore, about: str, ids: IdSource, options: TransferOptions
) -> AsyncIterator[None]:
    """Keeps a store closed, and opens it afterwards. No process of Tarn uses it meanwhile.

    Args:
        place: the store.
        about: why, for people.
        ids: makes the id of the fence.
        options: with the clock.

    Raises:
        TarnError: FAILED_PRECONDITION: a transfer has closed the store. Also the store's errors.
    """
    run_id, now_us = ids.uuid7().hex(), options.clock.now_us()
    async with _held(place, Fence(FenceState.HELD, run_id, run_id, about, now_us), options):
        yield


@asynccontextmanager
async def _held(source: OpenStore, held: Fence, options: TransferOptions) -> AsyncIterator[None]:
    """Keeps the source closed, and opens it afterwards unless its fence was replaced meanwhile."""
    await _hold(source, held, options)
    try:
        yield
    finally:
        fence, predicate = await read_fence(source.kv, source.installation_id)
        if fence == held:
            await write_fence(source.kv, source.installation_id, None, predicate)


def _behind(place: OpenStore, fence: Fence, clock: Clock) -> ListingKv:
    """The store, usable for as long as it has the fence that we set."""
    return FencedKv(place.kv, place.installation_id, clock, fence)


async def _hold(source: OpenStore, held: Fence, options: TransferOptions) -> None:
    """Closes the source, or takes over from an earlier attempt. Then waits until all earlier leases have
    ended, so that neither a service nor that attempt still works on the store."""
    fence, predicate = await read_fence(source.kv, source.installation_id)
    if fence is not None and not _same(fence, held):
        raise _refused(closed_by(fence, source.installation_id))
    await write_fence(source.kv, source.installation_id, held, predicate)
    if source.is_shared:
        await options.clock.sleep(QUIET_SECONDS)


async def _begin_loading(target: OpenStore, loading: Fence, options: TransferOptions) -> Fence:
    """Closes an empty target, or takes over a target that an earlier attempt has closed; returns the fence."""
    fence, predicate = await read_fence(target.kv, target.installation_id)
    if fence is not None and not _same(fence, loading):
        raise _refused(closed_by(fence, target.installation_id))
    if fence is None:
        await check_empty(target)
    first_run_id = loading.run_id if fence is None else fence.first_run_id or loading.run_id
    loading = replace(loading, first_run_id=first_run_id)
    await write_fence(target.kv, target.installation_id, loading, predicate)
    if target.is_shared:
        await options.clock.sleep(QUIET_SECONDS)
    if target.is_shared and fence is None:
        try:
            await check_empty(target)  # a process may have written before the fence was set
        except TarnError:
            await _change(target, loading, None)
            raise
    return loading


async def check_empty(target: OpenStore) -> None:
    """Does nothing if a store holds no rows of its installation.

    Raises:
        TarnError: CONFLICT.
    """
    if not await is_empty(target.kv, target.installation_id):
        text = (
            f"{target.about} already holds installation {target.installation_id!r}, and only an empty store is filled; "
            "nothing was done. If nobody needs what it holds, e.g. as Tarn was started on an empty store after a loss, "
            "stop Tarn and move its folder away, or name another keyspace"
        )
        raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)


async def _change(
    place: OpenStore, expected: Fence, fence: Fence | None, level: StoreLevel | None = None
) -> None:
    """Replaces our own fence, and the level unless it is None; does nothing if that was done before.

    Raises:
        TarnError: CONFLICT: another process changed the fence meanwhile.
    """
    found, predicate = await read_fence(place.kv, place.installation_id)
    if found == fence:
        return
    if found != expected:
        text = f"another process opened or closed {place.about} during the transfer; start it again"
        raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)
    await write_fence(place.kv, place.installation_id, fence, predicate, level=level)


def _transfer_of(
    source: OpenStore, before: Fence | None, target: OpenStore, there: Fence | None
) -> str | None:
    """Returns the interrupted migration to continue; None for a new one.

    Raises:
        TarnError: FAILED_PRECONDITION: the fences belong to other transfers.
    """
    if there is not None and there.state is not FenceState.LOADING:
        raise _refused(closed_by(there, target.installation_id))
    if before is None:
        return there.transfer_id if there is not None else None
    if there is None:
        if before.state is FenceState.HELD:
            # Interrupted before the target was closed; `_begin_loading` checks that it is empty.
            return before.transfer_id
        raise _refused(closed_by(before, source.installation_id))
    if before.transfer_id != there.transfer_id:
        raise _refused(closed_by(before, source.installation_id))
    return before.transfer_id


def _same(found: Fence, wanted: Fence) -> bool:
    return (found.state, found.transfer_id) == (wanted.state, wanted.transfer_id)


def _refused(text: str) -> TarnError:
    return TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)
